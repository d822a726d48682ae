# Kill everything that one command started. Builtins only and no fork, so that it works beside a fork bomb.

# Read the words of a NUL-separated file into bf_words; fail if it belongs to another user.
bf_read_words() {
  local word
  bf_words=()
  while IFS= read -r -d '' word; do bf_words+=("$word"); done
  return 0
} <"$1" 2>/dev/null

# Say whether process $1 is of the command marked $2; $3: whether it is an orphan as young as the command.
# Such an orphan is the command's even if it has cleared its environment.
bf_belongs() {
  local word own
  bf_read_words "/proc/$1/environ" || return 1
  for word in "${bf_words[@]}"; do
    [[ $word == "BF_EXEC=$2" ]] && return 0
    [[ $word == BF_EXEC=* ]] && return 1
  done
  [[ $3 == 1 ]] || return 1
  # Workers of PID 1 are forks of it and look the same.
  bf_read_words "/proc/$1/cmdline"
  own="${bf_words[*]}"
  bf_read_words /proc/1/cmdline
  [[ $own != "${bf_words[*]}" ]]
}

# Put the live processes of the command marked $1 into bf_found; it began $2 clock ticks after the machine.
bf_find() {
  local path pid line orphan more=1
  local -a fields
  local -A parents=()
  bf_found=()
  for path in /proc/[0-9]*; do
    pid=${path#/proc/}
    [[ $pid == 1 || $pid == "$BASHPID" ]] && continue
    { IFS= read -r line <"$path/stat"; } 2>/dev/null || continue
    # The name before the last parenthesis may hold anything.
    fields=(${line##*) })
    [[ ${fields[0]} == [ZX] ]] && continue
    parents[$pid]=${fields[1]} orphan=0
    [[ ${fields[1]} == 1 ]] && ((fields[19] >= $2)) && orphan=1
    bf_belongs "$pid" "$1" "$orphan" && bf_found[$pid]=1
  done
  while ((more)); do
    more=0
    for pid in "${!parents[@]}"; do
      [[ -z ${bf_found[$pid]} && -n ${bf_found[${parents[$pid]}]} ]] && bf_found[$pid]=1 more=1
    done
  done
}

# Stop them all before killing any, so that none can fork away; return 1 if some are left after about 5 seconds.
bf_kill() {
  local -A bf_found=()
  local -a bf_words=()
  local round known=-1
  for ((round = 0; round < 100; round++)); do
    bf_find "$@"
    ((${#bf_found[@]} == known)) && break
    known=${#bf_found[@]}
    ((known)) && kill -STOP "${!bf_found[@]}" 2>/dev/null
  done
  for ((round = 0; round < 100 && ${#bf_found[@]}; round++)); do
    kill -KILL "${!bf_found[@]}" 2>/dev/null
    bf_pause 0.02
    ((round > 10)) && bf_pause 0.05
    bf_find "$@"
  done
  ((${#bf_found[@]} == 0))
}
