"""Make programs and libraries find each other by their places in a bundle, whatever the system has.

Nothing is put into the environment for that: it would reach what an agent runs in its shell.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

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
    found: dict[str, Path] = {}
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if ldconfig is None:
        return found
    done = subprocess.run([ldconfig, "-p"], capture_output=True, check=False, text=True, timeout=_CALL_SEC)
    for line in done.stdout.splitlines()[1:]:
        name, arrow, path = line.strip().partition(" => ")
        if arrow and "libc6" in name and ("64" in name) == (os.uname().machine.endswith("64")):
            found.setdefault(name.split()[0], Path(path))
    return found
