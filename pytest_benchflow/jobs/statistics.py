"""Statistics of few tasks and repeated trials: intervals, chances over several trials, and tests of paired differences.

Pure functions of the standard library. Trials of one task resemble each other more than those of another, so that
intervals for a whole benchmark take tasks, not trials, as what was sampled.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from operator import add
from statistics import NormalDist

LEVEL = 0.95
"""The level of every interval."""
_PSEUDO_TASKS = 2.0
_SAMPLED = 20_000
_MOST_STATES = 4_000_000
_MOST_DEALS = 5_000
_MANY = 1000

Interval = tuple[float, float]


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, None of nothing."""
    return math.fsum(values) / len(values) if values else None


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, between two values in proportion."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def normal_quantile(level: float = LEVEL) -> float:
    """Return how many standard errors the two-sided interval of a level reaches to each side."""
    return NormalDist().inv_cdf((1 + level) / 2)


@lru_cache(maxsize=256)
def t_quantile(degrees: int, level: float = LEVEL) -> float:
    """Return the same for a mean whose variance was estimated with so many degrees of freedom (Student's t)."""
    if degrees > _MANY:
        return normal_quantile(level)
    low, high = 0.0, 1.0
    while _t_within(high, degrees) < level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, degrees) < level else (low, middle)
    return (low + high) / 2


def _t_within(t: float, degrees: int) -> float:
    """Return the chance of |T| <= t, by the finite series for whole degrees of freedom."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2
    term = total = (math.cos(angle) if odd else 1.0) if degrees > 1 else 0.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def wilson_interval(passed: float, total: float, z: float | None = None) -> Interval:
    """Return the 95% Wilson score interval of a pass rate; `total` may be an effective sample size."""
    if total == 0:
        return 0.0, 1.0
    z = normal_quantile() if z is None else z
    rate, spread = passed / total, z * z / total
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(max(0.0, rate * (1 - rate) / total + spread / (4 * total))) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def rate_interval(tasks: Sequence[tuple[int, int]]) -> Interval | None:
    """Return the 95% interval of a pass rate from the passed and all trials of each task.

    Wilson's, over an effective number of trials: all of them if trials of a task are as different as those of others,
    one per task if they are all alike. Of a single task it is the rate of that task's trials.
    """
    tasks = [(passed, trials) for passed, trials in tasks if trials]
    passed, total, n = sum(p for p, _ in tasks), sum(t for _, t in tasks), len(tasks)
    if not tasks:
        return None
    if n in (1, total):
        return wilson_interval(passed, total)
    rate = passed / total
    variance = _clustered_variance([(float(p), t) for p, t in tasks], rate)
    effective = float(n)
    if 0 < rate < 1:
        estimated = min(total, rate * (1 - rate) / variance) if variance else total
        effective = max(effective, estimated * (normal_quantile() / t_quantile(n - 1)) ** 2)
    return wilson_interval(rate * effective, effective)


def mean_interval(tasks: Sequence[Sequence[float]]) -> Interval | None:
    """Return a 95% interval of the mean of all values, which come in one list per task.

    Student's t over tasks. Few tasks often have equal rewards by chance, so the variance is never taken for less than
    with two more tasks at either end of the scale, which is 0 to 1 unless the values go further.
    """
    tasks = [values for values in tasks if values]
    if not tasks:
        return None
    everything = [value for values in tasks for value in values]
    low, high, centre = min(0.0, *everything), max(1.0, *everything), math.fsum(everything) / len(everything)
    if len(tasks) == 1:
        return low, high
    variance = _clustered_variance([(math.fsum(values), len(values)) for values in tasks], centre)
    variance = max(variance, _variance_floor([math.fsum(v) / len(v) for v in tasks], low, high))
    half = t_quantile(len(tasks) - 1) * math.sqrt(variance)
    return max(low, centre - half), min(high, centre + half)


def _clustered_variance(tasks: Sequence[tuple[float, int]], centre: float) -> float:
    """Return the variance of a mean over all trials, from the sum and number of those of each task."""
    n, total = len(tasks), sum(trials for _, trials in tasks)
    return n / (n - 1) * math.fsum((added - trials * centre) ** 2 for added, trials in tasks) / total**2


def _variance_floor(means: Sequence[float], low: float, high: float) -> float:
    weighted = [*((value, 1.0) for value in means), (low, _PSEUDO_TASKS), (high, _PSEUDO_TASKS)]
    weight = math.fsum(w for _, w in weighted)
    centre = math.fsum(value * w for value, w in weighted) / weight
    return math.fsum(w * (value - centre) ** 2 for value, w in weighted) / weight / len(means)


def pass_at_k(trials: int, passed: int, k: int) -> float:
    """Return the chance that at least one of k trials passes, without bias from the trials that were run."""
    _check(trials, passed, k)
    return 1.0 - math.comb(trials - passed, k) / math.comb(trials, k)


def pass_all_k(trials: int, passed: int, k: int) -> float:
    """Return the chance that all of k trials pass, often written pass^k."""
    _check(trials, passed, k)
    return math.comb(passed, k) / math.comb(trials, k)


def _check(trials: int, passed: int, k: int) -> None:
    if not (0 <= passed <= trials and 1 <= k <= trials):
        raise ValueError(f"{passed} of {trials} trials passed says nothing about {k} trials")


def mcnemar(worse: int, better: int) -> float:
    """Return the two-sided exact p-value of McNemar's test: so many pairs got worse, so many better."""
    n, tail = worse + better, min(worse, better)
    chances = sum(math.comb(n, k) for k in range(tail + 1))
    return min(1.0, chances / 2 ** (n - 1)) if n else 1.0


def sign_flips(differences: Sequence[float], *, seed: int = 0) -> tuple[float, bool]:
    """Return the two-sided p-value of a mean difference if each sign were a coin's, and whether it is exact.

    Exact as long as the sums can be enumerated, which they can for rates over trials; else 20,000 seeded samples.
    """
    return _as_far_from_zero(math.fsum(differences), [{value: 1, -value: 1} for value in differences if value], seed)


def dealt_trials(
    pairs: Sequence[tuple[Sequence[float], Sequence[float], float]], *, seed: int = 0
) -> tuple[float, bool]:
    """Return the two-sided p-value of a mean difference if chance had dealt each task's trials to the two runs.

    A pair holds the values of a task before and after, and its weight. Differences of means over unequal numbers of
    trials are not symmetric around zero, even if nothing has changed, so that flipped signs do not do for them.
    """
    observed = math.fsum(w * (math.fsum(new) / len(new) - math.fsum(old) / len(old)) for old, new, w in pairs)
    ways = [_ways_to_deal(old, new, weight, seed) for old, new, weight in pairs]
    p_value, is_exact = _as_far_from_zero(observed, [counts for counts, _ in ways], seed)
    return p_value, is_exact and all(complete for _, complete in ways)


def _ways_to_deal(
    before: Sequence[float], after: Sequence[float], weight: float, seed: int
) -> tuple[dict[float, int], bool]:
    """Return in how many ways each difference comes about, and whether these are all ways or a sample."""
    values, n = [*before, *after], len(after)
    total, is_complete = math.fsum(values), True
    chosen: dict[tuple[int, float], int] = {(0, 0.0): 1}
    for value in values:
        following = dict(chosen)
        for (k, added), count in chosen.items():
            if k < n:
                key = k + 1, round(added + value, 9)
                following[key] = following.get(key, 0) + count
        chosen = following
        if len(chosen) > _MOST_DEALS:
            chance, is_complete = random.Random(seed), False  # noqa: S311
            chosen = Counter((n, round(math.fsum(chance.sample(values, n)), 9)) for _ in range(_MOST_DEALS))
            break
    differences: dict[float, int] = {}
    for (k, added), count in chosen.items():
        if k == n:
            difference = weight * (added / n - (total - added) / len(before))
            differences[difference] = differences.get(difference, 0) + count
    return differences, is_complete


def _as_far_from_zero(observed: float, steps: Sequence[dict[float, int]], seed: int) -> tuple[float, bool]:
    """Return how often a sum of one value of each step is as far from zero as what was observed, and if that is exact.

    A step says how often each of its values comes.
    """
    sums: dict[float, int] = {0.0: 1}
    for step in steps:
        if len(sums) * len(step) * len(steps) > _MOST_STATES // 5:
            return _sampled(abs(observed), steps, seed), False
        following: dict[float, int] = {}
        for total, count in sums.items():
            for value, times in step.items():
                place = round(total + value, 9)
                following[place] = following.get(place, 0) + count * times
        sums = following
    extreme = sum(count for total, count in sums.items() if abs(total) >= abs(observed) - 1e-7)
    return extreme / sum(sums.values()), True


def _sampled(observed: float, steps: Sequence[dict[float, int]], seed: int) -> float:
    chance = random.Random(seed)  # noqa: S311
    totals = [0.0] * _SAMPLED
    for step in steps:
        totals = list(map(add, totals, chance.choices([*step], [*step.values()], k=_SAMPLED)))
    extreme = sum(abs(total) >= observed - 1e-9 for total in totals)
    return (extreme + 1) / (_SAMPLED + 1)  # what was observed is one of all


def fisher(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test: passed and all trials of one task, before and after."""
    passed, total, first = before[0] + after[0], before[1] + after[1], before[1]
    ways = [
        math.comb(first, k) * math.comb(total - first, passed - k)
        for k in range(max(0, passed - total + first), min(first, passed) + 1)
    ]
    observed = math.comb(first, before[0]) * math.comb(total - first, after[0])
    return min(1.0, sum(way for way in ways if way <= observed) / sum(ways))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that allow for how many there are (Holm), in the same order."""
    adjusted, running, n = [1.0] * len(p_values), 0.0, len(p_values)
    for rank, place in enumerate(sorted(range(n), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (n - rank) * p_values[place]))
        adjusted[place] = running
    return adjusted


def paired_rate_interval(worse: int, better: int, pairs: int) -> Interval:
    """Return the 95% interval of a difference of pass rates over pairs of one trial each (Bonett and Price)."""
    up, down = (better + 1) / (pairs + 2), (worse + 1) / (pairs + 2)
    half = normal_quantile() * math.sqrt((up + down - (up - down) ** 2) / (pairs + 2))
    return max(-1.0, up - down - half), min(1.0, up - down + half)


def paired_interval(differences: Sequence[float], floors: Sequence[float]) -> Interval | None:
    """Return the 95% interval of a mean difference over tasks, None of fewer than two.

    Student's t; `floors` are the variances that chance alone gives each difference, and the whole is never taken for
    steadier than they are together.
    """
    n = len(differences)
    if n < 2:
        return None
    centre = math.fsum(differences) / n
    variance = math.fsum((value - centre) ** 2 for value in differences) / (n - 1) / n
    variance = max(variance, math.fsum(floors) / n**2)
    half = t_quantile(n - 1) * math.sqrt(variance)
    return centre - half, centre + half


def chance_variance(values: Sequence[float], low: float = 0.0, high: float = 1.0) -> float:
    """Return the variance of the mean of a task's trials if each were a coin's, smoothed by half a trial either way."""
    width = (high - low) or 1.0
    rate = (math.fsum((value - low) / width for value in values) + 0.5) / (len(values) + 1)
    return rate * (1 - rate) / len(values) * width**2
