# fish completion for punctual. To try it: punctual completion fish | source
function __punctual_complete
    punctual complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c punctual -n '__punctual_complete | string length -q' -f # files only where nothing else fits
complete -c punctual -a '(__punctual_complete)'
