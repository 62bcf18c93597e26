
unset BASH_ENV
__record() {
  local __status=0 __name
  { builtin printf '%s\0' "${BASH_LINENO[-2]:-0}" "$#" "$@"
    while IFS= builtin read -r __name; do builtin printf '%s=%s\0' "$__name" "${!__name}"; done < <(builtin compgen -e)
    builtin printf '\0'
  } > "$__RECORDS/$EPOCHREALTIME.$BASHPID.$RANDOM"
  return 0
}
command_not_found_handle() { __record "$@"; }
exec() { if (($#)); then "$@"; builtin exit $?; fi; }
command() { case $1 in -*) builtin command "$@";; *) "$@";; esac; }
kill() { :; }
cd() {
  local __name=~
  for __name; do :; done
  builtin cd "$__name" 2>/dev/null && return
  case $__name in
    /*|'~'*) PWD=$__name;;
    *) __mkdir -p "$__name" 2>/dev/null && builtin cd "$__name";;
  esac
}
pwd() { builtin echo "$PWD"; }
source() { if [ -f "$1" ]; then builtin source "$@"; fi; }
function . { source "$@"; }
mkdir() {
  local __name
  for __name; do
    case $__name in
      *..*|-*|'~'*) ;;
      "$__WORK"/*|[!/]*) __mkdir -p "$__name" 2>/dev/null;;
    esac
  done
  return 0
}
__by_path() {
  builtin local __word __found
  builtin set +eu
  PATH=$__PROGRAMS
  for __word in $1; do
    [[ $__word == */* || $__word == *\$* ]] || continue
    case $__word in \"*\") __word=${__word:1:-1};; esac
    [[ $__word =~ ^[][A-Za-z0-9_./\$\{\}:~@%-]+$ ]] || continue
    builtin eval "__found=($__word)" 2>/dev/null || continue
    for __word in "${__found[@]}"; do
      [[ $__word == */* && $__word != *[!A-Za-z0-9_./:~@%-]* ]] || continue
      builtin eval "function $__word { __record \"$__word\" \"\$@\"; }" 2>/dev/null
    done
  done
  return 0
}
builtin set -T
builtin trap '__by_path "$BASH_COMMAND"' DEBUG
builtin trap '' PIPE
builtin ulimit -t CPU -f BLOCKS
