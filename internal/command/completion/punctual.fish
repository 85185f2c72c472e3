# fish completion for punctual. To try it: punctual completion fish | source
complete -c punctual -a '(punctual complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
