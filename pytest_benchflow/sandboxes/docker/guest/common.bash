# What the other scripts share. Job control gives each command a process group of its own: `kill 0` hits only itself.
set -m

# A terminal that nobody is at: waiting for it is a sleep that needs no program, and opening it no fork, unlike a pipe.
{ exec 7<>/dev/ptmx; } 2>/dev/null || exec 7<> <(:)
bf_pause() { read -r -t "$1" -u 7; }

# Run command $2 in directory $1 with the variables $3...; its errors go to descriptor 8, its status to bf_status.
bf_child() {
  bf_status=cwd
  cd -- "$1" || return
  (
    unset OLDPWD
    export SHLVL=0 "${@:3}"
    exec "$BASH" -c "$2" 2>&8 7>&- 8>&-
  ) &
  wait $!
  bf_status=$?
}

# Tell the runner that request $1 has ended with status $2; $3: whether another process still holds the streams.
bf_tell() {
  printf '\0bf %s %s %s\n' "$@"
  printf '\0bf %s %s %s\n' "$@" >&8
}
