"""Which tools of this host stand in for a base image, and what is refused because nothing here does.

An image promises programs, variables and directories. Those of a language come from the host's own installation of
it, those of a distribution are the host's system; any other image cannot be had without its files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.sandboxes.dockerfile import USE_DOCKER
from pytest_benchflow.sandboxes.local.host import SYSTEM_PATH

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.local.toolchains import Toolchain, ToolFiles, Version


class StandInError(Exception):
    """Nothing here can stand in for an image; `advice` says what to do."""

    def __init__(self, message: str, advice: str = f"install it or {USE_DOCKER}") -> None:
        super().__init__(message)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class System:
    """A distribution and its release, as os-release names them; empty where nothing is said."""

    name: str = ""
    release: str = ""


@dataclass(frozen=True, slots=True)
class StandIn:
    """What serves as an image here."""

    note: str
    """The image, and what is here in its place."""
    files: tuple[ToolFiles, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """Directories in front of the system's PATH."""
    workdir: str | None = None
    script: str | None = None
    """What is run after the files are there."""
    system: System = System()
    user: str | None = None
    """The ordinary user that the image has."""


@dataclass(frozen=True, slots=True)
class Image:
    """A reference to an image, in its parts."""

    text: str
    name: str
    """Without registry, tag and digest: copies of an image are the same image."""
    tag: str


#: A registry, and the names under which registries keep copies of Docker's own images.
_REGISTRY = re.compile(r"^(?:[^/]*[.:][^/]*/)?(?:docker/)?(?:library/)?")


def parse_image(text: str) -> Image:
    """Read `registry/name:tag@digest`."""
    name, _, _ = text.partition("@")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        head, tag = name, ""
    return Image(text, _REGISTRY.sub("", head, count=1).lower(), tag.lower())


#: The package manager of a distribution; those that are missing here are refused where they are used.
_MANAGERS = {
    **dict.fromkeys(("debian", "ubuntu", "buildpack-deps", "kalilinux/kali-rolling"), "apt-get"),
    "alpine": "apk",
    **dict.fromkeys(("fedora", "rockylinux", "almalinux", "redhat/ubi8", "redhat/ubi9"), "dnf"),
    **dict.fromkeys(("centos", "oraclelinux", "amazonlinux"), "yum"),
    "archlinux": "pacman",
    "opensuse/leap": "zypper",
    "scratch": "",
    "busybox": "",
    "bash": "",
}
_CODENAMES = {
    "buster": System("debian", "10"),
    "bullseye": System("debian", "11"),
    "bookworm": System("debian", "12"),
    "trixie": System("debian", "13"),
    "bionic": System("ubuntu", "18.04"),
    "focal": System("ubuntu", "20.04"),
    "jammy": System("ubuntu", "22.04"),
    "noble": System("ubuntu", "24.04"),
}
#: The first releases whose own Python refuses pip outside of environments.
_EXTERNALLY_MANAGED = {"debian": 12.0, "ubuntu": 23.04}
#: Images of Ubuntu have a user of that name since this release.
_UBUNTU_USER = 23.04
_EXTERNALLY_MANAGED_FILES = "/usr/lib/python3*/EXTERNALLY-MANAGED"
_TERMINAL_BENCH = re.compile(r"laude-institute/t-bench/(ubuntu|python)-(\d+)-(\d+)")
#: How the same image is called in two registries.
_UV_IMAGES = ("astral-sh/uv", "astral/uv")


def find_stand_in(reference: str, environ: Mapping[str, str]) -> StandIn:
    """Return what serves as an image on this host; StandInError if nothing can."""
    image = parse_image(reference)
    if match := _TERMINAL_BENCH.fullmatch(image.name):
        tag = f"{match[2]}.{match[3]}"
        image = Image(image.text, match[1], tag)
    if image.name in _MANAGERS:
        return _stand_in_system(image)
    if image.name in _UV_IMAGES:
        return _stand_in_uv(image, environ)
    if image.name not in _LANGUAGES:
        raise StandInError(
            "nothing on this host stands in for this image",
            f"{USE_DOCKER}, or --bf-base-image-override debian to build on the host's own system",
        )
    language = _LANGUAGES[image.name]
    return _stand_in_language(image, language, language.find(image, environ))


def problem_of_command(text: str, system: System) -> str | None:
    """Return what of a shell command only the image's own distribution could do; None if the host may well do it."""
    manager = _manager(system)
    if manager and not shutil.which(manager, path=SYSTEM_PATH) and re.search(rf"(?:^|[\s;&|(]){manager}\s", text):
        return f"{manager} belongs to {system.name}, and {host_title()} does not have it"
    host = host_system()
    if "add-apt-repository" in text and re.search(r"\bppa:", text) and host.name not in ("", "ubuntu"):
        return f"a PPA is for Ubuntu, and this host is {host_title()}"
    if system.release and system != host and (pin := _apt_pin(text)):
        return f"{pin} is a version of {system.name} {system.release}, and this host is {host_title()}"
    return None


def _manager(system: System) -> str:
    return _MANAGERS.get(system.name, "")


def _apt_pin(text: str) -> str | None:
    """Return the first package that apt-get is to install in one version only."""
    for command in re.split(r"[;&|\n]+", text.replace("\\\n", " ")):
        if re.search(r"\bapt(?:-get)?\b.*\binstall\b", command):
            pins = re.findall(r"(?<=\s)[a-z0-9][a-z0-9.+-]+=\d\S*", command)
            if pins:
                return str(pins[0])
    return None


@cache
def _release_file() -> Mapping[str, str]:
    try:
        lines = Path("/etc/os-release").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip("\"'") for name, _, value in (line.partition("=") for line in lines)}


def host_system() -> System:
    """Return the distribution of this host."""
    return System(_release_file().get("ID", ""), _release_file().get("VERSION_ID", ""))


def host_title() -> str:
    """Return the name of this host's distribution as it calls itself."""
    return _release_file().get("PRETTY_NAME") or "this host's system"


def _stand_in_system(image: Image) -> StandIn:
    system = system_of(image)
    has_user = image.name == "ubuntu" and (not system.release or float(system.release) >= _UBUNTU_USER)
    return StandIn(
        f"{image.text} is {host_title()}, the host's own system",
        _open_python(system),
        system=system,
        user="ubuntu" if has_user else None,
    )


def system_of(image: Image) -> System:
    """Return the distribution that an image says it is built on."""
    if image.name in ("debian", "ubuntu") and re.match(r"\d", image.tag):
        release = image.tag.partition("-")[0]
        return System(image.name, release.partition(".")[0] if image.name == "debian" else release)
    if codename := next((name for name in _CODENAMES if name in image.tag), None):
        return _CODENAMES[codename]
    if image.name == "alpine" or "alpine" in image.tag:
        return System("alpine")
    return System(image.name if image.name in _MANAGERS else "debian")


def _open_python(system: System) -> tuple[ToolFiles, ...]:
    """Let pip of the system's own Python install packages where the image's does."""
    first = _EXTERNALLY_MANAGED.get(system.name)
    if first is None or not system.release or float(system.release) >= first:
        return ()
    from pytest_benchflow.sandboxes.local.toolchains import ToolFiles

    hidden = tuple(sorted(glob(_EXTERNALLY_MANAGED_FILES)))
    # An upgrade of Python would bring it back.
    settings = (("/etc/dpkg/dpkg.cfg.d/zz-pip", f"path-exclude={_EXTERNALLY_MANAGED_FILES}\n", 0o644),)
    return (ToolFiles(hidden=hidden, texts=settings),) if hidden else ()


@dataclass(frozen=True, slots=True)
class Language:
    """The images of one language."""

    title: str
    program: str
    """What it is called in messages."""
    find: Callable[[Image, Mapping[str, str]], Toolchain | None]
    refuses_older: bool = False
    """Whether what is written for a version cannot be built with an older one."""
    env: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    workdir: str | None = None
    version: Callable[[str], str] = str
    """The part of a tag that holds the version asked for."""
    user: str | None = None


def _asked(language: Language, image: Image) -> Version:
    from pytest_benchflow.sandboxes.local.toolchains import read_version

    tag = language.version(image.tag)
    return read_version(tag) if re.match(r"(?:v|jdk|jre|python)?-?\d", tag) else ()


def _stand_in_language(image: Image, language: Language, tool: Toolchain | None) -> StandIn:
    from pytest_benchflow.sandboxes.local.toolchains import ToolFiles

    asked = _asked(language, image)
    wanted = ".".join(map(str, asked))
    if tool is None:
        program = "python2" if (language.program, asked[:1]) == ("python3", (2,)) else language.program
        raise StandInError(f"there is no {program} on this host")
    if tool.lacks:
        raise StandInError(tool.lacks, USE_DOCKER)
    if language.refuses_older and tool.version < asked[: len(tool.version)]:
        message = f"{language.title} on this host is {tool.text}, older than the image's"
        raise StandInError(message, f"install {language.program} {wanted} or {USE_DOCKER}")
    fits = tool.version[: len(asked)] == asked
    system = system_of(image)
    return StandIn(
        f"{image.text} has {language.title} {tool.text} of this host{'' if fits else f' instead of {wanted}'}",
        (*((tool.files,) if tool.files != ToolFiles() else ()), *_open_python(system)),
        {**language.env, **tool.env},
        (*language.path, *tool.path),
        language.workdir,
        tool.script,
        system,
        language.user,
    )


def _python(image: Image, environ: Mapping[str, str]) -> Toolchain | None:
    from pytest_benchflow.sandboxes.local.toolchains import find_python

    return find_python(_asked(_LANGUAGES["python"], image), environ)


def _node(image: Image, environ: Mapping[str, str]) -> Toolchain | None:
    from pytest_benchflow.sandboxes.local.toolchains import find_node

    return find_node(_asked(_LANGUAGES["node"], image), environ)


def _go(image: Image, environ: Mapping[str, str]) -> Toolchain | None:
    from pytest_benchflow.sandboxes.local.toolchains import find_go

    return find_go(_asked(_LANGUAGES["golang"], image), environ)


def _rust(image: Image, environ: Mapping[str, str]) -> Toolchain | None:
    from pytest_benchflow.sandboxes.local.toolchains import find_rust

    return find_rust(_asked(_LANGUAGES["rust"], image), environ)


def _java(place: str) -> Callable[[Image, Mapping[str, str]], Toolchain | None]:
    def find(image: Image, environ: Mapping[str, str]) -> Toolchain | None:
        from pytest_benchflow.sandboxes.local.toolchains import find_java

        language = _LANGUAGES[image.name]
        program = None if language.program == "java" else language.program
        if program and not shutil.which(program, path=SYSTEM_PATH):
            return None
        asked = _asked(language, image)
        return find_java(asked, environ, place, compiler="jre" not in image.tag)

    return find


def _program(name: str, *arguments: str) -> Callable[[Image, Mapping[str, str]], Toolchain | None]:
    def find(image: Image, environ: Mapping[str, str]) -> Toolchain | None:
        from pytest_benchflow.sandboxes.local.toolchains import find_program

        return find_program(name, *arguments)

    return find


def _java_of_build_tool(tag: str) -> str:
    """Return what `3.9-eclipse-temurin-17` and `8-jdk17` say of Java."""
    match = re.search(r"(?:temurin|openjdk|corretto|jdk|jre)-?(\d+)", tag)
    return match[1] if match else ""


_BUNDLE = "/usr/local/bundle"
_LANGUAGES: Mapping[str, Language] = {
    "python": Language("Python", "python3", _python),
    "node": Language("Node.js", "node", _node, user="node"),
    "golang": Language("Go", "go", _go, refuses_older=True, workdir="/go"),
    "rust": Language("Rust", "rustc", _rust, refuses_older=True),
    "eclipse-temurin": Language("Java", "java", _java("/opt/java/openjdk"), refuses_older=True),
    "openjdk": Language("Java", "java", _java("/usr/local/openjdk"), refuses_older=True),
    "amazoncorretto": Language("Java", "java", _java("/usr/lib/jvm/java-amazon-corretto"), refuses_older=True),
    "maven": Language("Java", "mvn", _java("/opt/java/openjdk"), refuses_older=True, version=_java_of_build_tool),
    "gradle": Language(
        "Java",
        "gradle",
        _java("/opt/java/openjdk"),
        refuses_older=True,
        version=_java_of_build_tool,
        user="gradle",
    ),
    "gcc": Language("GCC", "gcc", _program("g++", "-dumpfullversion")),
    "ruby": Language(
        "Ruby",
        "ruby",
        _program("ruby"),
        env={"GEM_HOME": _BUNDLE, "BUNDLE_APP_CONFIG": _BUNDLE, "BUNDLE_SILENCE_ROOT_WARNING": "1"},
        path=(f"{_BUNDLE}/bin",),
    ),
    "perl": Language("Perl", "perl", _program("perl", "-e", "printf '%vd', $^V")),
    "php": Language("PHP", "php", _program("php")),
    "r-base": Language("R", "R", _program("R")),
    "rocker/r-ver": Language("R", "R", _program("R")),
    "julia": Language("Julia", "julia", _program("julia")),
    "elixir": Language("Elixir", "elixir", _program("elixir")),
    "haskell": Language("GHC", "ghc", _program("ghc")),
    "swift": Language("Swift", "swift", _program("swift"), refuses_older=True),
    "denoland/deno": Language("Deno", "deno", _program("deno"), user="deno"),
    "oven/bun": Language("Bun", "bun", _program("bun"), user="bun"),
    "continuumio/miniconda3": Language("conda", "conda", _program("conda"), version=lambda tag: ""),
    "dotnet/sdk": Language(".NET", "dotnet", _program("dotnet"), refuses_older=True),
}

_UV_SCRIPT = """set -e
python3 -m pip install --quiet --no-cache-dir --root-user-action=ignore --target=/opt/uv {uv}
mv /opt/uv/bin/uv /opt/uv/bin/uvx {place}
rm -rf /opt/uv
"""


def _stand_in_uv(image: Image, environ: Mapping[str, str]) -> StandIn:
    """Have uv of the version asked for from PyPI, or the host's own where any will do; where the tag says so on Python.

    An image without a distribution holds the two programs alone, in its root, for others to copy.
    """
    from pytest_benchflow.sandboxes.local.toolchains import ToolFiles, Tree, read_version

    version = re.match(r"\d+(?:\.\d+)*", image.tag)
    python = re.search(r"python(\d+(?:\.\d+)*)", image.tag)
    base = find_stand_in(f"python:{python[1] if python else '3'}", environ)
    is_bare = not re.search(r"python|debian|alpine|bookworm|trixie|slim", image.tag)
    place = "/" if is_bare else "/usr/local/bin/"
    note = f"{image.text} has uv {version[0] if version else 'as PyPI has it'}"
    program = None if version else shutil.which("uv", path=environ.get("PATH", SYSTEM_PATH))
    if program is not None and (parts := _beside(program)):
        trees = tuple(Tree(path, f"{place}{os.path.basename(path)}") for path in parts)
        files = (*base.files, ToolFiles(trees=trees))
        note = f"{image.text} has uv of this host"
        return StandIn(note, files, base.env, base.path, script=base.script, system=base.system)
    exact = version and len(read_version(version[0])) > 2
    wanted = f"'uv=={version[0]}{'' if exact else '.*'}'" if version else "uv"
    script = f"{base.script or ':'}\n{_UV_SCRIPT.format(uv=wanted, place=place)}"
    return StandIn(note, base.files, base.env, base.path, script=script, system=base.system)


def _beside(program: str) -> list[str]:
    """Return uv and the uvx beside it; empty if they are not both programs of their own."""
    paths = [os.path.realpath(path) for path in (program, f"{program}x")]
    names = [os.path.basename(path) for path in paths if os.path.isfile(path)]
    return paths if names == ["uv", "uvx"] else []
