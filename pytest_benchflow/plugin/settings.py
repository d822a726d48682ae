"""The settings of a run, checked: command line, then ini, then `[tool.benchflow]`, then defaults."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeGuard, TypeVar, get_args

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.plugin.options import OPTIONS, has_table, ini_value, pyproject

if TYPE_CHECKING:
    from pytest_benchflow.tasks import SourceSpec


N = TypeVar("N", int, float)
KeepSandbox = Literal["never", "failed", "always"]
KEEP_SANDBOX: tuple[KeepSandbox, ...] = get_args(KeepSandbox)
MissingCredentials = Literal["error", "skip"]
MISSING_CREDENTIALS: tuple[MissingCredentials, ...] = get_args(MissingCredentials)
_CONCURRENCY_LIMIT = 16

MAX_TRIALS = 10_000
"""More are a slip of the finger, and would fill the memory before the first of them starts."""
IDLE_TIMEOUT_SEC = 600.0
USER_SETUP_TIMEOUT_SEC = 120.0
INSTRUCTION = "@instruction"
"""Stands for the task's own prompt among others."""


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """One agent of the matrix with the models it is to run; no model means the agent's own default."""

    name: str
    models: tuple[str | None, ...] = (None,)


@dataclass(frozen=True, slots=True)
class Override:
    """Settings for the tasks whose path or name match a pattern."""

    pattern: str
    threshold: float | None = None
    trials: int | None = None
    timeout: float | None = None

    def matches(self, path: str, name: str) -> bool:
        """Tell whether a task, by its path below the root or its name, is meant."""
        return fnmatch(path, self.pattern) or fnmatch(name, self.pattern)


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked settings of a run."""

    agents: tuple[AgentChoice, ...]
    effort: str | None
    scenes: tuple[Path, ...]
    job_file: Path | None
    prompts: tuple[str | None, ...] | None
    sandbox: str
    sandbox_user: str | None
    sandbox_setup_timeout: float
    threshold: float
    trials: int
    concurrency: int | None
    jobs_dir: Path
    job_name: str | None
    json: Path | None
    agent_env: Mapping[str, str]
    verifier_env: Mapping[str, str]
    agent_timeout: float | None
    agent_idle_timeout: float | None
    missing_credentials: MissingCredentials
    timeout_multiplier: float
    sources: tuple[SourceSpec, ...]
    shard: tuple[int, int] | None
    selftest: bool
    dry_run: bool
    report_only: bool
    strict: bool
    force_build: bool
    base_image_override: str | None
    context_root: Path | None
    docker_network: str | None
    keep_sandbox: KeepSandbox
    overrides: tuple[Override, ...] = ()
    given: frozenset[str] = frozenset()
    """Names of the options that somebody set, on the command line or in a file of settings."""

    def override_for(self, path: str, name: str) -> Override:
        """Return what the overrides say of a task; of several that match, the first to speak of a key counts."""
        rows = [row for row in self.overrides if row.matches(path, name)]
        return Override(
            pattern="",
            threshold=_first(row.threshold for row in rows),
            trials=_first(row.trials for row in rows),
            timeout=_first(row.timeout for row in rows),
        )


def _first(values: Iterable[N | None]) -> N | None:
    return next((value for value in values if value is not None), None)


def default_concurrency() -> int:
    """Return how many rollouts fit this machine when nobody says: they wait more than they compute."""
    return min(_CONCURRENCY_LIMIT, 4 * len(os.sched_getaffinity(0)))


T = TypeVar("T")
W = TypeVar("W", bound=str)
_LONGEST_NAME = 200
"""Bytes of a job's name: file systems take 255, and a number may follow it."""


def read_settings(config: pytest.Config) -> Settings:
    """Return the settings; anything wrong with them is one UsageError that names the option."""
    return _Reader(config, _read_table(config)).settings()


class _Reader:
    def __init__(self, config: pytest.Config, table: dict[str, object]) -> None:
        self._config = config
        self._table = table
        self._options = {option.name: option for option in OPTIONS}
        known = {option.name.removeprefix("bf_") for option in OPTIONS if option.ini} | {
            "agents",
            "overrides",
        }
        for key in table:
            if key not in known:
                raise UsageError(f"[tool.benchflow] {key} is not known", advice=did_you_mean(key, known))

    def settings(self) -> Settings:
        selftest = self._flag("bf_selftest")
        if selftest and self._config.getoption("bf_agent") is not None:
            raise UsageError("--bf-selftest runs nop and oracle", advice="take --bf-agent away")
        return Settings(
            agents=(AgentChoice("nop"), AgentChoice("oracle")) if selftest else self._agents(),
            effort=self._text("bf_effort"),
            scenes=() if selftest else self._scenes(),
            job_file=self._job_file(),
            prompts=self._prompts(),
            sandbox=self._text("bf_sandbox") or "auto",
            sandbox_user=self._sandbox_user(),
            sandbox_setup_timeout=_or(self._number("bf_sandbox_setup_timeout"), USER_SETUP_TIMEOUT_SEC),
            threshold=_or(self._number("bf_threshold", minimum=None), 1.0),
            trials=_or(self._trials(), 1),
            concurrency=self._concurrency(),
            jobs_dir=self._path("bf_jobs_dir") or self._config.rootpath / "jobs",
            job_name=self._job_name(),
            json=self._json(),
            agent_env=self._env("bf_agent_env"),
            verifier_env=self._env("bf_verifier_env"),
            agent_timeout=self._number("bf_agent_timeout"),
            agent_idle_timeout=self._idle_timeout(),
            missing_credentials=self._word("bf_missing_credentials", MISSING_CREDENTIALS),
            timeout_multiplier=_or(self._number("bf_timeout_multiplier"), 1.0),
            sources=self._sources(),
            shard=self._shard(),
            selftest=selftest,
            dry_run=self._flag("bf_dry_run"),
            report_only=self._flag("bf_report_only"),
            strict=self._flag("bf_strict"),
            force_build=self._flag("bf_force_build"),
            base_image_override=self._text("bf_base_image_override"),
            context_root=self._context_root(),
            docker_network=self._text("bf_docker_network"),
            keep_sandbox=self._word("bf_keep_sandbox", KEEP_SANDBOX),
            overrides=tuple(self._overrides()),
            given=frozenset(name for name in self._options if self._raw(name)[0] is not None),
        )

    def _raw(self, name: str) -> tuple[object, str]:
        """Return the value that counts and how to name its source in a message."""
        option = self._options[name]
        cli = self._config.getoption(name)
        if cli is not None:
            return cli, option.flag
        ini = ini_value(self._config, option)
        if ini is not None:
            return ini, name
        key = name.removeprefix("bf_")
        return self._table.get(key), f"[tool.benchflow] {key}"

    def _text(self, name: str) -> str | None:
        value, source = self._raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float) or str(value).strip() == "":
            raise UsageError(f"{source} is {value!r}", advice="give a text")
        return str(value)

    def _flag(self, name: str) -> bool:
        value, source = self._raw(name)
        if value is not None and not isinstance(value, bool):
            raise UsageError(f"{source} is {value!r}", advice="give true or false")
        return bool(value)

    def _number(self, name: str, *, minimum: float | None = 0.0) -> float | None:
        value, source = self._raw(name)
        return None if value is None else _number(value, source, minimum)

    def _trials(self) -> int | None:
        value, source = self._raw("bf_trials")
        return None if value is None else _trials(value, source)

    def _list(self, name: str) -> list[str]:
        value, source = self._raw(name)
        if value is None:
            return []
        if isinstance(value, str):
            return [value]
        if not _are_texts(value):
            raise UsageError(f"{source} is {value!r}", advice="give a text or a list of texts")
        return value

    def _path(self, name: str, base: Path | None = None) -> Path | None:
        text = self._text(name)
        if text is None:
            return None
        return (base or self._start(name)) / os.path.expanduser(text)

    def _start(self, name: str) -> Path:
        """Return what relative paths of an option are relative to."""
        from_cli = self._config.getoption(name) is not None
        return self._config.invocation_params.dir if from_cli else self._config.rootpath

    def _env(self, name: str) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for text in self._list(name):
            key, sep, value = text.partition("=")
            if not sep or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                shown = key if sep else text
                raise UsageError(f"{self._raw(name)[1]} {shown!r} is no assignment", advice="write NAME=value")
            pairs[key] = value
        return pairs

    def _concurrency(self) -> int | None:
        text = self._text("bf_concurrency")
        return None if text is None or text == "auto" else _count(text, self._raw("bf_concurrency")[1])

    def _job_name(self) -> str | None:
        text = self._text("bf_job_name")
        return None if text is None else job_name(text, "--bf-job-name")

    def _shard(self) -> tuple[int, int] | None:
        text = self._text("bf_shard")
        if text is None:
            return None
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--bf-shard {text!r} is no slice", advice="write I/N with 1 ≤ I ≤ N, for example 1/4")
        return int(match[1]), int(match[2])

    def _json(self) -> Path | None:
        path = self._path("bf_json", base=self._config.invocation_params.dir)
        if path is not None:
            folder = next(parent for parent in path.parents if parent.exists())
            if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
                source = self._raw("bf_json")[1]
                raise UsageError(f"{source}: {path} cannot be written", advice="name a file in a directory of yours")
        return path

    def _context_root(self) -> Path | None:
        path = self._path("bf_context_root")
        if path is not None and not path.is_dir():
            raise UsageError(f"{self._raw('bf_context_root')[1]}: {path} is no directory")
        return path

    def _word(self, name: str, words: tuple[W, ...]) -> W:
        """Return the word that was given, or the first."""
        text = self._text(name)
        for word in words:
            if text in (None, word):
                return word
        listed = f"{', '.join(words[:-1])} or {words[-1]}"
        raise UsageError(f"{self._raw(name)[1]} is {text!r}", advice=f"give {listed}")

    def _scenes(self) -> tuple[Path, ...]:
        words = self._list("bf_scene")
        if not words:
            return ()
        from pytest_benchflow.plugin.job_files import find_scene_files

        return tuple(find_scene_files(words, self._config.rootpath, self._start("bf_scene")))

    def _sources(self) -> tuple[SourceSpec, ...]:
        texts = self._list("bf_source")
        if not texts:
            return ()
        from pytest_benchflow.tasks import parse_source

        return tuple(parse_source(text, self._start("bf_source")) for text in texts)

    def _job_file(self) -> Path | None:
        path = self._path("bf_config")
        if path is not None and not path.is_file():
            raise UsageError(f"--bf-config: {path} is no file")
        return path

    def _prompts(self) -> tuple[str | None, ...] | None:
        texts = self._list("bf_prompt")
        return tuple(None if text == INSTRUCTION else text for text in texts) or None

    def _sandbox_user(self) -> str | None:
        text = self._text("bf_sandbox_user")
        if text is None:
            return "agent"
        if text in ("none", "root"):
            return None
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", text):
            source = self._raw("bf_sandbox_user")[1]
            raise UsageError(f"{source} is {text!r}", advice="use small letters, digits and dashes, or none for root")
        return text

    def _idle_timeout(self) -> float | None:
        text = self._text("bf_agent_idle_timeout")
        if text is None:
            return IDLE_TIMEOUT_SEC
        return None if text in ("none", "0") else _number(text, self._raw("bf_agent_idle_timeout")[1], 0.0)

    def _agents(self) -> tuple[AgentChoice, ...]:
        names = [name for text in self._list("bf_agent") for name in _agent_names(text)]
        if not names and self._list("bf_agent"):
            raise UsageError("--bf-agent names no agent", advice="give at least one, for example oracle")
        nested = {} if names else self._nested_agents()
        chosen = list(dict.fromkeys(names or nested or ["oracle"]))
        return tuple(AgentChoice(name, nested.get(name) or self._models_for(name, chosen)) for name in chosen)

    def _models_for(self, agent: str, agents: Sequence[str]) -> tuple[str | None, ...]:
        models: list[str | None] = []
        for text in self._list("bf_model"):
            owner, sep, model = text.partition("=")
            if not sep or owner not in agents:
                models.append(text)
            elif owner == agent:
                models.append(model)
        return tuple(dict.fromkeys(models)) or (None,)

    def _nested_agents(self) -> dict[str, tuple[str | None, ...]]:
        agents: dict[str, tuple[str | None, ...]] = {}
        for row in _rows(self._table, "agents", {"name", "models"}):
            name, models = row.get("name"), row.get("models", [])
            if not isinstance(name, str) or not _are_texts(models):
                raise UsageError("[[tool.benchflow.agents]] needs name = TEXT and models = [TEXT, …]")
            agents[name] = tuple(models)
        return agents

    def _overrides(self) -> list[Override]:
        found = []
        for row in _rows(self._table, "overrides", {"tasks", "threshold", "trials", "timeout"}):
            where = "[[tool.benchflow.overrides]]"
            patterns = row.get("tasks")
            if isinstance(patterns, str):
                patterns = [patterns]
            if not isinstance(patterns, list) or not patterns:
                raise UsageError(f"{where} needs tasks = PATTERN")
            threshold, trials, timeout = row.get("threshold"), row.get("trials"), row.get("timeout")
            found += [
                Override(
                    str(pattern),
                    None if threshold is None else _number(threshold, f"{where} threshold", None),
                    None if trials is None else _trials(trials, f"{where} trials"),
                    None if timeout is None else _number(timeout, f"{where} timeout", 0.0),
                )
                for pattern in patterns
            ]
        return found


def job_name(text: str, source: str) -> str:
    """Return the name of a job, which is that of its directory, or refuse it."""
    if len(os.fsencode(text)) > _LONGEST_NAME:
        raise UsageError(f"{source} has {len(text)} characters", advice=f"use at most {_LONGEST_NAME}")
    if not re.fullmatch(r"[\w.+=-]+", text.lstrip(".") or "/"):
        raise UsageError(f"{source} {text!r} is no plain directory name", advice="use letters, digits, . _ -")
    return text


def _agent_names(text: str) -> list[str]:
    """Return the agents that one value names; a raw command may hold commas of its own."""
    parts = [text] if text.lstrip().startswith("cmd:") else text.split(",")
    return [part.strip() for part in parts if part.strip()]


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(part, str) and part for part in value)


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _number(value: object, source: str, minimum: float | None) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (minimum is not None and number <= minimum):
        bound = "" if minimum is None else f" above {minimum:g}"
        raise UsageError(f"{source} is {value!r}", advice=f"give a number{bound}")
    return number


def _count(value: object, source: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{source} is {value!r}", advice="give a whole number from 1 up")
    return int(text)


def _trials(value: object, source: str) -> int:
    trials = _count(value, source)
    if trials > MAX_TRIALS:
        raise UsageError(f"{source} is {value!r}", advice=f"give at most {MAX_TRIALS}")
    return trials


def _rows(table: Mapping[str, object], key: str, known: set[str]) -> list[dict[str, object]]:
    rows = table.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"[tool.benchflow] {key} is no array of tables", advice=f"write [[tool.benchflow.{key}]]")
    for row in rows:
        for name in row:
            if name not in known:
                raise UsageError(f"[[tool.benchflow.{key}]] {name} is not known", advice=did_you_mean(name, known))
    return rows


def _read_table(config: pytest.Config) -> dict[str, object]:
    if not has_table(config):
        return {}
    import tomli

    path = pyproject(config)
    try:
        table: object = tomli.loads(path.read_text("utf-8")).get("tool", {}).get("benchflow", {})
    except (ValueError, AttributeError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.benchflow is no table", advice="write [tool.benchflow]")
    return table
