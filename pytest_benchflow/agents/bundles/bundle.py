"""A bundle: what it is made of, the name that follows from it, and how an installed one gets into a sandbox."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from platform import libc_ver
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Mount, Sandbox


#: Goes up when bundles of the same spec are laid out in another way.
_FORMAT = 1
#: Where bundles lie inside every sandbox.
PLACE = "/opt/benchflow"


@dataclass(frozen=True, slots=True)
class BundleSpec:
    """The packages of an agent, the runtime they need, and the programs they give."""

    agent: str
    version: str
    node: str | None = None
    """Version of the npm package `node` that runs the npm packages."""
    npm: tuple[str, ...] = ()
    python: str | None = None
    """Version of the Python, such as 3.12, that runs the packages of PyPI."""
    pip: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    """What lands in `bin`; nothing else of the packages can be called by name."""

    @property
    def digest(self) -> str:
        """Name spec and platform together."""
        return hashlib.sha256(json.dumps([_FORMAT, host_platform(), asdict(self)]).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name the directory of the bundle, on the host and in a sandbox."""
        return f"{_plain(self.agent)}-{_plain(self.version)}-{self.digest[:8]}"

    @property
    def target(self) -> str:
        """The prefix of the bundle inside a sandbox."""
        return f"{PLACE}/{self.name}"


@cache
def host_platform() -> str:
    """Name the kind of system that programs of this host run on."""
    libc = libc_ver()[0] or "musl"
    return f"{sys.platform}-{os.uname().machine}-{libc}"


def _plain(word: str) -> str:
    return re.sub("[^A-Za-z0-9._+]+", "-", word).strip("-.") or "x"


_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What a directory holds."""

    digest: str
    files: int
    size: int


def seal(top: Path) -> Content:
    """Open every file to all users, and return what is there."""
    digest, files, size = hashlib.sha256(), 0, 0
    seen: set[int] = set()
    for path, status in _walk(top):
        name, kind = str(path.relative_to(top)), stat.S_IFMT(status.st_mode)
        digest.update(f"{name}\0{kind}\0{status.st_mode & 0o100}\0".encode(errors="surrogateescape"))
        if kind == stat.S_IFLNK:
            digest.update(os.fsencode(os.readlink(path)))
            continue
        path.chmod(0o755 if kind == stat.S_IFDIR or status.st_mode & 0o100 else 0o644)
        if kind == stat.S_IFREG:
            files, size = files + 1, size + (0 if status.st_ino in seen else status.st_size)
            seen.add(status.st_ino)
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
    top.chmod(0o755)
    return Content(digest.hexdigest(), files, size)


def is_whole(bundle: Bundle) -> bool:
    """Return whether nothing of a bundle is missing; a program that was run may have added files."""
    files = size = 0
    seen: set[int] = set()
    todo = [str(bundle.path)]
    added = {os.path.join(todo[0], name) for name in (FACTS, KEY)}
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and entry.path not in added:
                    status = entry.stat(follow_symlinks=False)
                    files, size = files + 1, size + (0 if status.st_ino in seen else status.st_size)
                    seen.add(status.st_ino)
    programs = [bundle.path / "bin" / name for name in bundle.spec.programs]
    return files >= bundle.files and size >= bundle.size and all(os.access(path, os.X_OK) for path in programs)


def _walk(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(top) as entries:
        children = sorted(entries, key=lambda entry: entry.name)
    for entry in children:
        yield Path(entry.path), entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))


FACTS = "bundle.json"
#: Holds the bundle's key: a sandbox that shows it has the whole bundle.
KEY = "bundle.key"


@dataclass(frozen=True, slots=True)
class Bundle:
    """One agent of one version, complete and never changed again."""

    spec: BundleSpec
    path: Path
    key: str
    """Names the content: another installation of the same spec may differ in it."""
    files: int
    size: int
    """Bytes, those of a file with several names counted once."""
    seconds: float
    """How long the installation took."""
    runtimes: tuple[str, ...] = ()
    """What runs its programs, for example `node v22.23.3`."""

    @property
    def target(self) -> str:
        """The prefix inside a sandbox; programs are in its `bin`."""
        return self.spec.target

    @property
    def used(self) -> float:
        """When it was last asked for, in seconds since 1970; 0 if it is gone."""
        try:
            return self.path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def mount(self) -> Mount:
        """Return what makes a sandbox show the bundle from its start."""
        from pytest_benchflow.sandboxes import Mount

        return Mount(self.path, self.target, self.key)

    async def deploy(self, sandbox: Sandbox, *, log: Path | None = None) -> str:
        """Make the programs ready in a started sandbox and return their prefix there; they are in its `bin`.

        That is `target` unless the bundle cannot run there: then the image's own npm or pip installs the agent.
        """
        from pytest_benchflow.agents.bundles.deploy import deploy

        return await deploy(self, sandbox, log)

    def facts(self) -> str:
        """Return what `read` needs, as text."""
        spec = {name: getattr(self.spec, name) for name in BundleSpec.__slots__}
        facts = {name: getattr(self, name) for name in ("key", "files", "size", "seconds", "runtimes")}
        return json.dumps({"spec": spec, **facts}, indent=2) + "\n"


def read(path: Path) -> Bundle | None:
    """Return the bundle in a directory, None if there is none that this version can use."""
    try:
        facts = json.loads((path / FACTS).read_text("utf-8"))
        spec = facts["spec"]
        spec |= {name: tuple(spec[name]) for name in ("npm", "pip", "programs")}
        return Bundle(
            BundleSpec(**spec),
            path,
            key=facts["key"],
            files=facts["files"],
            size=facts["size"],
            seconds=facts["seconds"],
            runtimes=tuple(facts["runtimes"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
