"""`bf tasks init`: write a task that its solution passes and doing nothing fails, to be changed into another one."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pathspec import GitIgnoreSpec

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.files import is_abandoned, temporary_name
from pytest_benchflow.core.removal import remove_tree
from pytest_benchflow.tasks import find_task_file

_DRAFT = ".bf-init-"
_PROJECT = "project"
_GOOD_NAME = re.compile(r"\w[\w.+-]*")

_TASK = """\
schema_version = "1.4"

[metadata]
difficulty = "medium"
category = "{category}"
tags = []

[agent]
timeout_sec = 900

[verifier]
timeout_sec = 300

[environment]
cpus = 1
memory_mb = 2048
"""

_INSTRUCTION = """\
Create the file `/app/answer.txt`. It holds exactly one line, the answer to the question in `/app/question.txt`.
"""
_QUESTION = "What is 6 times 7?\n"

_INSTRUCTION_OF_PROJECT = """\
The project {name} is in `/app`.

Add the file `/app/{file}`. Its first line is `# Changes`, and a list with at least one entry (`- …`) follows.
Leave all other files as they are.
"""

_TEST_HEAD = """\
#!/bin/bash
# The verifier. It runs when the agent is gone, and nothing in this directory is there before.
# Its exit status does not count: the number in reward.txt does.
checks=0 passed=0

# check NAME COMMAND...: count one check, which passes if the command succeeds.
check() {
    local name=$1
    shift
    checks=$((checks + 1))
    if "$@"; then
        passed=$((passed + 1))
        echo "passed $name"
    else
        echo "failed $name"
    fi
}
"""

_TEST_TAIL = """
# All or nothing; for partial credit write a number in between.
if [ "$passed" -eq "$checks" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
"""

_TEST = """
check answer_exists test -f /app/answer.txt
check answer_is_right grep -qsx 42 /app/answer.txt
"""

_TEST_OF_PROJECT = """
starts_with_heading() { [ "$(head -n 1 /app/@FILE@ 2>/dev/null)" = "# Changes" ]; }

check heading starts_with_heading
check entry grep -qs '^- ' /app/@FILE@
# The project as it was: the agent may add files and must not touch these.
check project_unchanged sha256sum --check --quiet --strict /tests/project.sha256
"""

_SOLVE = """\
#!/bin/bash
# What the agent `oracle` runs; the verifier has to be content with it.
echo 42 >/app/answer.txt
"""

_SOLVE_OF_PROJECT = """\
#!/bin/bash
# What the agent `oracle` runs; the verifier has to be content with it.
printf '# Changes\\n\\n- Begin a list of changes.\\n' >/app/@FILE@
"""

_DOCKERFILE = """\
FROM debian:bookworm-slim
WORKDIR /app
COPY question.txt ./
"""

_LEFT_OUT = frozenset(
    (
        *(".git", ".hg", ".svn", ".jj", "node_modules", ".venv", "venv", ".tox", ".nox", ".direnv"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".DS_Store"),
        *(".env", ".envrc", ".netrc", ".npmrc", ".pypirc"),
    )
)
_MARKER_OF_JOBS = "job.json"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of project: its base image, and the lines of a Dockerfile after its files are in place."""

    category: str
    image: str
    lines: tuple[str, ...] = ()

    def dockerfile(self) -> str:
        """Return the Dockerfile of the task."""
        return "\n".join([f"FROM {self.image}", "WORKDIR /app", f"COPY {_PROJECT}/ ./", *self.lines, ""])


def init_task(path: Path, *, source: Path | None) -> int:
    """Make the directory of a new task whole or not at all; 2 if it cannot be made."""
    try:
        _refuse(path, source)
        kind = None if source is None else find_kind(source)
        left_out = _make(path, source, kind)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{path} cannot be made: {error.strerror or error}", file=sys.stderr)
        return 2
    if left_out:
        print(f"not copied: {', '.join(left_out)}")
    print(f"{path} is a task that works; see that with: bf tasks check --run {path}")
    return 0


def _refuse(path: Path, source: Path | None) -> None:
    if not _GOOD_NAME.fullmatch(path.name):
        raise UsageError(
            f"{path.name or str(path)!r} cannot name a task", advice="use letters, digits, dots and dashes"
        )
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already", advice="choose another name, or remove it")
    if source is None:
        return
    if not source.is_dir():
        raise UsageError(f"--from {source}: there is no such folder", advice="name the folder of a project")
    if find_task_file(source) is not None:
        raise UsageError(f"--from {source}: this is a task itself", advice="copy it, or name the project it is about")


def find_kind(source: Path) -> _Kind:
    """Return what kind of project is in a folder, by the files that tell."""
    if any((source / name).is_file() for name in ("pyproject.toml", "setup.py", "requirements.txt")):
        return _Kind("python", "python:3.13-slim", tuple(_python_lines(source)))
    if (source / "package.json").is_file():
        return _Kind("node", "node:22-slim", tuple(_node_lines(source)))
    if (source / "go.mod").is_file():
        text = (source / "go.mod").read_text("utf-8", errors="replace")
        version = re.search(r"^go (\d+\.\d+)", text, re.MULTILINE)
        lines = ("RUN go mod download",) if re.search(r"^require\b", text, re.MULTILINE) else ()
        return _Kind("go", f"golang:{version[1] if version else '1'}", lines)
    return _Kind("software", "debian:bookworm-slim")


def _python_lines(source: Path) -> Iterator[str]:
    if (source / "requirements.txt").is_file():
        yield "RUN pip install --no-cache-dir -r requirements.txt"
    elif _has_dependencies(source / "pyproject.toml"):
        yield "RUN pip install --no-cache-dir -e ."
    if (source / "src").is_dir():
        yield "ENV PYTHONPATH=/app/src"


def _has_dependencies(file: Path) -> bool:
    import tomllib

    try:
        project = tomllib.loads(file.read_text("utf-8")).get("project", {})
    except FileNotFoundError:
        return False
    except ValueError as error:
        raise UsageError(f"{file}: {error}", advice="repair it first") from None
    return isinstance(project, dict) and bool(project.get("dependencies"))


def _node_lines(source: Path) -> Iterator[str]:
    file = source / "package.json"
    try:
        package = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise UsageError(f"{file}: {error}", advice="repair it first") from None
    if not isinstance(package, dict) or not (package.get("dependencies") or package.get("devDependencies")):
        return
    yield "RUN npm ci" if (source / "package-lock.json").is_file() else "RUN npm install"


def _make(path: Path, source: Path | None, kind: _Kind | None) -> list[str]:
    """Write the task beside its place and move it there; return what of the project was not copied."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in path.parent.glob(f"{_DRAFT}*"):
        if is_abandoned(other.name.removeprefix(_DRAFT)):
            remove_tree(str(other))
    draft = path.parent / f"{_DRAFT}{temporary_name()}"
    draft.mkdir()
    try:
        left_out: list[str] = []
        if source is None or kind is None:
            _write(draft, _plain_files())
        else:
            left_out = _copy_project(source, draft / "environment" / _PROJECT)
            name = source.resolve().name
            _write(draft, _project_files(name, kind, draft / "environment" / _PROJECT))
        draft.rename(path)
    except BaseException:
        remove_tree(str(draft))
        raise
    return left_out


def _plain_files() -> dict[str, str]:
    return {
        "task.toml": _TASK.format(category="software"),
        "instruction.md": _INSTRUCTION,
        "environment/Dockerfile": _DOCKERFILE,
        "environment/question.txt": _QUESTION,
        "tests/test.sh": _TEST_HEAD + _TEST + _TEST_TAIL,
        "solution/solve.sh": _SOLVE,
    }


def _project_files(name: str, kind: _Kind, copy: Path) -> dict[str, str]:
    taken = {path.name.lower() for path in copy.iterdir()}
    file = next(name for name in _new_files() if name.lower() not in taken)
    return {
        "task.toml": _TASK.format(category=kind.category),
        "instruction.md": _INSTRUCTION_OF_PROJECT.format(name=name, file=file),
        "environment/Dockerfile": kind.dockerfile(),
        "tests/test.sh": _TEST_HEAD + _TEST_OF_PROJECT.replace("@FILE@", file) + _TEST_TAIL,
        "tests/project.sha256": "".join(_checksums(copy)),
        "solution/solve.sh": _SOLVE_OF_PROJECT.replace("@FILE@", file),
    }


def _new_files() -> Iterator[str]:
    """Yield names for the file that the agent is to add, which the project must not have."""
    yield "CHANGES.md"
    yield from (f"CHANGES-{number}.md" for number in count(2))


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        if name.endswith(".sh"):
            file.chmod(0o755)


def _checksums(root: Path) -> Iterator[str]:
    """Yield a line for each file of a project, as `sha256sum` reads it."""
    import hashlib

    for path in sorted(root.rglob("*")):
        name = f"/app/{path.relative_to(root)}"
        if path.is_file() and not path.is_symlink() and name.isprintable() and "\\" not in name:
            with path.open("rb") as file:
                yield f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n"


def _copy_project(source: Path, target: Path) -> list[str]:
    """Copy the files of a project, and return what was left out: what git ignores, secrets, tasks, results of runs."""
    root = source.resolve()
    ignored = _GitIgnore(root)
    left_out: list[str] = []

    def skipped(folder: str, names: list[str]) -> set[str]:
        paths = [Path(folder, name) for name in sorted(names)]
        wrong = [path for path in paths if not _belongs(path) or ignored.matches(path)]
        left_out.extend(str(path.relative_to(root)) for path in wrong if not path.name.startswith(_DRAFT))
        return {path.name for path in wrong}

    try:
        shutil.copytree(root, target, symlinks=True, ignore=skipped)
    except shutil.Error as error:  # one line for each file
        path, _, reason = error.args[0][0]
        raise UsageError(f"{path} cannot be copied: {reason}", advice="make it readable, or move it away") from None
    if not any(path.is_file() for path in target.rglob("*")):
        raise UsageError(f"--from {source}: there is no file in it to work on", advice="name the folder of a project")
    return left_out


def _belongs(path: Path) -> bool:
    if path.name in _LEFT_OUT or path.name.startswith(_DRAFT):
        return False
    mode = path.lstat().st_mode
    if stat.S_ISDIR(mode):
        return find_task_file(path) is None and not any(path.glob(f"*/{_MARKER_OF_JOBS}"))
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


class _GitIgnore:
    """The .gitignore files of a project, those in its folders included."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._specs: dict[Path, GitIgnoreSpec] = {}

    def matches(self, path: Path) -> bool:
        """Return whether git would pass over a path; of all files that speak of it the nearest decides."""
        folder = path.parent
        while folder.is_relative_to(self._root):
            name = f"{path.relative_to(folder)}{'/' if path.is_dir() and not path.is_symlink() else ''}"
            verdict = self._spec(folder).check_file(name).include
            if verdict is not None:
                return verdict
            folder = folder.parent
        return False

    def _spec(self, folder: Path) -> GitIgnoreSpec:
        if folder not in self._specs:
            try:
                lines = (folder / ".gitignore").read_text("utf-8", errors="replace").splitlines()
            except OSError:
                lines = []
            self._specs[folder] = GitIgnoreSpec.from_lines(lines)
        return self._specs[folder]
