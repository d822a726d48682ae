"""Numbers over many rollouts, each from the results alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

BOOTSTRAP_SAMPLES = 1000


def wilson_interval(passed: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a pass rate."""
    if total == 0:
        return 0.0, 1.0
    rate, spread = passed / total, z * z / total
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, None of nothing."""
    return math.fsum(values) / len(values) if values else None


def bootstrap_interval(
    clusters: Sequence[Sequence[float]], *, samples: int = BOOTSTRAP_SAMPLES, seed: int = 0
) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the mean of all values; the same data give the same interval.

    Whole clusters are drawn, for example all trials of a task, since these resemble each other more than others.
    """
    drawn_from = [(math.fsum(cluster), len(cluster)) for cluster in clusters if cluster]
    if not drawn_from:
        return None
    chance = random.Random(seed)  # noqa: S311
    means: list[float] = []
    for _ in range(samples):
        drawn = chance.choices(drawn_from, k=len(drawn_from))
        means.append(math.fsum(total for total, _ in drawn) / sum(size for _, size in drawn))
    return percentile(means, 2.5), percentile(means, 97.5)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, between two values in proportion."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


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
