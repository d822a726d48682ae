"""Read rollout files: find the dialect, check everything, and say what the file means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_benchflow.configfile import (
    Problem,
    Table,
    TaskError,
    YamlSource,
    read_text,
    resolve_headers,
    validate_model,
)
from pytest_benchflow.core.errors import BadValue, BenchflowError
from pytest_benchflow.core.settings import PathTo, Setting, Source, Variables
from pytest_benchflow.rollout.files.model import AgentEntry, RoleEntry, RolloutFile, SceneEntry, UserEntry
from pytest_benchflow.rollout.files.older import IDLE_KEYS, SYNONYMS, HarborTable, OlderTable
from pytest_benchflow.rollout.files.schema import FILE_SETTINGS
from pytest_benchflow.rollout.scenes import INSTRUCTION, Turn, check_scenes
from pytest_benchflow.rollout.settings import Prompts, UserName
from pytest_benchflow.tasks import SourceSpec, parse_source

if TYPE_CHECKING:
    from pytest_benchflow.rollout.files.schema import RoleTable, SceneTable, SourceTable, UserTable


KeyPath = tuple[str | int, ...]


class RolloutFileError(BadValue):
    """A file that cannot be used as written; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[RolloutFileError], tuple[tuple[Problem, ...]]]:
        return RolloutFileError, (self.problems,)


@dataclass(frozen=True)
class DictSource:
    """The content of a rollout file that never was in a file."""

    data: dict[str, object]
    file: str = "rollout configuration"

    def line(self, path: KeyPath) -> int | None:
        """There are no lines."""
        return None

    def key(self, path: KeyPath) -> str | None:
        """Write `path` with dots."""
        return ".".join(part for part in path if isinstance(part, str)) or None

    def table(self, name: str) -> str:
        """Write the name of a mapping."""
        return name


def read_file(path: Path) -> RolloutFile:
    """Read a rollout or job file of any dialect."""
    try:
        source = YamlSource(str(path), read_text(str(path)))
    except TaskError as error:
        raise RolloutFileError(error.problems) from None
    return _Reader(source, path, path.absolute().parent).read()


def read_mapping(raw: Mapping[str, object], base: Path) -> RolloutFile:
    """Read the content of a rollout file from plain data, with paths relative to `base`."""
    if not isinstance(raw, Mapping):
        raise BadValue(f"a rollout configuration is a mapping, not {type(raw).__name__}", advice="give keys and values")
    return _Reader(DictSource({str(key): value for key, value in raw.items()}), None, base).read()


@dataclass
class _Reader:
    source: YamlSource | DictSource
    path: Path | None
    base: Path
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def read(self) -> RolloutFile:
        """Return what the file means, or raise with everything that is wrong."""
        table, problems = self._check()
        if table is None or problems:
            raise RolloutFileError(problems)
        values = self._settings(table)
        if isinstance(table, HarborTable):
            fields = self._harbor(table)
            values |= {name: value for name, value in self._harbor_settings(table).items() if value is not None}
        else:
            fields = self._rollout(table)
        for key, reason in IDLE_KEYS.items():
            if getattr(table, key, None):
                self._warn((key,), "has no effect", reason)
        fields |= {"include": self._value(table, "include") or (), "exclude": self._value(table, "exclude") or ()}
        file = RolloutFile(
            path=self.path, values=values, usage_tracking=table.usage_tracking, warnings=tuple(self.warnings), **fields
        )
        self._refuse_contradictions(file)
        if self.problems:
            raise RolloutFileError(self.problems)
        return file

    def _check(self) -> tuple[OlderTable | HarborTable | None, list[Problem]]:
        if self.source.data.keys().isdisjoint({"agents", "datasets"}):
            return validate_model(self.source, OlderTable)
        return validate_model(self.source, HarborTable)

    def _settings(self, table: OlderTable | HarborTable) -> dict[str, Any]:
        """Return what the file says of declared settings, by their names."""
        values: dict[str, Any] = {}
        for declared in FILE_SETTINGS:
            older = () if isinstance(table, HarborTable) else declared.older
            value = self._value(table, str(declared.file), older)
            if value is not None:
                values[declared.name] = self._read(declared, value)
            elif isinstance(declared.kind, UserName) and declared.file in self.source.data:
                values[declared.name] = None  # null is root
        if "skills_dir" in values:
            values.setdefault("skill_mode", "with-skill")
        return values

    def _read(self, declared: Setting, value: Any) -> Any:
        match declared.kind:
            case PathTo():
                return self._at(value)
            case Variables():
                return self._expanded(value, (str(declared.file),))
            case Prompts():
                return tuple(None if text == INSTRUCTION else text for text in value) or None
            case UserName():
                return declared.kind.read(value, Source(str(declared.file)))
            case _:
                return value

    def _rollout(self, table: OlderTable) -> dict[str, Any]:
        retry = table.retry.model_dump(exclude_none=True) if table.retry else None
        if table.max_retries is not None:
            retry = {"max_retries": table.max_retries, **(retry or {})}
        agent = AgentEntry(table.agent, table.model, self._value(table, "reasoning_effort")) if table.agent else None
        return {
            "name": table.name or self._default_name(),
            "agents": (agent,) if agent else (),
            "scenes": self._scenes(table.scenes),
            "user": self._user(table.user),
            "retry": retry,
            "source": self._source(table.source),
            "tasks": self._all_at(self._value(table, "tasks")),
            "task_path": self._at(self._value(table, "task_path")),
            "rollout_name": self._value(table, "rollout_name"),
        }

    def _harbor(self, table: HarborTable) -> dict[str, Any]:
        if table.n_attempts > 1:
            retries = f"is read as {table.n_attempts - 1} retries of attempts that failed"
            self._warn(("n_attempts",), retries, "for repetitions use trials in a rollout file")
        return {
            "name": self._default_name(),
            "agents": tuple(AgentEntry(one.name, one.model_name, one.reasoning_effort) for one in table.agents),
            "retry": {"max_retries": table.n_attempts - 1} if "n_attempts" in table.model_fields_set else None,
            "tasks": self._all_at([dataset.path for dataset in table.datasets]),
        }

    def _harbor_settings(self, table: HarborTable) -> dict[str, Any]:
        env = {**table.environment.env, **(self._value(table, "agent_env") or {})}
        for index, agent in enumerate(table.agents):
            if agent.env and len(table.agents) > 1:
                self._problem(("agents", index, "env"), "is only one agent's", "set it in environment.env for all")
            env |= agent.env
        return {
            "sandbox": table.environment.type,
            "agent_env": self._expanded(env, ("environment", "env")) or None,
            "concurrency": table.orchestrator.n_concurrent_trials,
            "force_build": table.environment.force_build,
        }

    def _scenes(self, tables: Sequence[SceneTable] | None) -> tuple[SceneEntry, ...]:
        if tables is not None and not tables:
            self._problem(("scenes",), "has no scene", "list at least one, or leave the key out")
        scenes = tuple(
            SceneEntry(
                table.name,
                tuple(self._role(role, ("scenes", n, "roles", m)) for m, role in enumerate(table.roles)),
                tuple(Turn(turn.role, turn.prompt) for turn in table.turns),
                self._at(table.skills_dir),
                table.outbox,
            )
            for n, table in enumerate(tables or ())
        )
        anyone = AgentEntry("the run's agent")
        groups = [(("scenes", n), (scene,)) for n, scene in enumerate(scenes)] + [(("scenes",), scenes)]
        for at, group in groups if scenes else ():
            try:
                check_scenes(scene.scene(anyone) for scene in group)
            except BadValue as error:
                if not any(problem.reason == error.message for problem in self.problems):
                    line = self.source.line(at)
                    self.problems.append(Problem(self.source.file, line, None, error.message, error.advice))
        return scenes

    def _role(self, table: RoleTable, at: KeyPath) -> RoleEntry:
        return RoleEntry(
            table.name,
            table.agent,
            table.model,
            table.reasoning_effort,
            self._expanded(table.env, (*at, "env")),
            table.timeout_sec,
            table.idle_timeout_sec,
            self._at(table.skills_dir),
            table.capabilities,
        )

    def _user(self, table: UserTable | None) -> UserEntry | None:
        if table is None:
            return None
        return UserEntry(table.object, self.base, table.max_rounds, table.oracle_access)

    def _source(self, table: SourceTable | None) -> SourceSpec | None:
        if table is None:
            return None
        text = table.repo + (f"@{table.ref}" if table.ref else "") + (f":{table.path}" if table.path else "")
        try:
            return parse_source(text, self.base)
        except BenchflowError as error:
            self._problem(("source",), f"is wrong: {error.message}", error.advice)
            return None

    def _refuse_contradictions(self, file: RolloutFile) -> None:
        loop = file.values.get("loop_strategy")
        if file.scenes and file.values.get("prompts") is not None:
            self._problem(("prompts",), "stands beside scenes", "put the prompts into the turns of a scene")
        if file.user and loop:
            self._problem(("loop_strategy",), "stands beside user", "keep one of them")
        if (file.user or loop) and any(len(scene.roles) != 1 for scene in file.scenes):
            key = "user" if file.user else "loop_strategy"
            self._problem((key,), "needs scenes with one role each", "keep one role, the user takes the other part")
        if "skills_dir" in file.values and file.values["skill_mode"] == "no-skill":
            self._problem(("skill_mode",), "is no-skill but skills_dir is given", "keep one of them")
        if file.source is not None and file.tasks:
            self._problem(("source",), "stands beside tasks", "keep one of them")

    def _value(self, table: Table, key: str, older: Sequence[str] = ()) -> Any:
        """Return the value under today's word or an older one; two that differ are a problem."""
        words = [word for word in (key, *(older or SYNONYMS.get(key, ()))) if getattr(table, word, None) is not None]
        values = [getattr(table, word) for word in words]
        if any(value != values[0] for value in values):
            self._problem((words[1],), f"contradicts {words[0]}, which is the same key", f"keep {key} alone")
        return values[0] if values else None

    def _expanded(self, env: Mapping[str, str], at: KeyPath) -> dict[str, str]:
        line = self.source.line(at)
        place = self.source.file if line is None else f"{self.source.file}:{line}"
        return resolve_headers(env, os.environ, f"{place}: {self.source.key(at)}")

    def _at(self, path: str | None) -> Path | None:
        return None if path is None else self.base / Path(path).expanduser()

    def _all_at(self, paths: Sequence[str] | str | None) -> tuple[Path, ...]:
        listed = [paths] if isinstance(paths, str) else paths or ()
        return tuple(self.base / Path(path).expanduser() for path in listed)

    def _default_name(self) -> str:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.path.stem).strip("-") if self.path else "rollout"

    def _problem(self, at: KeyPath, reason: str, fix: str | None) -> None:
        self.problems.append(Problem(self.source.file, self.source.line(at), self.source.key(at), reason, fix))

    def _warn(self, at: KeyPath, reason: str, fix: str) -> None:
        where = (self.source.file, self.source.line(at), self.source.key(at))
        self.warnings.append(Problem(*where, reason, fix, "warning"))
