"""The verifier of a judged task: copies the submission to this machine, has it judged, keeps what the judge said."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import Problem, TaskError
from pytest_benchflow.core.errors import (
    BenchflowError,
    JudgeEnvironmentError,
    JudgeScoringError,
    RewardError,
    SandboxError,
    VerifierError,
)
from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.core.types import Event
from pytest_benchflow.providers import Asker, ModelEndpoint, Prices, Sources, find_endpoint, require_sdk
from pytest_benchflow.verify.criteria import JudgeRecord
from pytest_benchflow.verify.judge import Judge, Judgement
from pytest_benchflow.verify.judge_prompt import Background
from pytest_benchflow.verify.reward_details import (
    EVALUATION_DETAILS,
    REWARD_DETAILS,
    evaluation_details,
    judge_details,
)
from pytest_benchflow.verify.rewards import REWARD_JSON
from pytest_benchflow.verify.rubric_file import load_rubric
from pytest_benchflow.verify.rubric_models import DEFAULT_MODEL, JudgeRubric
from pytest_benchflow.verify.submission import Work
from pytest_benchflow.verify.verifier import Verification

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Service
    from pytest_benchflow.tasks import TaskStep

CALLS = "judge-calls.jsonl"
_COPY_TIMEOUT_SEC = 300.0
_MAX_REFERENCE_CHARS = 200_000
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class JudgeSetup:
    """Everything a step's judge needs that is known before anything starts."""

    rubric: JudgeRubric
    endpoint: ModelEndpoint
    background: Background
    input_dir: str | None
    """Where the submission is, None for the workspace."""
    judges_files: bool = True

    @property
    def note(self) -> str | None:
        """How the rubric was read, where that is not plain from its text."""
        if self.rubric.dialect == "benchflow" and not self.rubric.mapped:
            return None
        mapped = f": {', '.join(self.rubric.mapped)}" if self.rubric.mapped else ""
        return f"{Path(self.rubric.file or 'the rubric').name} is read in the dialect {self.rubric.dialect}{mapped}"


def judge_setup(step: TaskStep, variables: Mapping[str, str], *, model: str | None = None) -> JudgeSetup:
    """Return how a step is judged; a rubric with mistakes, a missing SDK or key are errors before anything starts."""
    verifier, table = step.verifier, step.verifier.judge
    if verifier.rubric is None:
        raise JudgeEnvironmentError("the judge has no rubric", advice="write tests/rubric.toml")
    rubric = load_rubric(verifier.rubric)
    named = table.model if table is not None and "model" in table.model_fields_set else None
    endpoint = judge_endpoint(model or named or rubric.model or DEFAULT_MODEL, variables)
    background = Background(
        task=step.instruction,
        context=table.context if table is not None else "",
    )
    background = rubric_background(rubric, background, step.tests_dirs)
    kind = "deliverables" if table is None else table.input_type
    if kind != "deliverables":
        rubric = replace(rubric, final_message=True, trajectory=rubric.trajectory or kind == "trajectory")
    chosen = table.input_dir if table is not None and "input_dir" in table.model_fields_set else None
    return JudgeSetup(rubric, endpoint, background, chosen, kind == "deliverables")


def judge_endpoint(model: str, variables: Mapping[str, str], *, option: str = "--bf-verifier-env") -> ModelEndpoint:
    """Return where a judge's model is asked; a missing package, key or provider is an error that names it."""
    try:
        endpoint = find_endpoint(model, Sources.here(variables), name="judge", option=option)
        require_sdk(endpoint)
    except JudgeEnvironmentError:
        raise
    except BenchflowError as error:
        raise JudgeEnvironmentError(error.message, advice=error.advice) from None
    return endpoint


def rubric_background(
    rubric: JudgeRubric, background: Background | None = None, folders: Sequence[Path] = ()
) -> Background:
    """Return the background with the files that the rubric names: beside it, or in one of the folders."""
    return replace(
        background or Background(),
        reference=_beside(rubric.reference, folders, "reference", rubric),
        instructions=_beside(rubric.instructions, folders, "instructions", rubric).replace(
            "{criteria}", "the criteria"
        ),
    )


def _beside(name: str | None, folders: Sequence[Path], key: str, rubric: JudgeRubric) -> str:
    """Return the text of a file that the rubric names; it may say where that would be in the sandbox."""
    if name is None:
        return ""
    assert rubric.file is not None
    inside = name.removeprefix("/tests/").removeprefix("/verifier/")
    places = [Path(rubric.file).parent / inside, *(directory / inside for directory in folders)]
    path = next((place for place in places if not inside.startswith("/") and place.is_file()), None)
    if path is None:
        fix = f"put it beside {Path(rubric.file).name}"
        raise TaskError([Problem(rubric.file, None, f"[judge] {key}", f"is {name}, which is missing", fix)])
    text = path.read_text("utf-8", "replace")
    if len(text) > _MAX_REFERENCE_CHARS:
        fix = f"keep it below {_MAX_REFERENCE_CHARS} characters"
        raise TaskError([Problem(rubric.file, None, f"[judge] {key}", f"is {name}, which is too long", fix)])
    return text


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the agent said and did, as the harness recorded it."""

    final_message: str | None = None
    events: Callable[[], Sequence[Event]] = tuple


@dataclass(frozen=True, slots=True)
class JudgeVerifier:
    """Has the work of one step judged; stands where `Verifier` does for tasks with a test script."""

    sandbox: Service
    step: TaskStep
    setup: JudgeSetup
    evidence: Evidence
    timeout_sec: float
    limit: AbstractAsyncContextManager[object] | None
    on_record: Callable[[JudgeRecord], None]
    """Is told what the judge used, also when it gave no verdict."""
    prices: Prices | None = None
    """Those that the user names."""

    async def run(self, into: Path) -> Verification:
        """Copy the submission, have it judged and return the reward."""
        into.mkdir(parents=True, exist_ok=True)
        copy = into / "submission"
        try:
            work, rubric = await self._copy(copy)
            return await self._judge(work, rubric, into)
        finally:
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)

    async def clear(self) -> None:
        """Take nothing away: the judge leaves nothing in the sandbox."""

    async def _judge(self, work: Work, rubric: JudgeRubric, into: Path) -> Verification:
        async with Asker(self.setup.endpoint) as asker:
            judge = Judge(rubric, asker, background=self.setup.background, limit=self.limit, prices=self.prices)
            try:
                async with asyncio.timeout(self.timeout_sec):
                    judgement = await judge.score(work)
            except TimeoutError:
                raise JudgeScoringError(
                    f"the judge did not end within {self.timeout_sec:g} s",
                    advice="raise [verifier] timeout_sec or use --bf-timeout-multiplier",
                    retryable=True,
                ) from None
            finally:
                self.on_record(judge.record)
                _write(into / CALLS, "".join(json.dumps(call, ensure_ascii=False) + "\n" for call in judge.calls))
        reward = self._in_range(judgement.reward)
        _keep(into, reward, judgement, judge.record)
        return Verification({"reward": reward}, None, judgement.criteria)

    def _in_range(self, reward: float) -> float:
        """Return the reward if it is one; weights that make more of it than there is are a fault of the rubric."""
        low, high = self.step.verifier.reward_range or (0.0, 1.0)
        if not low - 1e-9 <= reward <= high + 1e-9:
            weights = ", ".join(f"{each.name} {each.weight:g}" for each in self.setup.rubric.criteria)
            raise RewardError(
                f"the judge's scores add up to {reward:g}, outside [{low:g}, {high:g}] (weights: {weights})",
                advice="use weighted_mean, other weights, or a wider [verifier] reward_range",
            )
        return min(max(reward, low), high)

    async def _copy(self, copy: Path) -> tuple[Work, JudgeRubric]:
        """Return a copy of what may be judged, and the rubric with its patterns as paths in that copy."""
        notes: list[str] = []
        rubric = self.setup.rubric
        directory: Path | None = None
        if self.setup.judges_files:
            directory, layout = copy, _Layout(self._input_dir, _views(rubric))
            copy.mkdir(parents=True)
            try:
                async with asyncio.timeout(_COPY_TIMEOUT_SEC):
                    for source, target in layout.sources().items():
                        note = await self._fetch(source, copy / target)
                        notes += [note] if note else []
            except TimeoutError:
                raise VerifierError(f"the submission could not be copied within {_COPY_TIMEOUT_SEC:g} s") from None
            rubric = replace(
                rubric,
                files=layout.renamed(rubric.files),
                criteria=tuple(replace(each, files=layout.renamed(each.files)) for each in rubric.criteria),
            )
        events = await asyncio.to_thread(self.evidence.events) if rubric.trajectory else ()
        return Work(directory, self.evidence.final_message, events, tuple(notes)), rubric

    async def _fetch(self, source: str, target: Path) -> str | None:
        """Copy a directory or a file, or return why there is no copy; a sandbox that is lost is an error."""
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            try:
                await self.sandbox.download_dir(source, target)
            except FileNotFoundError:
                if target.is_dir() and target.name != "submission":
                    target.rmdir()
                await self.sandbox.download_file(source, target)
        except FileNotFoundError:
            return f"{source} does not exist"
        except SandboxError as error:
            if error.retryable:
                raise
            return f"{source} could not be copied: {error.message}"
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            return f"{source} could not be copied: {error.strerror or error}"
        return None

    @property
    def _input_dir(self) -> str:
        workdir = getattr(self.sandbox, "workdir", "/app")
        return self.setup.input_dir or ("/app" if workdir == "/" else workdir)


def _views(rubric: JudgeRubric) -> set[tuple[str, ...]]:
    """Return the patterns of every view that the judge has; an empty one is a view of everything."""
    return {each.files or rubric.files for each in rubric.criteria} | (
        {rubric.files} if rubric.guard != "off" else set()
    )


class _Layout:
    """Where in the copy things are: the submission's directory at the top, unless files beside it are judged too."""

    def __init__(self, input_dir: str, views: Iterable[tuple[str, ...]]) -> None:
        self._root = PurePosixPath(os.path.normpath(input_dir))
        self._views = sorted(views)
        self._patterns = [pattern for view in self._views for pattern in view]
        self._is_mirror = any(self._inside(pattern) is None for pattern in self._patterns)

    def sources(self) -> dict[str, str]:
        """Return what is copied from where to where: the whole directory, unless every pattern is a plain path."""
        plain = all(self._views) and not any(_WILD & {*pattern} for pattern in self._patterns)
        sources: dict[str, str] = {}
        if not plain:
            sources[str(self._root)] = self._target(self._root)
        for pattern in self._patterns:
            inside = self._inside(pattern)
            if inside is None:
                path = _without_wild(PurePosixPath(os.path.normpath(pattern)))
                sources[str(path)] = self._target(path)
            elif plain:
                sources[str(self._root / inside)] = self._target(self._root / inside)
        return sources

    def renamed(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """Return patterns as paths in the copy."""
        names = []
        for pattern in patterns:
            inside = self._inside(pattern)
            path = PurePosixPath(pattern) if inside is None else self._root / inside
            names.append(self._target(path) or ".")
        return tuple(names)

    def _target(self, path: PurePosixPath) -> str:
        return str(path.relative_to("/" if self._is_mirror else self._root))

    def _inside(self, pattern: str) -> str | None:
        """Return a pattern relative to the submission's directory, None if it leads elsewhere."""
        path = PurePosixPath(os.path.normpath(self._root / pattern))
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else None


def _without_wild(path: PurePosixPath) -> PurePosixPath:
    """Return the directory below which everything is that fits a pattern, or the pattern if it has no star."""
    fixed: list[str] = []
    for part in path.parts:
        if _WILD & {*part}:
            break
        fixed.append(part)
    return PurePosixPath(*fixed)


def _keep(into: Path, reward: float, judgement: Judgement, record: JudgeRecord) -> None:
    """Write the reward and what it is made of, in the shapes that other tools read."""
    _write(into / REWARD_JSON, json.dumps({"reward": reward}) + "\n")
    details = judge_details(reward, judgement.criteria, record)
    _write(into / REWARD_DETAILS, json.dumps(details, indent=2, ensure_ascii=False) + "\n")
    evaluation = evaluation_details(reward, judgement.criteria)
    _write(into / EVALUATION_DETAILS, json.dumps(evaluation, indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> None:
    write_atomically(path, text, errors="backslashreplace")
