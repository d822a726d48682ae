"""The commands that leave directories of a sandbox empty."""

from __future__ import annotations

import shlex

# Emptied rather than replaced, for each may be a mount; a link in its place is not followed. What is empty costs no
# program, and find is there for more names than one command can take. For any POSIX shell.
_EMPTY = """
for d in {directories}; do
  if [ -L "$d" ] || {{ [ -e "$d" ] && [ ! -d "$d" ]; }}; then rm -rf -- "$d" || exit 1; fi
  [ -d "$d" ] || mkdir -p -- "$d" || exit 1
  for f in "$d"/..?* "$d"/.[!.]* "$d"/*; do
    [ -e "$f" ] || [ -L "$f" ] || continue
    find "$d" -mindepth 1 -delete 2>/dev/null || rm -rf -- "$d"/..?* "$d"/.[!.]* "$d"/* || exit 1
    break
  done
done
chmod 777 -- {writable} || exit 1
"""


def emptied(*directories: str, private: str | None = None) -> str:
    """Return a script for root after which these exist, hold nothing, and can be written by all but the private one."""
    paths = [*directories, *([private] if private else [])]
    return _EMPTY.format(directories=shlex.join(paths), writable=shlex.join(directories))
