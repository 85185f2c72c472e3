#compdef punctual
# zsh completion for punctual. To try it: source <(punctual completion zsh)
_punctual() {
  local -a found
  found=(${(f)"$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null | tr '\t' ':')"})
  if (( $#found )); then _describe punctual found; else _files; fi
}
if [[ $funcstack[1] == _punctual ]]; then _punctual "$@"; else compdef _punctual punctual; fi
