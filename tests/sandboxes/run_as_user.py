"""Run pytest as an ordinary user with the interpreter, packages and sources of root, wherever those lie.

    python run_as_user.py UID SCRATCH ARGUMENT...

The interpreter may be in root's home, where nobody else may go: in a mount namespace of its own this script shows
interpreter, packages and project below SCRATCH, becomes the user, and starts pytest from there.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from pytest_benchflow.sandboxes.local.guest import libc

PROJECT = Path(__file__).parents[2]


def main(uid: int, scratch: Path, arguments: list[str]) -> None:
    """Enter the namespace, change the user and become pytest."""
    home = scratch / "home"
    shown = {"python": sys.base_prefix, "packages": sysconfig.get_path("purelib"), "project": str(PROJECT)}
    libc.unshare(libc.CLONE_NEWNS)
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    for name, source in shown.items():
        (scratch / name).mkdir()
        libc.mount(source, str(scratch / name), flags=libc.MS_BIND | libc.MS_REC)
    home.mkdir()
    os.chown(home, uid, uid)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.chdir(scratch / "project")
    environment = {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONHOME": str(scratch / "python"),
        "PYTHONPATH": f"{scratch}/packages:{scratch}/project",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Where the interpreter is a shared library, its own path to it leads through root's home.
        "LD_LIBRARY_PATH": str(scratch / "python" / "lib"),
    }
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = str(scratch / "python" / "bin" / version)
    os.execve(program, [program, "-m", "pytest", "-p", "no:cacheprovider", *arguments], environment)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
