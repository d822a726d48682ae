"""Languages of this host that can stand in for those of an image: where each is, its version, and the files it needs.

Versions are read from files where there are any: a program is started only for what no file tells.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from glob import glob
from pathlib import Path

from pytest_benchflow.sandboxes.local.host import SYSTEM_PATH, VISIBLE

Version = tuple[int, ...]

_PROBE_TIMEOUT_SEC = 20.0
_PREFIX = "/usr/local"


@dataclass(frozen=True, slots=True)
class Tree:
    """A file or directory of the host, and where it is to be in the sandbox."""

    source: str
    target: str
    left_out: tuple[str, ...] = ()
    """Paths below it, as patterns."""
    edits: tuple[tuple[str, str, str], ...] = ()
    """Paths below it as patterns, a text in them, and what to write in its place."""


@dataclass(frozen=True, slots=True)
class ToolFiles:
    """What a layer needs to hold so that a language of the host is where an image has it."""

    trees: tuple[Tree, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Paths, and what they lead to."""
    directories: tuple[tuple[str, int], ...] = ()
    """Directories with modes of their own."""
    wheels: tuple[tuple[str, str], ...] = ()
    """Python packages, and the directory that each is unpacked to."""
    texts: tuple[tuple[str, str, int], ...] = ()
    """Files with their text and mode."""
    hidden: tuple[str, ...] = ()
    """Files of the host that are not to be seen."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """One language of this host."""

    version: Version
    files: ToolFiles = ToolFiles()
    env: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """Directories in front of the system's own."""
    script: str | None = None
    """What is run once its files are there."""
    lacks: str | None = None
    """What it cannot do without, and this host does not have."""

    @property
    def text(self) -> str:
        """Return its version as people write it."""
        return ".".join(map(str, self.version))


def read_version(text: str) -> Version:
    """Return the first version in a text: `python3.12-slim` and `go1.22.5` have one; empty if there is none."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


@cache
def _probe(*command: str) -> Version:
    """Ask a program for its version; empty if it does not tell."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PROBE_TIMEOUT_SEC, check=False, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return read_version(result.stdout + result.stderr) if result.returncode == 0 else ()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def is_visible(path: str) -> bool:
    """Return whether sandboxes see a path of the host as it is."""
    return any(path == top or path.startswith(f"{top}/") for top in VISIBLE)


def _directories(environ: Mapping[str, str], *patterns: str) -> list[str]:
    """List the directories that programs may be in: the system's, those of PATH, and those below the caller's home."""
    home = environ.get("HOME") or "/"
    below_home = [path for pattern in patterns for path in sorted(glob(pattern.replace("~", home)), reverse=True)]
    # Shims start whatever another tool has chosen, or nothing.
    named = [path for path in environ.get("PATH", "").split(":") if path.startswith("/") and "/shims" not in path]
    return list(dict.fromkeys([*SYSTEM_PATH.split(":"), *named, *below_home]))


def closest(versions: Iterable[Version], asked: Version) -> Version | None:
    """Return the version nearest to what is asked, rather a newer one than an older; the newest if nothing is asked."""
    return min(versions, key=lambda version: _distance(version, asked), default=None)


def _distance(version: Version, asked: Version) -> tuple[tuple[int, bool], ...]:
    pairs = zip(version, asked, strict=False)
    steps = [(abs(given - wanted), given < wanted) for given, wanted in pairs]
    # What is not asked for decides last: the newer, the better.
    return (*steps, *((-part, False) for part in version[len(asked) :]))


_PYTHON = re.compile(r"python3\.(\d+)$")
_PYTHON_HOMES = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "~/.local/share/mise/installs/python/*/bin",
    "~/.asdf/installs/python/*/bin",
)
#: Large, and in no slim image; packages of the host are not the image's.
_NOT_STDLIB = (
    "test",
    "idlelib",
    "turtledemo",
    "config-*",
    "site-packages",
    "dist-packages",
    "EXTERNALLY-MANAGED",
    "*.opt-?.pyc",
)
#: What Debian's own Python says of where packages go; an image's has one directory, as its authors meant.
_DEBIAN_MODULES = ("site.py", "sysconfig.py", "sysconfig/__init__.py", "_distutils_system_mod.py")
_DEBIAN_EDITS = (
    ("local/lib", "lib"),
    ("base}/local", "base}"),
    ("base/local", "base"),
    ("dist-packages", "site-packages"),
)
_PIP = "#!/usr/local/bin/python3\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"


def find_python(asked: Version, environ: Mapping[str, str]) -> Toolchain | None:
    """Find the Python nearest to the one asked for, to be put where the images of Python have theirs."""
    pythons: dict[Version, str] = {}
    for program in _python_programs(environ):
        if match := _PYTHON.search(program):
            pythons.setdefault((3, int(match[1])), program)
    best = closest((version for version in pythons if version[:1] == (asked[:1] or (3,))), asked[:2])
    return _relocate_python(pythons[best], best[1]) if best else None


def _python_programs(environ: Mapping[str, str]) -> Iterator[str]:
    programs = [os.path.realpath(getattr(sys, "_base_executable", sys.executable))]
    for directory in _directories(environ, *_PYTHON_HOMES):
        programs += sorted(glob(f"{directory}/python3.[0-9]*"))
    for program in dict.fromkeys(map(os.path.realpath, programs)):
        prefix, name = os.path.dirname(os.path.dirname(program)), os.path.basename(program)
        if os.path.isfile(f"{prefix}/lib/{name}/os.py"):
            yield program


def _relocate_python(program: str, minor: int) -> Toolchain:
    prefix, name = os.path.dirname(os.path.dirname(program)), f"python3.{minor}"
    library, packages = f"{prefix}/lib/{name}", f"{_PREFIX}/lib/{name}/site-packages"
    version = _python_version(program, prefix, name)
    edits = [("_sysconfigdata*.py", f"{prefix}/", f"{_PREFIX}/")]
    if prefix == "/usr":
        edits = [
            (path, old, new) for path in (*_DEBIAN_MODULES, "distutils/command/*.py") for old, new in _DEBIAN_EDITS
        ]
    trees = [
        Tree(program, f"{_PREFIX}/bin/{name}"),
        Tree(library, f"{_PREFIX}/lib/{name}", _NOT_STDLIB, tuple(edits)),
    ]
    links = [(f"{_PREFIX}/bin/{alias}", name) for alias in ("python", "python3")]
    if prefix == "/usr":
        # Where Debian's looks whatever is written in its modules: from 3.11 on some are part of the program.
        links.append((f"{_PREFIX}/lib/{name}/dist-packages", "site-packages"))
    if is_visible(f"{prefix}/include"):
        links.append((f"{_PREFIX}/include/{name}", f"{prefix}/include/{name}"))
    else:
        trees.append(Tree(f"{prefix}/include/{name}", f"{_PREFIX}/include/{name}"))
        shared = sorted(glob(f"{prefix}/lib/libpython3*.so*"))
        trees += [Tree(path, f"{_PREFIX}/lib/{os.path.basename(path)}") for path in shared]
        # Where /usr/local/lib is not among the loader's directories.
        trusted = [path for path in ("/usr/lib", "/usr/lib64") if os.path.isdir(path)]
        links += [
            (f"{directory}/{os.path.basename(path)}", f"{_PREFIX}/lib/{os.path.basename(path)}")
            for path in shared
            for directory in trusted
        ]
    wheels = _wheels(library, minor)
    files = ToolFiles(
        tuple(tree for tree in trees if os.path.exists(tree.source)),
        tuple(links),
        ((packages, 0o755),),
        tuple((wheel, packages) for wheel in wheels),
        tuple((f"{_PREFIX}/bin/{alias}", _PIP, 0o755) for alias in ("pip", "pip3", f"pip3.{minor}")),
    )
    text = ".".join(map(str, version))
    lacks = None if wheels else f"Python {text} of this host has no pip to install; install python3-venv or ensurepip"
    # The system may have a library of the same name.
    is_shared = any("libpython" in tree.source for tree in trees)
    return Toolchain(version, files, {"PYTHON_VERSION": text}, script="ldconfig" if is_shared else None, lacks=lacks)


def _python_version(program: str, prefix: str, name: str) -> Version:
    if program == os.path.realpath(getattr(sys, "_base_executable", sys.executable)):
        return tuple(sys.version_info[:3])
    match = re.search(r'PY_VERSION\s+"([^"]+)"', _text(f"{prefix}/include/{name}/patchlevel.h"))
    return (read_version(match[1]) if match else ()) or _probe(program, "-I", "-S", "--version") or read_version(name)


def _wheels(library: str, minor: int) -> list[str]:
    """List pip and what images had beside it until 3.11."""
    for directory in (f"{library}/ensurepip/_bundled", "/usr/share/python-wheels"):
        if pip := sorted(glob(f"{directory}/pip-*.whl")):
            return [pip[-1], *(sorted(glob(f"{directory}/setuptools-*.whl"))[-1:] if minor < 12 else ())]
    return []


_NODE_HOMES = ("~/.nvm/versions/node/*/bin", "~/.local/share/fnm/node-versions/*/installation/bin", "/opt/node*/bin")


def find_node(asked: Version, environ: Mapping[str, str]) -> Toolchain | None:
    """Find the Node.js nearest to the one asked for, with npm."""
    programs: dict[Version, str] = {}
    for directory in _directories(environ, *_NODE_HOMES):
        if os.access(program := f"{directory}/node", os.X_OK):
            programs.setdefault(_node_version(os.path.realpath(program)), program)
    best = closest(filter(None, programs), asked)
    if best is None:
        return None
    home = os.path.dirname(programs[best])
    text = ".".join(map(str, best))
    names = [name for name in ("node", "npm", "npx", "corepack") if os.path.lexists(f"{home}/{name}")]
    lacks = None if "npm" in names else f"Node.js {text} of this host has no npm; install it"
    env = {"NODE_VERSION": text}
    if is_visible(home):
        links = [(f"{_PREFIX}/bin/{name}", f"{home}/{name}") for name in names if home != f"{_PREFIX}/bin"]
        # Where images have it, whatever the place of the program says.
        env["NPM_CONFIG_PREFIX"] = _PREFIX
        return Toolchain(best, ToolFiles(links=tuple(links), texts=_yarn(home, "")), env, lacks=lacks)
    prefix = os.path.dirname(home)
    trees = [Tree(os.path.realpath(f"{home}/node"), f"{_PREFIX}/bin/node")]
    parts = ("lib/node_modules/npm", "lib/node_modules/corepack", "include/node")
    trees += [Tree(f"{prefix}/{part}", f"{_PREFIX}/{part}") for part in parts if os.path.isdir(f"{prefix}/{part}")]
    links = [
        (f"{_PREFIX}/bin/{name}", os.readlink(f"{home}/{name}"))
        for name in names
        if name != "node" and os.path.islink(f"{home}/{name}")
    ]
    return Toolchain(best, ToolFiles(tuple(trees), tuple(links), texts=_yarn(home, prefix)), env, lacks=lacks)


_YARN = """#!/bin/sh
export COREPACK_DEFAULT_TO_LATEST=0 COREPACK_ENABLE_DOWNLOAD_PROMPT=0
exec node {program} "$@"
"""


def _yarn(home: str, moved: str) -> tuple[tuple[str, str, int], ...]:
    """Return yarn, which images have beside npm: corepack fetches the release that it knows when it is first run.

    `moved` is a directory that is to be in /usr/local, "" if corepack stays where it is.
    """
    program = os.path.join(os.path.dirname(os.path.realpath(f"{home}/corepack")), "yarn.js")
    if not os.path.isfile(program):
        return ()
    if moved:
        program = f"{_PREFIX}/{os.path.relpath(program, os.path.realpath(moved))}"
    return ((f"{_PREFIX}/bin/yarn", _YARN.format(program=program), 0o755),)


def _node_version(program: str) -> Version:
    header = _text(f"{os.path.dirname(os.path.dirname(program))}/include/node/node_version.h")
    parts = [re.search(rf"define NODE_{part}_VERSION (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH")]
    if all(parts):
        return tuple(int(part[1]) for part in parts if part)
    return _probe(program, "--version")


_GO_HOMES = ("/usr/local/go/bin", "/usr/lib/go*/bin", "~/sdk/go*/bin", "~/go/bin", "/opt/go*/bin")


def find_go(asked: Version, environ: Mapping[str, str]) -> Toolchain | None:
    """Find the Go nearest to the one asked for."""
    roots: dict[Version, str] = {}
    for directory in _directories(environ, *_GO_HOMES):
        if os.access(program := f"{directory}/go", os.X_OK):
            root = os.path.dirname(os.path.dirname(os.path.realpath(program)))
            version = read_version(_text(f"{root}/VERSION")) or _probe(program, "env", "GOVERSION")
            roots.setdefault(version, root)
    best = closest(filter(None, roots), asked)
    if best is None:
        return None
    files = _shown(roots[best], f"{_PREFIX}/go", directories=(("/go/src", 0o777), ("/go/bin", 0o777)))
    env = {"GOLANG_VERSION": ".".join(map(str, best)), "GOTOOLCHAIN": "local", "GOPATH": "/go"}
    return Toolchain(best, files, env, ("/go/bin", f"{_PREFIX}/go/bin"))


def _shown(source: str, target: str, directories: tuple[tuple[str, int], ...] = ()) -> ToolFiles:
    """Show a directory of the host at another place: as a link if sandboxes see it, with its files otherwise."""
    if source == target:
        return ToolFiles(directories=directories)
    if is_visible(source):
        return ToolFiles(links=((target, source),), directories=directories)
    return ToolFiles((Tree(source, target, ("share/doc", "share/man")),), directories=directories)


def find_rust(asked: Version, environ: Mapping[str, str]) -> Toolchain | None:
    """Find the Rust toolchain nearest to the one asked for, of rustup or of the system."""
    rustup = environ.get("RUSTUP_HOME") or "~/.rustup"
    homes: dict[Version, str] = {}
    for directory in _directories(environ, f"{rustup}/toolchains/*/bin"):
        # Programs of rustup in ~/.cargo/bin only start those of a toolchain.
        if os.access(program := f"{directory}/rustc", os.X_OK) and not os.path.lexists(f"{directory}/rustup"):
            homes.setdefault(_probe(program, "--version"), os.path.dirname(directory))
    best = closest(filter(None, homes), asked)
    if best is None:
        return None
    home, cargo = homes[best], f"{_PREFIX}/cargo"
    env = {"RUSTUP_HOME": f"{_PREFIX}/rustup", "CARGO_HOME": cargo, "RUST_VERSION": ".".join(map(str, best))}
    directories = ((cargo, 0o777), (f"{cargo}/bin", 0o777))
    lacks = None if os.access(f"{home}/bin/cargo", os.X_OK) else "Rust of this host has no cargo; install it"
    if is_visible(home):
        return Toolchain(best, ToolFiles(directories=directories), env, (f"{cargo}/bin",), lacks=lacks)
    place = f"{_PREFIX}/rustup/toolchains/{os.path.basename(home)}"
    links = tuple((f"{cargo}/bin/{name}", f"{place}/bin/{name}") for name in sorted(os.listdir(f"{home}/bin")))
    files = ToolFiles((Tree(home, place, ("share/doc", "share/man")),), links, directories)
    return Toolchain(best, files, env, (f"{cargo}/bin",), lacks=lacks)


def find_java(asked: Version, environ: Mapping[str, str], place: str, *, compiler: bool) -> Toolchain | None:
    """Find the Java nearest to the one asked for, to be shown at `place`."""
    homes: dict[Version, str] = {}
    named = [environ["JAVA_HOME"]] if environ.get("JAVA_HOME") else []
    for directory in (*_directories(environ, "/usr/lib/jvm/*/bin", "~/.sdkman/candidates/java/*/bin"), *named):
        home = os.path.dirname(os.path.dirname(os.path.realpath(f"{directory}/java")))
        if os.access(f"{home}/bin/{'javac' if compiler else 'java'}", os.X_OK):
            match = re.search(r'JAVA_VERSION="([^"]+)"', _text(f"{home}/release"))
            homes.setdefault(read_version(match[1] if match else ""), home)
    best = closest(filter(None, homes), asked[:1])
    if best is None:
        return None
    env = {"JAVA_HOME": place, "JAVA_VERSION": ".".join(map(str, best))}
    return Toolchain(best, _shown(homes[best], place), env, (f"{place}/bin",))


def find_program(name: str, *arguments: str) -> Toolchain | None:
    """Find a program in the directories of the system, which sandboxes see as they are."""
    program = shutil.which(name, path=SYSTEM_PATH)
    return Toolchain(_probe(program, *(arguments or ("--version",)))) if program else None
