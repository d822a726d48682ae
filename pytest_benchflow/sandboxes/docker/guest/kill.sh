# Kill every process that has BF_EXEC=$1 in its environment, and what these have started, where there may be no bash.

# Say whether process $1 has the mark. Shells leave out the NUL between variables, so that all are one line.
bf_marked() {
  while IFS= read -r bf_line || [ -n "$bf_line" ]; do
    case $bf_line in *"BF_EXEC=$bf_mark"*) return 0 ;; esac
  done 2>/dev/null <"/proc/$1/environ"
  return 1
}

# Put the live processes of the command into bf_found, and all others with their parents into bf_rest.
bf_find() {
  bf_found=' ' bf_rest=
  for bf_path in /proc/[0-9]*; do
    bf_pid=${bf_path#/proc/}
    { IFS= read -r bf_line <"$bf_path/stat"; } 2>/dev/null || continue
    # The name before the last parenthesis may hold anything.
    set -- ${bf_line##*) }
    case $1 in [ZX]) continue ;; esac
    if bf_marked "$bf_pid"; then bf_found="$bf_found$bf_pid "; else bf_rest="$bf_rest $bf_pid:$2"; fi
  done
  bf_before=
  while [ "$bf_before" != "$bf_found" ]; do
    bf_before=$bf_found
    for bf_pair in $bf_rest; do
      case $bf_found in *" ${bf_pair%:*} "*) continue ;; esac
      case $bf_found in *" ${bf_pair#*:} "*) bf_found="$bf_found${bf_pair%:*} " ;; esac
    done
  done
}

bf_mark=$1
bf_round=0
# Stopped before any is killed, so that none can fork away.
for bf_signal in STOP STOP KILL KILL; do
  bf_find
  [ "$bf_found" = ' ' ] && exit 0
  kill -s "$bf_signal" $bf_found 2>/dev/null
done
while [ "$bf_round" -lt 100 ]; do
  bf_find
  [ "$bf_found" = ' ' ] && exit 0
  kill -s KILL $bf_found 2>/dev/null
  sleep 0.05 2>/dev/null || sleep 1
  bf_round=$((bf_round + 1))
done
exit 1
