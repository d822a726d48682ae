"""Small shell scripts that start a program with the bundle's own runtime, wherever the bundle lies.

They set nothing that a child could inherit but a PATH with the agent's own programs: what an agent runs in its shell
sees the runtimes of the task's image.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

NODE = "runtime/node"
_SCRIPT = """#!/bin/sh
self=$0
[ -L "$self" ] && self=$(readlink -f "$self")
case $self in */*) ;; *) self=./$self ;; esac
top=$(CDPATH= cd -- "${{self%/*}}/{up}" && pwd -P) || exit 126
case :$PATH: in *":$top/bin:"*) ;; *) export PATH="$top/bin${{PATH:+:$PATH}}" ;; esac
exec {command} "$@"
"""
_SHEBANG = re.compile(rb"#!\s*(?:/\S*/env\s+(?:-S\s+)?)?(?:/\S*/)?([\w.+-]+)([^\n]*)")
_JAVASCRIPT = {".js", ".cjs", ".mjs"}


def write_wrapper(top: Path, place: Path, words: Sequence[str]) -> None:
    """Write the script at `place` that runs these words; those that are paths inside the bundle start with `$top/`."""
    up = os.path.relpath(top, place.parent)
    command = " ".join(_quoted(word) for word in words)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.write_text(_SCRIPT.format(up=up, command=command))
    place.chmod(0o755)


def command_of(top: Path, program: Path) -> list[str] | None:
    """Return the words that run a file of the bundle by node or by itself; None if it is neither."""
    inside = f"$top/{program.relative_to(top)}"
    with program.open("rb") as file:
        first = file.readline(256)
    if shebang := _SHEBANG.match(first):
        name, flags = shebang[1].decode(), shebang[2].decode(errors="replace").split()
        return [f"$top/{NODE}", *flags, inside] if name == "node" else [inside]
    if program.suffix in _JAVASCRIPT:
        return [f"$top/{NODE}", inside]
    return [inside] if first.startswith(b"\x7fELF") else None


def _quoted(word: str) -> str:
    if word.startswith("$top/"):
        return f'"$top/"{shlex.quote(word.removeprefix("$top/"))}'
    return shlex.quote(word)
