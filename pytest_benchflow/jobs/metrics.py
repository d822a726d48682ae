"""Everything that is counted over many results: rates with intervals, costs, times, by configuration and by task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from pytest_benchflow.core.errors import Category
from pytest_benchflow.core.text import distinct_names
from pytest_benchflow.jobs.results import latest_attempts, outcome_class, read_results, unfinished_rollouts
from pytest_benchflow.jobs.statistics import (
    mean,
    mean_interval,
    pass_all_k,
    pass_at_k,
    percentile,
    rate_interval,
    wilson_interval,
)

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.rollout import RolloutResult


_MAX_K = 10
_PERCENTILES = (50, 90, 99)
K = TypeVar("K")
N = TypeVar("N", int, float)
TrialKey = tuple[str, str, str | None, str | None]


class Outcome(Protocol):
    """A result and what the run made of it, which may be another status than its own: quarantined, for example."""

    @property
    def id(self) -> str:
        """What the rollout is called in its run."""

    @property
    def status(self) -> str:
        """What it counts as."""

    @property
    def result(self) -> RolloutResult:
        """The result."""


def trial_key(result: RolloutResult) -> TrialKey:
    """Return what all trials of one rollout have in common: task, agent, model and scene."""
    return result.task_path, result.agent, result.model, result.scene


@dataclass(frozen=True)
class Tally:
    """What is counted over some rollouts, each by its status; rates and means are over those that were scored.

    Every table, report and gate takes its numbers from here.
    """

    results: Sequence[RolloutResult]
    statuses: Sequence[str]

    @classmethod
    def of(cls, results: Sequence[RolloutResult]) -> Tally:
        """Count results as they are."""
        return cls(results, [result.status for result in results])

    def n(self, status: str) -> int:
        """Return how many ended so: passed, failed, error, skipped, quarantined or cancelled."""
        return sum(each == status for each in self.statuses)

    @property
    def scored(self) -> list[RolloutResult]:
        """Those that passed or failed."""
        return self._having("passed", "failed")

    @property
    def pass_rate(self) -> float | None:
        """Passed of those that were scored."""
        return self.n("passed") / len(self.scored) if self.scored else None

    @property
    def pass_rate_interval(self) -> tuple[float, float] | None:
        """The 95% interval of the pass rate, clustered by task where trials repeat."""
        passed = self._by_task("passed")
        return rate_interval([(len(passed.get(task, ())), len(all_)) for task, all_ in self._scored_by_task.items()])

    @property
    def mean_reward(self) -> float | None:
        """The mean reward."""
        return mean([result.reward for result in self.scored if result.reward is not None])

    @property
    def mean_reward_interval(self) -> tuple[float, float] | None:
        """The 95% interval of the mean reward, over tasks."""
        return mean_interval(
            [
                [result.reward for result in members if result.reward is not None]
                for members in self._scored_by_task.values()
            ]
        )

    def pass_at(self, k: int) -> float | None:
        """Return pass@k, averaged over tasks and configurations; None if one of them has fewer than k trials."""
        return self._over_trials(pass_at_k, k)

    def pass_all(self, k: int) -> float | None:
        """Return pass^k, averaged over tasks and configurations; None if one of them has fewer than k trials."""
        return self._over_trials(pass_all_k, k)

    @property
    def trials(self) -> dict[TrialKey, tuple[int, int]]:
        """For each task and configuration how many trials passed, and how many were scored."""
        counts: dict[TrialKey, tuple[int, int]] = {}
        for result, status in zip(self.results, self.statuses, strict=True):
            if status in ("passed", "failed"):
                passed, trials = counts.get(trial_key(result), (0, 0))
                counts[trial_key(result)] = passed + (status == "passed"), trials + 1
        return counts

    @property
    def chances(self) -> tuple[dict[str, float], dict[str, float]]:
        """pass@k and pass^k for every k that all tasks have trials for, up to ten."""
        most = min((trials for _, trials in self.trials.values()), default=0)
        ks = range(1, min(most, _MAX_K) + 1)
        return (
            {str(k): value for k in ks if (value := self.pass_at(k)) is not None},
            {str(k): value for k in ks if (value := self.pass_all(k)) is not None},
        )

    @property
    def errors_by_category(self) -> dict[str, int]:
        """How many errors there are of each category."""
        errors = (result.error for result in self._having("error"))
        return dict(sorted(Counter((error.category if error else Category.INTERNAL).value for error in errors).items()))

    @property
    def n_tool_calls(self) -> int:
        """Tool calls of all rollouts."""
        return sum(result.n_tool_calls for result in self.results)

    @property
    def tokens(self) -> int | None:
        """Tokens in and out of all rollouts and their failed attempts, None if no agent told."""
        return _added([result.spent_tokens for result in self.results])

    @property
    def cost_usd(self) -> float | None:
        """What all rollouts and their failed attempts cost, None if no agent told."""
        return _added([result.spent_usd for result in self.results])

    @property
    def cost_is_partial(self) -> bool:
        """Whether the cost leaves out prompts of which no agent told it."""
        return self.cost_usd is not None and any(result.spent_usd_is_partial for result in self.results)

    @property
    def seconds(self) -> float:
        """The time of all rollouts added up."""
        return math.fsum(map(seconds_of, self.results))

    def _over_trials(self, measure: Callable[[int, int, int], float], k: int) -> float | None:
        counts = self.trials.values()
        if not counts or min(trials for _, trials in counts) < k:
            return None
        return mean([measure(trials, passed, k) for passed, trials in counts])

    @property
    def _scored_by_task(self) -> dict[str, list[RolloutResult]]:
        return self._by_task("passed", "failed")

    def _by_task(self, *statuses: str) -> dict[str, list[RolloutResult]]:
        return _grouped(self._having(*statuses), lambda result: result.task_path)

    def _having(self, *statuses: str) -> list[RolloutResult]:
        return [result for result, status in zip(self.results, self.statuses, strict=True) if status in statuses]


def seconds_of(result: RolloutResult) -> float:
    """Return how long a rollout took, by its own clock where it has one."""
    if "total" in result.timing:
        return result.timing["total"]
    began, ended = (datetime.fromisoformat(text) for text in (result.started_at, result.finished_at))
    return (ended - began).total_seconds()


def collect_metrics(results_dir: Path | str, benchmark: str = "", agent: str = "", model: str = "") -> BenchmarkMetrics:
    """Read every result below a directory; `agent` and `model` choose among several, or name them if unknown there."""
    stored = read_results(Path(results_dir))
    results = latest_attempts(stored.results)
    for attribute, wanted in (("agent", agent), ("model", model)):
        chosen = [result for result in results if getattr(result, attribute) == wanted]
        results = chosen or results
    unfinished = unfinished_rollouts(Path(results_dir))
    return BenchmarkMetrics(tuple(results), benchmark, agent, model, stored.unreadable, unfinished)


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """The numbers of one rollout."""

    task_name: str
    reward: float | None
    error: str | None
    verifier_error: str | None
    n_tool_calls: int
    duration_sec: float
    agent: str
    model: str | None
    scene: str | None
    trial: int
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cost_usd: float | None

    @classmethod
    def of(cls, result: RolloutResult) -> TaskMetrics:
        """Take the numbers out of a result."""
        message = None if result.error is None else result.error.message
        return cls(
            task_name=result.task_name,
            reward=result.reward,
            error=None if result.verifier_error else message,
            verifier_error=result.verifier_error,
            n_tool_calls=result.n_tool_calls,
            duration_sec=seconds_of(result),
            agent=result.agent,
            model=result.model,
            scene=result.scene,
            trial=result.trial,
            input_tokens=result.tokens.input,
            output_tokens=result.tokens.output,
            cache_read_tokens=result.tokens.cached,
            cost_usd=result.cost_usd,
        )


@dataclass(frozen=True)
class BenchmarkMetrics:
    """The results of a benchmark, one per rollout."""

    results: tuple[RolloutResult, ...]
    benchmark: str = ""
    agent: str = ""
    model: str = ""
    unreadable: tuple[Path, ...] = ()
    unfinished: tuple[Path, ...] = ()
    """Directories of rollouts that were killed, or still run."""

    @property
    def tasks(self) -> list[TaskMetrics]:
        """The numbers of every rollout."""
        return [TaskMetrics.of(result) for result in self.results]

    def pass_at(self, k: int) -> float | None:
        """Return pass@k, averaged over tasks; None if some task has fewer than k trials."""
        return Tally.of(self.results).pass_at(k)

    def pass_all(self, k: int) -> float | None:
        """Return pass^k, averaged over tasks; None if some task has fewer than k trials."""
        return Tally.of(self.results).pass_all(k)

    def summary(self) -> dict[str, Json]:
        """Return everything as plain data; unknown numbers are None, and averages are over what was scored."""
        labels: dict[str, Json] = {
            "benchmark": self.benchmark,
            "agent": self.agent or _joined(result.agent for result in self.results),
            "model": self.model or _joined(result.model for result in self.results),
        }
        configurations = _grouped(self.results, lambda r: (r.agent, r.model, r.scene))
        by_configuration: list[Json] = [
            {"agent": agent, "model": model, "scene": scene, **_numbers(BenchmarkMetrics(tuple(members)))}
            for (agent, model, scene), members in configurations.items()
        ]
        names = _task_names(self.results)
        tasks = _grouped(self.results, lambda r: names[r.task_name, r.task_path])
        by_task: dict[str, Json] = {name: _of_task(members) for name, members in tasks.items()}
        tasks_by_class: dict[str, Json] = {
            f"{name}_tasks": [*_names(self.results, name, names)]
            for name in ("passed", "failed", "errored", "verifier_errored")
        }
        return {**labels, **_numbers(self), **tasks_by_class, "by_configuration": by_configuration, "by_task": by_task}


def _numbers(metrics: BenchmarkMetrics) -> dict[str, Json]:
    results = metrics.results
    tally = Tally.of(results)
    counts = Counter(map(outcome_class, results))
    passed, total, scored = tally.n("passed"), len(results) - tally.n("cancelled"), tally.scored
    at_k, all_k = tally.chances
    return {
        "total": total,
        **{name: counts[name] for name in ("passed", "failed", "errored", "verifier_errored", "skipped", "cancelled")},
        "score": f"{passed / total if total else 0.0:.1%}",
        "score_ratio": passed / total if total else 0.0,
        "score_excl_errors": f"{tally.pass_rate or 0.0:.1%}",
        "score_excl_errors_ratio": tally.pass_rate or 0.0,
        "pass_rate": tally.pass_rate,
        "pass_rate_interval": _listed(tally.pass_rate_interval),
        "mean_reward": tally.mean_reward,
        "mean_reward_interval": _listed(tally.mean_reward_interval),
        "pass_at_k": {**at_k},
        "pass_all_k": {**all_k},
        "error_breakdown": _breakdown(results, "errored"),
        "verifier_error_breakdown": _breakdown(results, "verifier_errored"),
        "avg_tool_calls": mean([float(result.n_tool_calls) for result in scored]),
        "avg_duration_sec": mean([seconds_of(result) for result in scored]),
        "duration_sec_percentiles": _percentiles([seconds_of(result) for result in scored]),
        **_usage(tally),
    }


def _usage(tally: Tally) -> dict[str, Json]:
    results = tally.results
    known = [result for result in results if result.total_tokens is not None]
    sums = {
        name: _added([getattr(used, name) for result in results for used in result.used_tokens])
        for name in ("input", "output", "cached")
    }
    return {
        "avg_skill_invocations": None,
        "total_input_tokens": sums["input"],
        "total_output_tokens": sums["output"],
        "total_cache_read_tokens": sums["cached"],
        "total_cache_creation_tokens": None,
        "total_tokens": tally.tokens,
        "total_cost_usd": tally.cost_usd,
        "cost_is_partial": tally.cost_is_partial,
        "avg_cost_per_trial_usd": mean([result.cost_usd for result in results if result.cost_usd is not None]),
        "telemetry_coverage": len(known) / len(results) if results else 0.0,
    }


def _of_task(members: Sequence[RolloutResult]) -> dict[str, Json]:
    rewards = [result.reward for result in members if result.reward is not None]
    tally = Tally.of(members)
    at_k, all_k = tally.chances
    return {
        "trials": sum(result.status != "cancelled" for result in members),
        "passed": tally.n("passed"),
        "scored": len(rewards),
        "pass_rate": tally.pass_rate,
        "pass_rate_interval": _listed(wilson_interval(tally.n("passed"), len(rewards))) if rewards else None,
        "pass_at_k": {**at_k},
        "pass_all_k": {**all_k},
        "mean_reward": mean(rewards),
        "avg_duration_sec": mean([seconds_of(result) for result in members if result.reward is not None]),
        "cost_usd": _added([result.spent_usd for result in members]),
    }


def _joined(names: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(name for name in names if name))


def _task_names(results: Sequence[RolloutResult]) -> dict[tuple[str, str], str]:
    """Return what each task is called, by its name and path: two tasks of one name are two."""
    return distinct_names((result.task_name, result.task_path) for result in results)


def _names(results: Sequence[RolloutResult], name: str, names: Mapping[tuple[str, str], str]) -> list[str]:
    return sorted({names[r.task_name, r.task_path] for r in results if outcome_class(r) == name})


def _breakdown(results: Sequence[RolloutResult], name: str) -> dict[str, Json]:
    categories = (
        "none" if result.error is None else result.error.category.value
        for result in results
        if outcome_class(result) == name
    )
    return dict(sorted(Counter(categories).items()))


def _percentiles(values: Sequence[float]) -> dict[str, Json] | None:
    return {f"p{percent}": percentile(values, percent) for percent in _PERCENTILES} if values else None


def _grouped(results: Sequence[RolloutResult], key: Callable[[RolloutResult], K]) -> dict[K, list[RolloutResult]]:
    groups: dict[K, list[RolloutResult]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return groups


def _added(values: Sequence[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _listed(interval: tuple[float, float] | None) -> list[Json] | None:
    return None if interval is None else [*interval]
