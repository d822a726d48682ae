"""Compare two runs task by task: what regressed, what improved, and what there is no evidence for.

Rollouts are paired by task, agent, model and scene. A task that one side lacks, or could not score, is dropped and
told, never counted as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from pytest_benchflow.core.text import counted
from pytest_benchflow.jobs.metrics import Outcome
from pytest_benchflow.jobs.statistics import (
    chance_variance,
    dealt_trials,
    fisher,
    holm,
    mcnemar,
    normal_quantile,
    paired_interval,
    paired_rate_interval,
    sign_flips,
)
from pytest_benchflow.rollout import RolloutResult

SIGNIFICANT = 0.05
_POWER = 0.8416
"""Standard errors that a difference needs beyond the interval to be seen four times in five."""
_SCORED = ("passed", "failed")

Verdict = Literal["regressed", "improved", "no evidence"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Difference(_Record):
    """How a number, averaged over the tasks that both runs scored, changed."""

    measure: Literal["pass_rate", "mean_reward"]
    tasks: int
    before: float
    after: float
    difference: float
    interval: tuple[float, float] | None = Field(description="95%; null for a single task with several trials")
    p_value: float
    test: str
    verdict: Verdict
    detectable: float | None = Field(description="the smallest difference that so many tasks show four times in five")


class TaskChange(_Record):
    """One task of one configuration in both runs."""

    task: str
    configuration: str
    before_passed: int
    before_trials: int
    after_passed: int
    after_trials: int
    before_reward: float
    after_reward: float
    p_value: float = Field(description="Fisher's exact test over the trials, allowing for the number of tasks (Holm)")
    verdict: Verdict = Field(description="what the trials of this task alone are evidence for")
    change: Literal["worse", "better", "same"] = Field(description="how the pass rate moved, with or without evidence")


class Comparison(_Record):
    """A run beside an earlier one."""

    pass_rate: Difference | None
    mean_reward: Difference | None
    tasks: list[TaskChange]
    only_before: list[str] = Field(description="what only the earlier run has")
    only_after: list[str] = Field(description="what only the later run has")
    unscored: list[str] = Field(description="what both have and one could not score")
    notes: list[str]

    @property
    def verdict(self) -> Verdict:
        """What the pass rate says."""
        return "no evidence" if self.pass_rate is None else self.pass_rate.verdict


class Configuration(NamedTuple):
    """Who plays."""

    agent: str
    model: str | None
    scene: str | None

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


@dataclass
class _Trials:
    rewards: list[float] = field(default_factory=list)
    passed: int = 0
    digest: str | None = None

    @property
    def rate(self) -> float:
        return self.passed / len(self.rewards)

    @property
    def reward(self) -> float:
        return math.fsum(self.rewards) / len(self.rewards)

    @property
    def passes(self) -> list[float]:
        return [1.0] * self.passed + [0.0] * (len(self.rewards) - self.passed)


_Side = dict[Configuration, dict[str, _Trials]]
_Pair = tuple[_Trials, _Trials]


def compare(before: Sequence[Outcome], after: Sequence[Outcome]) -> Comparison:
    """Return what changed from one run to another.

    If each has exactly one configuration that the other lacks, these two are compared with each other: another model,
    for example.
    """
    name = _naming(before, after)
    earlier, later = _by_configuration(before, name), _by_configuration(after, name)
    notes, matched = _matched(earlier, later)
    pairs: dict[tuple[str, str], _Pair] = {}
    only_before, only_after, unscored, changed = [], [], [], set[str]()
    several = len({*earlier, *later}) > 1
    for old, new in matched:
        mine, theirs = earlier.get(old, {}) if old else {}, later.get(new, {}) if new else {}
        configuration = str(new or old)
        for task in dict.fromkeys([*mine, *theirs]):
            shown = f"{task} ({configuration})" if several else task
            if task not in theirs:
                only_before.append(shown)
            elif task not in mine:
                only_after.append(shown)
            elif not mine[task].rewards or not theirs[task].rewards:
                unscored.append(shown)
            else:
                pairs[task, configuration] = mine[task], theirs[task]
            if task in mine and task in theirs and mine[task].digest != theirs[task].digest:
                changed.add(task)
    if changed:
        notes.append(f"{counted(len(changed), 'task')} changed since the earlier run: {', '.join(sorted(changed))}")
    return Comparison(
        pass_rate=_difference("pass_rate", pairs),
        mean_reward=_difference("mean_reward", pairs),
        tasks=_changes(pairs),
        only_before=only_before,
        only_after=only_after,
        unscored=unscored,
        notes=notes,
    )


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return what to print of a comparison: the verdicts, what moved, and what could not be compared."""
    lines = [_sentence(one) for one in (comparison.pass_rate, comparison.mean_reward) if one is not None]
    if comparison.mean_reward is not None and _same_numbers(comparison.pass_rate, comparison.mean_reward):
        lines = lines[:1]  # rewards of 0 and 1 only
    if not lines:
        lines = ["no task was scored in both runs"]
    for change in comparison.tasks:
        if change.change != "same":
            counts = (
                f"{change.before_passed} of {change.before_trials} → {change.after_passed} of {change.after_trials}"
            )
            where = f"{change.task} ({change.configuration})" if change.configuration else change.task
            evidence = "" if change.verdict == "no evidence" else f", {change.verdict} by itself"
            lines.append(f"  {change.change}: {where} {counts} passed{evidence}")
    for what, names in (
        ("only in the earlier run", comparison.only_before),
        ("only in this run", comparison.only_after),
        ("not scored in both", comparison.unscored),
    ):
        if names:
            lines.append(f"  {what}: {_listed(names)}")
    return [*lines, *(f"  {note}" for note in comparison.notes)]


def _sentence(one: Difference) -> str:
    word = "pass rate" if one.measure == "pass_rate" else "mean reward"
    interval = "" if one.interval is None else f" (95% interval {one.interval[0]:+.2f} to {one.interval[1]:+.2f})"
    text = (
        f"{one.verdict}: {word} {one.before:.2f} → {one.after:.2f}, {one.difference:+.2f}{interval}, "
        f"p = {one.p_value:.2g}, {one.test}, {counted(one.tasks, 'task')}"
    )
    if one.verdict == "no evidence" and one.detectable is not None and one.detectable < 1:
        text += f"; this many show a difference of {one.detectable:.2f} four times in five"
    return text


def _same_numbers(one: Difference | None, other: Difference | None) -> bool:
    return one is not None and other is not None and (one.before, one.after) == (other.before, other.after)


_SHOWN = 5


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _naming(before: Sequence[Outcome], after: Sequence[Outcome]) -> Callable[[Outcome], str]:
    """Return how tasks are called on both sides: by name, or by the path in the id where names are not unique.

    Directories of machines differ, so that a task's own path says nothing.
    """
    for side in (before, after):
        paths: dict[str, str] = {}
        for outcome in side:
            if paths.setdefault(outcome.result.task_name, outcome.result.task_path) != outcome.result.task_path:
                return lambda outcome: outcome.id.partition("::")[0] or outcome.result.task_name
    return lambda outcome: outcome.result.task_name


def configuration_of(result: RolloutResult) -> Configuration:
    """Return who played."""
    return Configuration(result.agent, result.model, result.scene)


def _by_configuration(side: Iterable[Outcome], name: Callable[[Outcome], str]) -> _Side:
    found: _Side = {}
    for outcome in side:
        result = outcome.result
        if outcome.status == "quarantined" or result.held_back is not None:
            continue
        trials = found.setdefault(configuration_of(result), {}).setdefault(name(outcome), _Trials())
        trials.digest = trials.digest or result.task_digest
        if outcome.status in _SCORED and result.reward is not None:
            trials.rewards.append(result.reward)
            trials.passed += outcome.status == "passed"
    return found


def _matched(earlier: _Side, later: _Side) -> tuple[list[str], list[tuple[Configuration | None, Configuration | None]]]:
    pairs: list[tuple[Configuration | None, Configuration | None]] = [(one, one) for one in earlier if one in later]
    old, new = [one for one in earlier if one not in later], [one for one in later if one not in earlier]
    if len(old) == len(new) == 1:
        return [f"{old[0]} is compared with {new[0]}"], [*pairs, (old[0], new[0])]
    return [], [*pairs, *((one, None) for one in old), *((None, one) for one in new)]


def _difference(
    measure: Literal["pass_rate", "mean_reward"], pairs: Mapping[tuple[str, str], _Pair]
) -> Difference | None:
    if not pairs:
        return None
    tasks: dict[str, list[_Pair]] = {}
    for (task, _), pair in pairs.items():
        tasks.setdefault(task, []).append(pair)
    is_rate = measure == "pass_rate"

    def of(trials: _Trials) -> float:
        return trials.rate if is_rate else trials.reward

    def average(values: Iterable[float]) -> float:
        each = [*values]
        return math.fsum(each) / len(each)

    before = average(average(of(old) for old, _ in members) for members in tasks.values())
    after = average(average(of(new) for _, new in members) for members in tasks.values())
    differences = [average(of(new) - of(old) for old, new in members) for members in tasks.values()]
    n = len(differences)
    single = (
        is_rate and all(len(old.rewards) == len(new.rewards) == 1 for old, new in pairs.values()) and n == len(pairs)
    )
    interval: tuple[float, float] | None
    if single:
        worse, better = sum(d < 0 for d in differences), sum(d > 0 for d in differences)
        p_value, test, interval = mcnemar(worse, better), "exact McNemar test", paired_rate_interval(worse, better, n)
    elif n == 1:
        ((old, new),) = pairs.values() if len(pairs) == 1 else ((None, None),)
        test, interval = "Fisher's exact test of the trials", None
        p_value = _fisher(old, new) if old is not None and new is not None else 1.0
    else:
        p_value, test = _tested(differences, tasks, is_rate)
        interval = paired_interval(differences, _floors(tasks, is_rate))
    if is_rate and interval is not None:  # rates cannot differ by more, however little is known
        interval = max(-1.0, interval[0]), min(1.0, interval[1])
    verdict: Verdict = "no evidence"
    if p_value < SIGNIFICANT:
        verdict = "improved" if after > before else "regressed"
    reach = None if interval is None else (interval[1] - interval[0]) / 2
    q = normal_quantile()
    return Difference(
        measure=measure,
        tasks=n,
        before=before,
        after=after,
        difference=after - before,
        interval=interval,
        p_value=p_value,
        test=test,
        verdict=verdict,
        detectable=None if reach is None else reach * (q + _POWER) / q,
    )


def _tested(differences: Sequence[float], tasks: Mapping[str, Sequence[_Pair]], is_rate: bool) -> tuple[float, str]:
    """Return the p-value of the differences of several tasks, and the name of the test.

    Where a task has more trials in one run than in the other, two tests have to agree: flipped signs allow for tasks
    that really changed, either way, and dealt trials for differences that are not symmetric.
    """
    p_value, is_exact = sign_flips(differences)
    name = "sign-flip test"
    if any(len(old.rewards) != len(new.rewards) for members in tasks.values() for old, new in members):
        values = [
            (old.passes, new.passes, 1 / len(members)) if is_rate else (old.rewards, new.rewards, 1 / len(members))
            for members in tasks.values()
            for old, new in members
        ]
        dealt, is_exactly_dealt = dealt_trials(values)
        p_value, is_exact, name = max(p_value, dealt), is_exact and is_exactly_dealt, "sign-flip and permutation tests"
    return p_value, name if is_exact else f"sampled {name}"


def _floors(tasks: Mapping[str, Sequence[_Pair]], is_rate: bool) -> list[float]:
    """Return the variance that chance alone gives the difference of each task; rewards need a scale for that."""
    everything = [value for members in tasks.values() for pair in members for side in pair for value in side.rewards]
    is_binary = is_rate or len({*everything}) <= 2
    if not is_binary:
        return [0.0] * len(tasks)
    low, high = (0.0, 1.0) if is_rate else (min(0.0, *everything), max(1.0, *everything))

    def floor(side: _Trials) -> float:
        return chance_variance(side.passes if is_rate else side.rewards, low, high)

    return [
        math.fsum(floor(side) for pair in members for side in pair) / len(members) ** 2 for members in tasks.values()
    ]


def _fisher(old: _Trials, new: _Trials) -> float:
    return fisher((old.passed, len(old.rewards)), (new.passed, len(new.rewards)))


def _changes(pairs: Mapping[tuple[str, str], _Pair]) -> list[TaskChange]:
    several = len({configuration for _, configuration in pairs}) > 1
    p_values = holm([_fisher(old, new) for old, new in pairs.values()])
    return [
        TaskChange(
            task=task,
            configuration=configuration if several else "",
            before_passed=old.passed,
            before_trials=len(old.rewards),
            after_passed=new.passed,
            after_trials=len(new.rewards),
            before_reward=old.reward,
            after_reward=new.reward,
            p_value=p_value,
            verdict=_verdict(old, new, p_value),
            change="same" if old.rate == new.rate else "better" if new.rate > old.rate else "worse",
        )
        for ((task, configuration), (old, new)), p_value in zip(pairs.items(), p_values, strict=True)
    ]


def _verdict(old: _Trials, new: _Trials, p_value: float) -> Verdict:
    if p_value >= SIGNIFICANT:
        return "no evidence"
    return "improved" if new.rate > old.rate else "regressed"
