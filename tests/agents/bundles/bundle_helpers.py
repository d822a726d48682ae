"""A fake npm that installs in no time, and what tests tell it to do."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.agents.bundles.bundle import BundleSpec

#: Notes that it was called, does as `mode` says, and makes a package with two programs.
_FAKE = """#!{python}
import os, pathlib, sys, time
here = pathlib.Path({here!r})
prefix = pathlib.Path(sys.argv[sys.argv.index("--prefix") + 1])
with (here / "calls").open("a") as calls:
    calls.write(f"{{os.getpid()}}\\n")
mode = (here / "mode").read_text()
print("installing", *sys.argv[-1:], flush=True)
if mode == "hang":
    time.sleep(600)
if mode == "slow":
    time.sleep(1)
if mode == "fail":
    print("npm error code E404", file=sys.stderr)
    print("npm error 404 Not Found - GET /no-such-package", file=sys.stderr)
    print("npm error A complete log of this run can be found in: somewhere", file=sys.stderr)
    sys.exit(1)
package = prefix / "node_modules" / "tool"
(package / "data").mkdir(parents=True)
(package / "data" / "big").write_bytes(bytes(100_000))
programs = {{"tool": "echo tool $1", "helper": "echo helper", "broken": "exit 127"}}
(prefix / "node_modules" / ".bin").mkdir()
for name, text in programs.items():
    (package / name).write_text(f"#!/bin/sh\\n{{text}}\\n")
    (package / name).chmod(0o700)
    (prefix / "node_modules" / ".bin" / name).symlink_to(f"../tool/{{name}}")
print("added 1 package")
"""
SPEC = BundleSpec("tool", "1.0", npm=("tool@1.0",), programs=("tool",))


@dataclass(frozen=True)
class FakeNpm:
    """Stands first on PATH."""

    directory: Path

    def write(self) -> None:
        self.directory.mkdir()
        (self.directory / "npm").write_text(_FAKE.format(python=sys.executable, here=str(self.directory)))
        (self.directory / "npm").chmod(0o755)
        self.set("work")

    def set(self, mode: str) -> None:
        """Say what the next calls do: work, slow, hang or fail."""
        (self.directory / "mode").write_text(mode)

    @property
    def calls(self) -> list[int]:
        """The process of each call so far."""
        try:
            return [int(line) for line in (self.directory / "calls").read_text().split()]
        except FileNotFoundError:
            return []


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def left_in(store: Path) -> list[str]:
    """List what is in a store beside bundles, logs and locks."""
    return sorted(path.name for path in store.rglob("tmp-*") if os.path.lexists(path))
