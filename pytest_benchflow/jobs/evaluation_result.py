"""What came of an evaluation: every rollout in exactly one bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.jobs.evaluation_config import EvaluationConfig
from pytest_benchflow.jobs.metrics import BenchmarkMetrics
from pytest_benchflow.jobs.statistics import mean
from pytest_benchflow.jobs.stored import bucket
from pytest_benchflow.rollout import RolloutResult, write_json

SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One rollout that did not pass."""

    task_name: str
    rewards: Mapping[str, float] | None = None
    error: str | None = None
    verifier_error: str | None = None
    rollout_name: str | None = None


@dataclass(frozen=True)
class EvaluationResult:
    """The results by task name, and what they add up to."""

    job_name: str
    config: EvaluationConfig
    results: Mapping[str, RolloutResult]
    elapsed_sec: float
    job_dir: Path

    @property
    def total(self) -> int:
        """How many rollouts there are; the buckets add up to it."""
        return len(self.results)

    @property
    def passed(self) -> int:
        """Rewards that reach the threshold."""
        return self._count("passed")

    @property
    def failed(self) -> int:
        """Rewards that do not."""
        return self._count("failed")

    @property
    def errored(self) -> int:
        """No reward, for a reason outside the verifier."""
        return self._count("errored")

    @property
    def verifier_errored(self) -> int:
        """No reward, because the verifier gave none."""
        return self._count("verifier_errored")

    @property
    def skipped(self) -> int:
        """Rollouts that make no sense here."""
        return self._count("skipped")

    @property
    def score(self) -> float:
        """Passed of all."""
        return self.passed / self.total if self.total else 0.0

    @property
    def score_excl_errors(self) -> float:
        """Passed of those that were scored."""
        scored = self.passed + self.failed
        return self.passed / scored if scored else 0.0

    @property
    def mean_reward(self) -> float | None:
        """The mean over what was scored."""
        return mean([result.reward for result in self.results.values() if result.reward is not None])

    @property
    def task_failures(self) -> list[TaskFailure]:
        """Every rollout that ran and did not pass."""
        return [
            TaskFailure(
                name,
                result.rewards,
                None if result.error is None or result.verifier_error else result.error.message,
                result.verifier_error,
                result.rollout_name,
            )
            for name, result in self.results.items()
            if bucket(result) not in ("passed", "skipped")
        ]

    @property
    def metrics(self) -> BenchmarkMetrics:
        """Everything that can be counted."""
        agent, model = self.config.agent, self.config.model or ""
        return BenchmarkMetrics(tuple(self.results.values()), self.job_name, agent, model)

    def write(self) -> None:
        """Write `summary.json` into the job's directory."""
        head = {"job_name": self.job_name, "elapsed_sec": round(self.elapsed_sec, 1)}
        write_json(self.job_dir / SUMMARY, {**head, **self.metrics.summary()})

    def _count(self, name: str) -> int:
        return sum(bucket(result) == name for result in self.results.values())
