"""What hidden tests say of themselves: what they import and bring along, where they run, where they copy files to."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

_MOST_FILES = 200
_MOST_NAMES = 5000
_MAX_CHARS = 1 << 20
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+|readonly\s+|local\s+)?(\w+)=[\"']?([^\s\"'`()]+)", re.MULTILINE)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=]([^}]*))?\})")
_CHANGES_DIRECTORY = re.compile(r"(?:^|[;&|({\s])(?:cd|pushd|-C)\s+[\"']?([\w./@+-]+)")
_PLACES = re.compile(r"^.*\b(?:cp|mv|ln|install|rsync|tar|unzip|pytest|unittest|shutil|copy\w*)\b.*$", re.MULTILINE)
_WORD = re.compile(r"[\w.@+/-]*/[\w.@+/-]*")
_COPY = re.compile(r"\b(?:cp|mv|install|ln|rsync)\s+([^\n;&|<>()]+)")
_OUTPUT = re.compile(r"(?<![<0-9&])>{1,2}\s*([\w./@+-]+)")
_COPY_IN_PYTHON = re.compile(r"\b(?:copy\w*|move|rename|replace)\(\s*[\"']([^\"'\n]+)[\"']\s*,\s*[\"']([^\"'\n]+)[\"']")
_IMPORT = re.compile(
    r"^\s*(?:import|from)\s+(\w+)|-c\s+[\"']\s*(?:import|from)\s+(\w+)|;\s*import\s+(\w+)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class HiddenTests:
    """What is known of the tests of a step."""

    imports: frozenset[str] = frozenset()
    """Names of modules that they import."""
    own_modules: frozenset[str] = frozenset()
    """Names of modules that they bring along."""
    directories: tuple[str, ...] = ()
    """Where they may be when they start programs."""
    places: frozenset[str] = frozenset()
    """Directories that they name where they copy or run something."""
    names: frozenset[str] = frozenset()
    """Names of all their files."""
    copies: frozenset[str] = frozenset()
    """Where they copy or write something of theirs: files, and directories that get files of their names."""


def read_hidden_tests(directories: Iterable[Path], script: str, workdir: str) -> HiddenTests:
    """Read the tests of a step, whose script is called `script`."""
    imports: set[str] = set()
    own: set[str] = set()
    homes: dict[str, None] = {}
    places: set[str] = set()
    names: set[str] = set()
    copies: set[str] = set()
    for directory in directories:
        names |= {path.name for path in islice(directory.rglob("*"), _MOST_NAMES)}
        for path in sorted(directory.rglob("*.py"))[:_MOST_FILES]:
            own.add(path.stem)
            imports.update(_imports_of_module(path))
            pairs = _COPY_IN_PYTHON.findall(_text(path))
            copies |= {posixpath.normpath(posixpath.join(workdir, end)) for _, end in pairs}
        for path in (directory / script, *sorted(directory.rglob("*.sh"))[:_MOST_FILES]):
            text = _text(path)
            imports |= {next(filter(None, names)) for names in _IMPORT.findall(text)}
            plain = _without_variables(text)
            homes |= dict.fromkeys(_directories(plain, workdir))
            tops = [workdir, *homes]
            copies |= {posixpath.normpath(posixpath.join(top, end)) for end in _ends(plain) for top in tops}
            places |= {place for line in _PLACES.findall(plain) for place in _places(line, tops)}
    return HiddenTests(
        imports=frozenset(imports),
        own_modules=frozenset(own),
        directories=tuple(homes),
        places=frozenset(places),
        names=frozenset(names),
        copies=frozenset(copies),
    )


def _ends(script: str) -> Iterator[str]:
    """Yield where a script copies files to, or writes what it reads of its own files."""
    for words in _COPY.findall(script):
        paths = [word for word in words.split() if not word.startswith("-")]
        if len(paths) > 1:
            yield paths[-1]
    for line in script.splitlines():
        if "/tests/" in line or "/verifier/" in line:
            yield from _OUTPUT.findall(line)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")[:_MAX_CHARS]
    except OSError:
        return ""


def _imports_of_module(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _without_variables(script: str) -> str:
    """Return a script with the values of its variables in their places, as far as they are plain text."""
    values: dict[str, str] = dict(_ASSIGNMENT.findall(script))

    def value(match: re.Match[str]) -> str:
        return values.get(match[1] or match[2]) or match[3] or match[0]

    for _ in range(3):  # values may name other variables
        script = _VARIABLE.sub(value, script)
    return script.replace('"', "").replace("'", "")


def _directories(script: str, workdir: str) -> list[str]:
    """Return the directories that a script changes to; a relative one may be below any other."""
    words = _CHANGES_DIRECTORY.findall(script)
    homes = [posixpath.normpath(word) for word in words if word.startswith("/")]
    relative = [word for word in words if not word.startswith(("/", "-"))]
    below = [posixpath.normpath(posixpath.join(home, word)) for word in relative for home in (workdir, *homes)]
    return list(dict.fromkeys([*homes, *below]))


def _places(line: str, homes: Iterable[str]) -> Iterator[str]:
    for word in _WORD.findall(line):
        for home in homes:
            place = posixpath.normpath(posixpath.join(home, word))
            yield place
            yield posixpath.dirname(place)
