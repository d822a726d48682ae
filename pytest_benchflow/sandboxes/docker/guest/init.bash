# PID 1 of a sandbox: does what the runner asks for on standard input and ends when that closes, and the container
# with it. Its argument is the silence in seconds after which the runner counts as dead; 0 trusts the connection.
bf_lease=$1
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
  # The image's variables may lead into files that an agent owns.
  local -x PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin LD_PRELOAD= LD_LIBRARY_PATH= LD_AUDIT= TAR_OPTIONS=
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

# Say whether process $1 can still do something: its main thread may have ended while others go on.
bf_lives() {
  local path line
  for path in "/proc/$1/task"/[0-9]*; do
    { IFS= read -r line <"$path/stat"; } 2>/dev/null || continue
    [[ ${line##*) } == [ZX]* ]] || return 0
  done
  return 1
}

# Say whether process $1 is of user $2, by its real number or the one it acts as.
bf_is_of() {
  local line
  while IFS= read -r line; do
    [[ $line == Uid:* ]] || continue
    line=${line#Uid:}
    [[ " ${line//$'\t'/ } " == *" $2 "* ]]
    return
  done
  return 0
} <"/proc/$1/status" 2>/dev/null

# Put into bf_others all living processes but PID 1 and those of bf_kept, whose keys are NUMBER:START and whose children
# are kept too unless they are of user $1; bf_parents tells what started each.
bf_list_others() {
  local path pid line
  local -a fields
  bf_others=() bf_parents=() bf_starts=()
  for path in /proc/[0-9]*; do
    pid=${path#/proc/}
    [[ $pid == 1 || $pid == "$BASHPID" ]] && continue
    { IFS= read -r line <"$path/stat"; } 2>/dev/null || continue
    fields=(${line##*) })
    [[ -n ${bf_kept[$pid:${fields[19]}]} ]] && continue
    bf_lives "$pid" || continue
    if [[ -n ${kept_pids[${fields[1]}]} ]] && ! bf_is_of "$pid" "$1"; then
      kept_pids[$pid]=$pid:${fields[19]}
      continue
    fi
    bf_parents[$pid]=${fields[1]} bf_starts[$pid]=${fields[19]}
    bf_others+=("$pid")
  done
}

# Put into bf_killed some of bf_others, as NUMBER:START:NAME; a worker of ours may not have gone yet.
bf_describe() {
  local pid name
  for pid in "${bf_others[@]:0:50}"; do
    [[ $pid == "$bf_worker" ]] && continue
    { IFS= read -r name <"/proc/$pid/comm"; } 2>/dev/null || continue
    bf_killed+=" $pid:${bf_starts[$pid]}:${name//[^[:alnum:]_.+-]/_}"
  done
}

# NONCE UID NUMBER:START...: kill every process but PID 1 and these; say how many are left, and what was killed. Builtins
# only: PID 1 trusts no program of the image here. Killing "all" is one step of the kernel's, which no fork gets ahead of.
bf_purge() {
  local nonce=$1 uid=$2 round pid parent bf_killed=0
  local -a bf_others=()
  local -A bf_kept=() bf_parents=() bf_starts=() kept_pids=()
  shift 2
  for pid in "$@"; do bf_kept[$pid]=1 kept_pids[${pid%%:*}]=$pid; done
  for ((round = 0; round < 200; round++)); do
    bf_list_others "$uid"
    ((${#bf_others[@]})) || break
    ((round)) || bf_describe
    if ((${#bf_kept[@]} == 0)); then
      kill -KILL -1 2>/dev/null
    else
      kill -STOP "${bf_others[@]}" 2>/dev/null
      kill -KILL "${bf_others[@]}" 2>/dev/null
      # Whatever runs programs for whoever asks would start them again.
      for pid in "${bf_others[@]}"; do
        parent=${bf_parents[$pid]}
        [[ -n ${kept_pids[$parent]} ]] && unset "bf_kept[${kept_pids[$parent]}]" "kept_pids[$parent]"
      done
    fi
    ((round > 3)) && bf_pause 0.01
  done
  bf_tell "$nonce" "${#bf_others[@]}" "$bf_killed"
}

# Whoever sees the runner off lets the sandbox live on without it.
bf_keep() { while :; do bf_pause 3600; done; }

# Put the next line into bf_line; fail when the input ends, or was silent for longer than the lease. Waiting with a limit
# has its price: bash collects no dead orphans meanwhile. And some versions compare clocks before each byte: after a sleep
# of the machine they would take a line that wakes them for one that is late.
bf_next() {
  local first
  ((bf_lease)) || { IFS= read -r bf_line; return; }
  IFS= read -r -t "$bf_lease" -n 1 first || return
  bf_line=
  [[ -z $first ]] || { IFS= read -r -t "$bf_lease" bf_line && bf_line=$first$bf_line; }
}

bf_can=
if [[ $(tar --version 2>/dev/null) == *GNU* ]] && dd bs=1 count=0 iflag=fullblock status=none </dev/null 2>/dev/null; then
  bf_can=put
fi
IFS= read -r -t 60 bf_token || exit 0
read -r bf_line _ </proc/uptime
bf_tell ready "$BASH" "$bf_line $bf_can"
bf_worker=
while bf_next; do
  # A worker that was killed could not tell its end. It could if a request comes, for which the runner has waited for that
  # end: killed a moment later, it would be told a second time, in the midst of the answer to the request.
  if [[ -n $bf_worker ]] && ! kill -0 "$bf_worker" 2>/dev/null; then
    wait "$bf_worker" || [[ $bf_line == "$bf_token "* ]] || bf_tell "$bf_nonce" 137 1
    bf_worker=
  fi
  # What does not begin with the token is the rest of an archive whose reader was killed.
  [[ $bf_line == "$bf_token "* ]] && eval "${bf_line#* }"
done
