"""What only the native layout has: shorthands of the front matter, prompts that must fit it, and `verifier.md`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pytest_benchflow.configfile import FrontMatterSource, Problem, TaskError, fit, quoted, read_text, validate_model
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.tasks.document import DocumentConfig
from pytest_benchflow.tasks.legacy_keys import TaskKeys
from pytest_benchflow.tasks.load import Parsed
from pytest_benchflow.tasks.models import Judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_benchflow.configfile import Data, Path, Severity
    from pytest_benchflow.tasks.models import TaskConfig
    from pytest_benchflow.tasks.prompts import Prompts


StrategyType = Literal["script", "llm-judge", "reward-kit", "agent-judge", "ors-episode"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The chosen strategy; a script runs `command` in the tests target, a judge is one of the runner's."""

    name: str
    type: StrategyType
    command: str | None
    settings: Mapping[str, object]
    outputs: Mapping[str, object]
    judge: Judge | None = None
    """Its rubric's path is relative to the verifier's directory."""

    @property
    def script(self) -> str | None:
        """The file of the verifier that the command runs, None if it begins with something else."""
        first = (self.command or "").split(maxsplit=1)[:1]
        path = os.path.normpath(first[0]) if first and "/" in first[0] else ""
        return None if not path or path.startswith(("/", "..", "-", "$", "~")) else path


def read_strategy(directory: str) -> Strategy | None:
    """Return the strategy that `verifier.md` in `directory` chooses, None without such a file."""
    file = f"{directory}/verifier.md"
    if not os.path.lexists(file):
        return None
    source = FrontMatterSource(file, read_text(file))
    verifier = _mapping(source, ("verifier",))
    strategies = _mapping(source, ("verifier", "strategies"))
    name = verifier.get("default_strategy", next(iter(strategies), None))
    if name not in strategies:
        raise _problem(
            source, ("verifier", "default_strategy"), f"is {quoted(name)}", did_you_mean(str(name), strategies)
        )
    settings = _mapping(source, ("verifier", "strategies", str(name)))
    kind = settings.get("type")
    at = ("verifier", "strategies", str(name), "type")
    if kind not in get_args(StrategyType):
        raise _problem(source, at, f"is {quoted(kind)}", did_you_mean(str(kind), get_args(StrategyType)))
    command = settings.get("command")
    if kind == "script" and (not isinstance(command, str) or not command.strip()):
        at = (*at[:-1], "command")
        raise _problem(source, at, f"is {quoted(command)}", "give the command to run, for example ./test.sh")
    outputs = verifier.get("outputs")
    return Strategy(
        str(name),
        kind,  # type: ignore[arg-type]
        command if isinstance(command, str) else None,
        settings,
        outputs if isinstance(outputs, dict) else {},
        _judge(source, str(name), settings) if kind == "llm-judge" else None,
    )


def _judge(source: FrontMatterSource, name: str, settings: Mapping[str, object]) -> Judge:
    """Return the judge that a strategy describes."""
    problems: list[Problem] = []

    def report(path: Path, reason: str, fix: str | None, severity: Severity = "error") -> None:
        at = ("verifier", "strategies", name, *(_JUDGE_KEYS.get(str(part), part) for part in path))
        problems.append(Problem(source.file, source.line(at), source.key(at), reason, fix, severity))

    known = {"type", _CONTEXT_FILE, *_JUDGE_KEYS.values(), *(k for k in Judge.model_fields if k not in _JUDGE_KEYS)}
    for key in settings:
        if key not in known:
            report((key,), "is not a known key", did_you_mean(key, known - {"type"}))
    data = {key: settings[word] for key in Judge.model_fields if (word := _JUDGE_KEYS.get(key, key)) in settings}
    if _CONTEXT_FILE in settings:
        data["context"] = _context(source, settings, report)
    judge = fit(Judge, data, report)
    if judge is None or problems:
        raise TaskError(problems)
    return judge


def _context(source: FrontMatterSource, settings: Mapping[str, object], report: Callable[..., None]) -> str:
    """Return the text of the context's file, which is beside `verifier.md` or below."""
    name = settings[_CONTEXT_FILE]
    if "context" in settings:
        report((_CONTEXT_FILE,), "stands beside context", "keep one of them")
    elif not isinstance(name, str) or os.path.isabs(name) or ".." in name.split("/"):
        report((_CONTEXT_FILE,), f"is {quoted(name)}", "name a file below the verifier's directory")
    else:
        return read_text(os.path.join(os.path.dirname(source.file), name))
    return ""


_CONTEXT_FILE = "context_file"
#: Keys of [verifier.judge] that a strategy calls otherwise.
_JUDGE_KEYS = {"rubric_path": "rubric"}


def _mapping(source: FrontMatterSource, path: Path) -> dict[str, object]:
    value: object = source.data
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not value:
        raise _problem(source, path, "is missing" if value is None else f"is {quoted(value)}", "give a mapping")
    return {str(key): item for key, item in value.items()}


def _problem(source: FrontMatterSource, path: Path, reason: str, fix: str) -> TaskError:
    return TaskError([Problem(source.file, source.line(path), source.key(path), reason, fix)])


#: What `verifier: …` and `oracle: …` may say as a string: the place they have anyway.
_PLACES = {
    "verifier": {"verifier", "verifier/test.sh", "test.sh", "test-script"},
    "oracle": {"oracle", "oracle/solve.sh", "solve.sh"},
}


def parse_document(file: str) -> Parsed:
    """Read and validate a `task.md` without looking at its directory."""
    source = FrontMatterSource(file, read_text(file))
    data, problems = expand(source)
    document, more = validate_model(source, DocumentConfig, data, unknown="warning", older=TaskKeys())
    return Parsed(source, document, problems + more, source.body)


def expand(source: FrontMatterSource) -> tuple[Data, list[Problem]]:
    """Return the front matter with its shorthands written out, and what is wrong with them."""
    data, problems = without_empty(source.data), list[Problem]()

    def refuse(key: str, reason: str, fix: str, severity: Severity = "error") -> None:
        problems.append(Problem(source.file, source.line((key,)), key, reason, fix, severity))

    if "environment" in data:
        environment = data.pop("environment")
        if data.setdefault("sandbox", environment) == environment:
            refuse("environment", "is called sandbox in a task.md and was taken as that", "rename it", "warning")
        else:
            refuse("environment", "contradicts sandbox, which is the same key", "keep sandbox alone")
    if "image" in data:
        image, sandbox = data.pop("image"), data.get("sandbox", {})
        if not isinstance(image, str) or not image:
            refuse("image", f"is {quoted(image)}", "give the name of an image as a string")
        elif isinstance(sandbox, dict):
            data["sandbox"] = {"docker_image": image, **sandbox}
            if sandbox.get("docker_image", sandbox.get("image", image)) != image:
                refuse("image", f"is {quoted(image)} but sandbox names another", "keep one of them")
    for key, places in _PLACES.items():
        value = data.get(key)
        if isinstance(value, str):
            del data[key]
            if value.removeprefix("./").rstrip("/") not in places:
                fix = f"put it in the directory {key}/, and write {key} as a mapping of settings"
                refuse(key, f"is {quoted(value)}", fix)
    return data, problems


def without_empty(data: Data) -> Data:
    """Leave out keys that YAML gives no value, in nested mappings too: they say nothing."""
    return {
        key: without_empty(value) if isinstance(value, dict) else value
        for key, value in data.items()
        if value is not None
    }


def prompt_problems(file: str, config: TaskConfig, prompts: Prompts) -> list[Problem]:
    """Report a task that tells no agent what to do, and prompts for roles or scenes that it does not have."""
    problems = []
    if not config.steps and not (prompts.base or prompts.roles or prompts.scenes):
        fix = "write below the front matter what the agent has to do"
        problems.append(Problem(file, None, None, "has no prompt", fix))
    if document := config.as_document():
        roles, scenes = list(document.agents.roles), [scene.name for scene in document.scenes]
        for kind, sections, known in (("role", prompts.roles, roles), ("scene", prompts.scenes, scenes)):
            for name in sections:
                if known and name not in known:
                    reason = f"is the prompt of a {kind} that the front matter does not have"
                    hint = did_you_mean(name, known)
                    problems.append(Problem(file, None, f"{kind}:{name}", reason, hint, "warning"))
    return problems
