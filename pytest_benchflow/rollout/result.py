"""The result of a rollout: users, `result.json` and reports have the same model; and its trajectory on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from pytest_benchflow.agents import FREE_AGENTS, AgentOutcome
from pytest_benchflow.core.errors import FAILURES, BenchflowError, Category
from pytest_benchflow.core.text import printable, with_cause
from pytest_benchflow.core.types import Event
from pytest_benchflow.verify import CriterionScore, Finding, JudgeRecord, RewardEvent

TRAJECTORY = "trajectory/acp_trajectory.jsonl"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorInfo(_Record):
    """Why the harness could not give a reward."""

    category: Category
    phase: str
    message: str
    retryable: bool = Field(default=False, description="whether another attempt may cure it")
    advice: str | None = Field(default=None, description="what to do about it")

    @classmethod
    def of(cls, error: BenchflowError, phase: str) -> ErrorInfo:
        """Describe an error raised in `phase`."""
        text = str(error)
        message = printable(with_cause(text) if error.category is Category.BUILD else text)
        return cls(
            category=error.category,
            phase=error.phase or phase,
            message=message,
            retryable=error.retryable,
            advice=printable(error.advice or FAILURES[error.category].advice),
        )


class StepResult(_Record):
    """One step of a multi-step task."""

    name: str
    rewards: dict[str, float] | None = None
    agent_outcome: AgentOutcome | None = None


class CheckSummary(_Record):
    """Which named checks of the verifier passed and failed."""

    passed: int
    failed: int
    failing: list[str]


class Tokens(_Record):
    """What the agent's model calls used; absent numbers are unknown, not zero."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None


class Attempt(_Record):
    """An earlier attempt at a rollout: it was replaced by another, and may have cost something all the same."""

    rollout_name: str
    status: Literal["error", "cancelled", "killed", "scored"]
    """Killed is one that could not even say how it ended; scored is one that pytest has run again."""
    error: ErrorInfo | None = None
    n_tool_calls: int = 0
    tokens: Tokens = Tokens()
    cost_usd: float | None = None
    cost_is_partial: bool = False
    seconds: float | None = None


class FrameEntry(_Record):
    """A file outside the task's workspace that is not what it was before the agent."""

    path: str
    change: Literal["added", "changed", "deleted"]


class RolloutResult(_Record):
    """The outcome of one rollout."""

    task_name: str
    task_path: str
    task_digest: str | None = None
    rollout_name: str
    key: str = Field(default="", description="what the rollout is called in its job: a node id, for example")
    difficulty: str | None = None
    category: str | None = None
    tags: list[str] = Field(default=[], description="tags and keywords of the task")
    agent: str
    agent_name: str | None = Field(default=None, description="what the agent calls itself")
    agent_version: str | None = None
    model: str | None = None
    models: list[str] = Field(default=[], description="every model that answered, as far as the agent tells")
    scene: str | None = None
    trial: int = 1
    sandbox: str
    threshold: float
    rewards: dict[str, float] | None = None
    reward: float | None = None
    error: ErrorInfo | None = None
    skipped: str | None = Field(default=None, description="why the rollout was skipped")
    held_back: Literal["decided", "budget"] | None = Field(
        default=None, description="why the run did not start it: its gates were decided, or the money was spent"
    )
    cancelled: bool = Field(default=False, description="whether the run was stopped before the rollout ended")
    agent_outcome: AgentOutcome | None = None
    agent_detail: str | None = None
    last_message: str | None = Field(default=None, description="the last message of the agent, shortened")
    n_tool_calls: int = 0
    n_prompts: int = 0
    tokens: Tokens = Tokens()
    cost_usd: float | None = None
    cost_is_partial: bool = Field(default=False, description="whether the cost of some prompts is unknown")
    cost_is_priced: bool = Field(default=False, description="whether it is tokens times prices, not told by the agent")
    attempts: list[Attempt] = Field(default=[], description="earlier attempts at it, which do not count")
    checks: CheckSummary | None = None
    criteria: list[CriterionScore] = Field(
        default=[], description="what a judge or the verifier says of each criterion"
    )
    judge: JudgeRecord | None = Field(default=None, description="the judge, and what its calls used")
    reward_events: list[RewardEvent] = Field(
        default=[],
        description="what makes the reward: each check, each criterion, the reward itself; also in rewards.jsonl",
    )
    verifier_tail: str | None = Field(default=None, description="the last lines the verifier printed")
    steps: list[StepResult] = []
    integrity: list[Finding] = Field(default=[], description="the defences that the rollout tripped, with evidence")
    integrity_policy: Literal["report", "fail"] = Field(
        default="report", description="whether a rollout that tripped a defence fails whatever its reward"
    )
    frame: list[FrameEntry] | None = Field(
        default=None, description="what the agent changed outside the workspace, if it was asked for"
    )
    hardening_off: list[str] = Field(default=[], description="the defences that the task opted out of")
    notes: list[str] = Field(default=[], description="facts about the sandbox and the rollout that explain the result")
    timing: dict[str, float] = Field(default={}, description="seconds by phase")
    started_at: str
    finished_at: str
    rollout_dir: Path | None = None

    @property
    def status(self) -> Literal["passed", "failed", "error", "skipped", "cancelled"]:
        """The outcome in one word; this is the only place that decides it."""
        if self.cancelled:
            return "cancelled"
        if self.skipped is not None:
            return "skipped"
        if self.error is not None or self.reward is None:
            return "error"
        return "passed" if self.reward >= self.threshold and not self.fails_integrity else "failed"

    @property
    def fails_integrity(self) -> bool:
        """Whether it tripped a defence, and that is enough to fail."""
        return self.integrity_policy == "fail" and bool(self.integrity)

    @property
    def passed(self) -> bool:
        """Whether the reward reaches the threshold."""
        return self.status == "passed"

    @property
    def trajectory(self) -> list[Event]:
        """The events of the rollout, read from disk."""
        return [] if self.rollout_dir is None else read_trajectory(self.rollout_dir)

    @property
    def trial_name(self) -> str:
        """What `rollout_name` was called in older releases."""
        return self.rollout_name

    @property
    def success(self) -> bool:
        """Whether the rollout was scored, whatever the score."""
        return self.error is None and self.skipped is None and not self.cancelled

    @property
    def total_tokens(self) -> int | None:
        """Tokens in and out together, None if unknown."""
        return _added([self.tokens.input, self.tokens.output])

    @property
    def used_tokens(self) -> list[Tokens]:
        """What this attempt and each before it used."""
        return [self.tokens, *(attempt.tokens for attempt in self.attempts)]

    @property
    def spent_tokens(self) -> int | None:
        """Tokens in and out of this attempt and all before it."""
        return _added([n for used in self.used_tokens for n in (used.input, used.output)])

    @property
    def spent_usd(self) -> float | None:
        """What this attempt and all before it cost, None if no agent told."""
        return _added([self.attempt_usd, *(attempt.cost_usd for attempt in self.attempts)])

    @property
    def attempt_usd(self) -> float | None:
        """What agent and judge cost in this attempt, None if that is not known of either."""
        return _added([self.cost_usd, None if self.judge is None else self.judge.cost_usd])

    @property
    def spent_usd_is_partial(self) -> bool:
        """Whether that cost leaves something out."""
        return self.lacks_cost or any(attempt.cost_is_partial for attempt in self.attempts)

    @property
    def lacks_cost(self) -> bool:
        """Whether prompts or judges of this attempt may have cost something that nobody told."""
        is_unknown = self.cost_usd is None and self.n_prompts > 0 and self.agent not in FREE_AGENTS
        return self.cost_is_partial or is_unknown or (self.judge is not None and self.judge.lacks_cost)

    def as_attempt(self, status: Literal["error", "cancelled", "scored"] = "error") -> Attempt:
        """Return what is kept of this result where another attempt follows."""
        return Attempt(
            rollout_name=self.rollout_name,
            status=status,
            error=self.error,
            n_tool_calls=self.n_tool_calls,
            tokens=self.tokens,
            cost_usd=self.attempt_usd,
            cost_is_partial=self.lacks_cost,
            seconds=self.timing.get("total"),
        )

    @property
    def verifier_error(self) -> str | None:
        """The message of an error that the verifier caused."""
        verifying = self.error is not None and self.error.category in (
            Category.VERIFIER,
            Category.REWARD,
            Category.JUDGE,
        )
        return self.error.message if self.error is not None and verifying else None


N = TypeVar("N", int, float)


def _added(numbers: Iterable[N | None]) -> N | None:
    """Return the sum of the numbers that are known, None if none is."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def reaches_minimum(rewards: Mapping[str, float], minimum: float | Mapping[str, float] | None) -> bool:
    """Return whether the rewards of a step are enough to go on; a missing key never is."""
    if minimum is None:
        return True
    minimums = minimum if isinstance(minimum, Mapping) else {"reward": minimum}
    return all(rewards.get(key, -math.inf) >= least for key, least in minimums.items())


def combine_steps(steps: Sequence[Mapping[str, float]], strategy: Literal["mean", "final"] | None) -> dict[str, float]:
    """Return the rewards of the whole task: per key the mean over the steps that ran, or those of the last one."""
    if strategy == "final":
        return dict(steps[-1])
    keys = dict.fromkeys(key for rewards in steps for key in rewards)
    return {key: math.fsum(rewards.get(key, 0.0) for rewards in steps) / len(steps) for key in keys}


def read_trajectory(rollout_dir: Path, since: int = 0, until: int | None = None) -> list[Event]:
    """Return the events of a rollout from number `since` up to `until`; a line cut short by a kill is left out."""
    events = []
    try:
        with (rollout_dir / TRAJECTORY).open(encoding="utf-8", errors="replace") as file:
            for line in islice(file, since, until):
                with suppress(ValueError):
                    events.append(json.loads(line))
    except FileNotFoundError:
        return []
    return events
