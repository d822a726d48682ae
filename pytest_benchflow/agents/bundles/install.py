"""Install an agent into a new directory: packages, runtime, wrappers, and the proof that its programs start."""

from __future__ import annotations

from pathlib import Path

from .command import Commands
from .npm import install_npm
from .python import PYTHON, install_python
from .spec import BundleSpec
from .wrappers import NODE, write_wrapper

_ANSWER_SEC = 30.0
#: How a shell says that a program could not be started.
_NEVER_STARTED = (126, 127)
CHECK = "check"
_PYTHON = "3.12"
#: What may run the programs, and the words that prove that it does; for Python its libraries are part of that.
_RUNTIMES = {NODE: "--version", f"{PYTHON}/bin/python": "-I -c 'import ssl, ctypes, sqlite3'"}


async def install(spec: BundleSpec, top: Path, scratch: Path, commands: Commands, node: Path | None) -> tuple[str, ...]:
    """Fill the new directory `top`; return what runs the programs."""
    top.mkdir()
    programs: dict[str, list[str]] = {}
    if spec.npm:
        programs |= await install_npm(spec.npm, top, scratch, commands, node)
    if spec.pip:
        programs |= await install_python(spec.python or _PYTHON, spec.pip, top, spec.target, scratch, commands)
    for name in spec.programs:
        if name not in programs:
            offered = ", ".join(sorted(programs)) or "none"
            raise commands.failed(f"the packages have no program {name!r}; they have: {offered}")
        write_wrapper(top, top / "bin" / name, programs[name])
    runtimes = _write_check(top)
    for name in spec.programs:
        await _prove(name, top, scratch, commands)
    return tuple([await _version(top / path, commands) for path in runtimes])


def _write_check(top: Path) -> list[str]:
    """Write the script that tells, by its exit status, whether the bundle's runtimes start on a system."""
    runtimes = {path: words for path, words in _RUNTIMES.items() if (top / path).exists()}
    tests = " && ".join(f'"$top/{path}" {words}' for path, words in runtimes.items())
    (top / CHECK).write_text(f"#!/bin/sh\ntop=${{0%/*}}\n{tests or 'true'}\n")
    (top / CHECK).chmod(0o755)
    return list(runtimes)


async def _prove(name: str, top: Path, scratch: Path, commands: Commands) -> None:
    """See a program start; many agents know no `--version` and end with an error of their own, which is enough."""
    home = scratch / f"home-{name}"
    home.mkdir()
    argv = [str(top / "bin" / name), "--version"]
    status, lines = await commands.attempt(argv, cwd=home, env={"HOME": str(home)}, timeout_sec=_ANSWER_SEC)
    if status is not None and (status in _NEVER_STARTED or status < 0):
        raise commands.failed(f"its program {name} does not start: {lines[-1] if lines else 'no output'}", status)


async def _version(program: Path, commands: Commands) -> str:
    _, lines = await commands.attempt([str(program), "--version"], timeout_sec=_ANSWER_SEC)
    return f"{program.name} {lines[-1].split()[-1].removeprefix('v') if lines else '?'}"
