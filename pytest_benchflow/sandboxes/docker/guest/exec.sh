# Run one command in a container that need not be ours, and tell its end. Arguments: NONCE DIRECTORY COMMAND.
# A background process may hold the streams open for ever, so their end says nothing.
bf_status=cwd
if [ -z "$2" ] || cd -- "$2" >/dev/null 2>&1; then
  sh -c "$3"
  bf_status=$?
fi
printf '\0bf %s %s 0\n' "$1" "$bf_status"
printf '\0bf %s %s 0\n' "$1" "$bf_status" >&2
