"""Bring a task from one layout into the other, and say what the other cannot hold.

Nothing is changed before the result was loaded and found to say the same.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import FrontMatterSource, TomlSource, read_text
from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.core.removal import remove_tree
from pytest_benchflow.tasks.layout import is_package_name
from pytest_benchflow.tasks.legacy_keys import upgrade_keys
from pytest_benchflow.tasks.load import load_task
from pytest_benchflow.tasks.models import TaskConfig
from pytest_benchflow.tasks.native import expand
from pytest_benchflow.tasks.prompts import without_canary

if TYPE_CHECKING:
    from pytest_benchflow.configfile import Data
    from pytest_benchflow.tasks.task import Task

_DOCUMENT_KEYS = ("agents", "scenes", "user", "profile")
_PLACES = {"verifier": "tests", "oracle": "solution"}
#: Files beyond this size are no scripts, and not looked at for paths.
_LARGEST_SCRIPT = 1 << 20


@dataclass(frozen=True, slots=True)
class Conversion:
    """A task in its new layout, and what was lost on the way."""

    path: Path
    losses: tuple[str, ...]


def migrate_task(path: Path, *, remove_legacy: bool = False, overwrite: bool = False) -> Conversion:
    """Write a `task.md` beside a `task.toml`; `remove_legacy` puts it in its stead, with the native directory names."""
    source = path / "task.toml"
    document = path / "task.md"
    if document.exists() and not overwrite:
        raise UsageError(f"{document} exists already", advice="use --overwrite to write it anew")
    if not source.is_file():
        raise UsageError(f"{path} has no task.toml", advice="name a task in Harbor's layout")
    before = _load_harbor(path)
    text, losses = _document_of(path, before)
    names: dict[str, str] | None = None
    if remove_legacy:
        names = dict(_PLACES)
        if (path / "solution").is_dir() and (spoken := _mentions(path, "/solution", "solution")):
            del names["oracle"]
            losses.append(f"the native name of solution/, since {spoken[0]} speaks of /solution")
    advice = "change it by hand" if remove_legacy else "use --remove-legacy, or change it by hand"
    _require_same(before, path, lambda copy: _make_native(copy, text, names), advice)
    _make_native(path, text, names)
    return Conversion(path, tuple(losses))


def export_task(path: Path, into: Path, *, overwrite: bool = False, report_only: bool = False) -> Conversion:
    """Write a native task in Harbor's layout to the directory `into`."""
    task = load_task(path)
    if task.layout != "native":
        raise UsageError(f"{path} is in Harbor's layout already", advice="copy it")
    if into.exists() and not overwrite and not report_only:
        raise UsageError(f"{into} exists already", advice="name another directory, or use --overwrite")
    data, losses = _table_of(task)
    losses += _lost_of_document(task)
    losses += [f"{file} speaks of /oracle, which will be /solution" for file in _mentions(path, "/oracle", "oracle")]
    if report_only:
        return Conversion(into, tuple(losses))
    into.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{into.name}.", dir=into.parent))
    try:
        copy = draft / into.name
        _write_harbor(task, data, copy)
        _require_equal(task, load_task(copy), "change it by hand")
        if into.exists():
            remove_tree(into)
        copy.rename(into)
    finally:
        remove_tree(draft)
    return Conversion(into, tuple(losses))


def _load_harbor(path: Path) -> Task:
    """Load a task by its task.toml, though there may be a task.md to be written anew."""
    return load_task(path / "task.toml")


def _document_of(path: Path, task: Task) -> tuple[str, list[str]]:
    import yaml

    file = path / "task.toml"
    data: Data = dict(TomlSource(str(file), read_text(str(file))).data)
    losses = ["comments of task.toml"] if re.search(r"(?m)^\s*#", file.read_text("utf-8")) else []
    environment = data.pop("environment", None)
    if isinstance(environment, dict):
        if environment.pop("image", None) is not None:
            losses.append("[environment] image, which nobody reads")
        data["sandbox"] = environment
    front = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
    instruction = path / "instruction.md"
    body = without_canary(read_text(str(instruction))) if instruction.is_file() and not task.config.steps else ""
    return f"---\n{front}---\n{body}", losses


def _make_native(path: Path, text: str, names: Mapping[str, str] | None) -> None:
    """Write the document; with `names`, older ones by native ones, remove what it stands for.

    That comes last, so that it is a whole task at every moment.
    """
    write_atomically(path / "task.md", text)
    if names is None:
        return
    for folder in (path, *_step_folders(path)):
        for native, legacy in names.items():
            if (folder / legacy).is_dir() and not (folder / native).exists():
                (folder / legacy).rename(folder / native)
    (path / "instruction.md").unlink(missing_ok=True)
    (path / "task.toml").unlink()


def _step_folders(path: Path) -> list[Path]:
    return [folder for folder in (path / "steps").iterdir() if folder.is_dir()] if (path / "steps").is_dir() else []


def _require_same(before: Task, path: Path, change: Callable[[Path], None], advice: str) -> None:
    with tempfile.TemporaryDirectory(prefix="bf-task-") as scratch:
        copy = Path(scratch, path.resolve().name)
        shutil.copytree(path, copy, symlinks=False)
        change(copy)
        _require_equal(before, load_task(copy), advice)


def _require_equal(before: Task, after: Task, advice: str) -> None:
    """Refuse a conversion that changes what a task says; it would be a bug of ours, or a text that cannot be held."""
    fields = set(TaskConfig.model_fields) - {"task"}
    was, now = (task.config.model_dump(include=fields) for task in (before, after))
    changed = sorted(key for key in fields if was[key] != now[key])
    for one, other in zip(before.steps, after.steps, strict=True):
        if one.instruction.strip() != other.instruction.strip():
            changed.append("the instruction, which may have a heading like '## prompt' or '## role:x'")
        if (one.solution_dir is None) != (other.solution_dir is None):
            changed.append("the solution")
        if len(one.tests_dirs) != len(other.tests_dirs):
            changed.append("the tests")
    if changed:
        raise UsageError(f"{before.path} would lose {', '.join(dict.fromkeys(changed))}", advice=advice)


def _table_of(task: Task) -> tuple[Data, list[str]]:
    """Return the front matter as a `task.toml` has it."""
    source = FrontMatterSource(str(task.file), read_text(str(task.file)))
    data = upgrade_keys(expand(source)[0], lambda path, reason, fix: None)
    losses = []
    for key in _DOCUMENT_KEYS:
        if data.pop(key, None):
            losses.append(f"{key}: who takes part, which Harbor leaves to whoever runs the task")
    name = data.pop("name", None)
    if isinstance(name, str) and "task" not in data:
        if is_package_name(name):
            data["task"] = {"name": name}
        elif name != task.path.name:
            losses.append(f"name: {name}; without an organisation a task is called as its directory")
    if "benchflow" in data:
        losses.append("benchflow: kept, and read by this plugin only")
    return {key: value for key, value in data.items() if value not in ({}, [])}, losses


def _lost_of_document(task: Task) -> Iterator[str]:
    document = task.document
    assert document is not None
    prompts = document.prompts
    for what, names in (("role", prompts.roles), ("scene", prompts.scenes)):
        yield from (f"the prompt of the {what} {name}" for name in names)
    if prompts.user_persona:
        yield "the persona of the user"
    strategy = task.steps[0].verifier.strategy
    if strategy is not None and strategy.type != "script":
        yield f"verifier.md: the strategy {strategy.name} ({strategy.type}), which Harbor has not"
    elif strategy is not None and not _is_test_script(strategy.command):
        yield f"verifier.md: the command {strategy.command}; write a tests/test.sh that runs it"


def _is_test_script(command: str | None) -> bool:
    return (
        command is not None
        and re.fullmatch(r"(?:ba)?sh (?:\./)?test\.sh|(?:\./)?test\.sh", command.strip()) is not None
    )


def _write_harbor(task: Task, data: Mapping[str, object], into: Path) -> None:
    import tomli_w

    names = {native: legacy for native, legacy in _PLACES.items() if not (task.path / legacy).exists()}

    def name_in_harbor(directory: str, entries: list[str]) -> set[str]:
        at_root = Path(directory) == task.path
        return {"task.md", "prompts"} & {*entries} if at_root else set()

    shutil.copytree(task.path, into, symlinks=True, ignore=name_in_harbor)
    for folder in (into, *_step_folders(into)):
        for native, legacy in names.items():
            if (folder / native).is_dir():
                (folder / native).rename(folder / legacy)
    (into / "tests" / "verifier.md").unlink(missing_ok=True)
    (into / "task.toml").write_text(tomli_w.dumps(data), encoding="utf-8")
    if not task.config.steps:
        assert task.document is not None
        (into / "instruction.md").write_text(f"{task.document.prompts.base}\n", encoding="utf-8")


def _mentions(path: Path, place: str, part: str) -> list[str]:
    """Return the files of a part that speak of a directory of the sandbox."""
    word = re.compile(rf"{place}\b".encode())
    files = (Path(folder, name) for folder, _, names in os.walk(path / part) for name in sorted(names))
    return [
        str(file.relative_to(path))
        for file in files
        if file.is_file() and file.stat().st_size <= _LARGEST_SCRIPT and word.search(file.read_bytes())
    ]
