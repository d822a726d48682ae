# PID 1 of a sandbox: does what the runner asks for on standard input and ends when that closes, and the container
# with it. Its argument is the silence in seconds after which the runner counts as dead; 0 trusts the connection.
trap 'exit 0' RTMIN+3
# Its own remarks, such as that a job is done, are nobody's output.
exec 8>&2 2>/dev/null

# Say whether a process that was not there before ($@) has one of the two streams open, or may have.
bf_held() {
  local path file line known=" $* "
  for path in /proc/[0-9]*; do
    [[ $known == *" $path "* || $path == "/proc/$BASHPID" ]] && continue
    for file in "$path"/fd/*; do
      [[ $file -ef /proc/$BASHPID/fd/1 || $file -ef /proc/$BASHPID/fd/8 ]] && return 0
    done
    # Only the owner may look at descriptors.
    [[ -e $file || -L $file ]] && continue
    { IFS= read -r line <"$path/stat"; } && [[ ${line##*) } != [ZX]* ]] && return 0
  done
  return 1
}

# NONCE DIRECTORY COMMAND INPUT [NAME=VALUE...]; the input begins with "=", without it there is none.
bf_run() {
  local -a bf_before=(/proc/[0-9]*)
  (
    trap - RTMIN+3
    set -m
    if [[ $4 == =* ]]; then
      exec < <(printf %s "${4#=}" 8>&-)
    fi
    bf_child "$2" "$3" "${@:5}"
    bf_dirty=0
    for bf_round in 1 2 3 4 5 6 7 8; do
      bf_held "${bf_before[@]}" || break
      bf_dirty=1
      bf_pause 0.025
    done
    bf_held "${bf_before[@]}" || bf_dirty=0
    bf_tell "$1" "$bf_status" "$bf_dirty"
  ) </dev/null &
  bf_worker=$! bf_nonce=$1
}

# NONCE DIRECTORY BLOCKS [FILE]: unpack the archive that follows in the input. It is read to its end whatever happens.
# Where its only file is to be, tar would put it in the place of an empty directory.
bf_put() {
  dd bs=65536 count="$3" iflag=fullblock status=none | {
    if [[ -n $4 && -d $2/$4 && ! -L $2/$4 ]]; then
      echo "$2/$4 is a directory" >&8
      false
    else
      mkdir -p -- "$2" 2>&8 && tar -xpf - -C "$2" 2>&8
    fi
    bf_status=$?
    cat >/dev/null
    exit "$bf_status"
  }
  bf_tell "$1" $? 0
}

# NONCE MARK TICKS: kill a command without starting a program for it.
bf_end() {
  bf_kill "$2" "$3"
  bf_tell "$1" $? 0
}

# Whoever sees the runner off lets the sandbox live on without it.
bf_keep() { while :; do bf_pause 3600; done; }

bf_can=
if [[ $(tar --version 2>/dev/null) == *GNU* ]] && dd bs=1 count=0 iflag=fullblock status=none </dev/null 2>/dev/null; then
  bf_can=put
fi
IFS= read -r bf_token
read -r bf_line _ </proc/uptime
bf_tell ready "$BASH" "$bf_line $bf_can"
bf_worker=
while :; do
  if ((${1:-0})); then IFS= read -r -t "$1" bf_line; else IFS= read -r bf_line; fi || exit 0
  # A worker that was killed could not tell its end.
  if [[ -n $bf_worker ]] && ! kill -0 "$bf_worker" 2>/dev/null; then
    wait "$bf_worker" || bf_tell "$bf_nonce" 137 1
    bf_worker=
  fi
  # What does not begin with the token is the rest of an archive whose reader was killed.
  [[ $bf_line == "$bf_token "* ]] && eval "${bf_line#* }"
done
