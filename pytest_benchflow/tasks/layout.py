"""Tell task directories and their two layouts from others at the price of a `stat` or two, and name what is in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")


def is_package_name(value: str) -> bool:
    """Return whether a name has the form organisation/name."""
    return _PACKAGE.fullmatch(value) is not None and ".." not in value


def word(value: object) -> str | None:
    """Return a metadata value as a word, None if it is none."""
    if isinstance(value, str):
        return value.strip() or None
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def tags_of(metadata: Mapping[str, object], keywords: Iterable[str] = ()) -> tuple[str, ...]:
    """Return tags and keywords of a task, each once, in order."""
    listed = metadata.get("tags")
    tags = [word(tag) for tag in listed] if isinstance(listed, list | tuple) else [word(listed)]
    return tuple(dict.fromkeys(tag for tag in (*tags, *keywords) if tag))


LayoutName = Literal["harbor", "native"]
TestsTarget = Literal["/tests", "/verifier"]
SolutionTarget = Literal["/solution", "/oracle"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a task keeps its parts, and where they go in the sandbox."""

    name: LayoutName
    tests: str
    tests_target: TestsTarget
    solution: str
    solution_target: SolutionTarget


_HARBOR = Layout("harbor", "tests", "/tests", "solution", "/solution")


def layout_of(directory: str, file: str) -> Layout:
    """Return the layout; a native task may keep the older directory names where it lacks the native ones."""
    if not file.endswith(".md"):
        return _HARBOR
    older_tests = _only(directory, "tests", "verifier")
    older_solution = _only(directory, "solution", "oracle")
    return Layout(
        "native",
        "tests" if older_tests else "verifier",
        "/tests" if older_tests else "/verifier",
        "solution" if older_solution else "oracle",
        "/solution" if older_solution else "/oracle",
    )


def _only(directory: str, older: str, native: str) -> bool:
    return os.path.isdir(f"{directory}/{older}") and not os.path.isdir(f"{directory}/{native}")


_NATIVE_PARTS = ("verifier/test.sh", "verifier/verifier.md", "oracle/solve.sh")


def find_task_file(directory: Path | str) -> Path | None:
    """Return the task file of a directory, None if it has none.

    A task.md counts if it opens with front matter, and then wins over task.toml; without it, among the other parts of a
    native task, it is a broken task and no note.
    """
    file = task_file(os.fspath(directory))
    return None if file is None else Path(file)


def find_tasks(directory: Path | str) -> Iterator[Path]:
    """Yield the task directories at and below a directory, in order of their names; hidden folders are passed over.

    A link to a directory is followed, as pytest does, unless it leads to a folder that it is in. Directories that
    nobody may list or enter here come last: they could be tasks, and loading them says what is wrong.
    """
    closed: list[str] = []
    walk = os.walk(directory, onerror=lambda error: closed.append(error.filename), followlinks=True)
    for folder, names, _ in walk:
        names[:] = sorted(name for name in names if not name.startswith(".") and not is_loop(f"{folder}/{name}"))
        if not os.access(folder, os.X_OK):
            names.clear()
            closed.append(folder)
        elif task_file(folder) is not None:
            names.clear()
            yield Path(folder)
    yield from (Path(folder) for folder in closed if os.path.isdir(folder))


def is_loop(path: str) -> bool:
    """Return whether a path is a link to a directory that contains it: following it would never end."""
    if not os.path.islink(path):
        return False
    target = os.path.realpath(path)
    # Folders as they were reached, and as they are: two links may lead to each other's folders.
    above = {*map(os.path.realpath, map(str, Path(path).absolute().parents))}
    return any(os.path.commonpath([target, folder]) == target for folder in above)


def task_file(root: str, names: Collection[str] | None = None) -> str | None:
    """Do the work of `find_task_file` with strings; `names` are the entries of the directory, if known."""
    if names is None or "task.md" in names:
        path = os.path.join(root, "task.md")
        if opens_with_fence(path):
            return path
    if names is None or "task.toml" in names:
        path = os.path.join(root, "task.toml")
        if names is not None or os.path.lexists(path):
            return path
    return os.path.join(root, "task.md") if _is_native(root, names) else None


def _is_native(root: str, names: Collection[str] | None) -> bool:
    if (names is not None and "task.md" not in names) or not os.path.lexists(f"{root}/task.md"):
        return False
    return os.path.isdir(f"{root}/environment") and any(os.path.isfile(f"{root}/{part}") for part in _NATIVE_PARTS)


def opens_with_fence(path: str) -> bool:
    """Return whether a file starts with the line that opens front matter."""
    try:
        with open(path, "rb", buffering=0, opener=_opener) as stream:
            start = stream.read(64)
    except (OSError, ValueError):
        return False
    return start.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].rstrip() == b"---"


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a named pipe must not stop collection
