# Run one command that the engine starts, and tell its end. Arguments: NONCE DIRECTORY COMMAND.
# A background process may hold the streams open for ever, so their end says nothing.
exec 8>&2 2>/dev/null
bf_child "$2" "$3"
bf_tell "$1" "$bf_status" 0
