"""Rules of multi-step tasks: when to go on, and what the steps together are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal


def reaches(rewards: Mapping[str, float], minimum: float | Mapping[str, float] | None) -> bool:
    """Tell whether a step did well enough for the next one; a key that is missing never does."""
    if minimum is None:
        return True
    wanted = minimum if isinstance(minimum, Mapping) else {"reward": minimum}
    return all(rewards.get(key, -math.inf) >= least for key, least in wanted.items())


def combine(steps: Sequence[Mapping[str, float]], strategy: Literal["mean", "final"] | None) -> dict[str, float]:
    """Return the rewards of the whole task: per key the mean over the steps that ran, or those of the last one."""
    if strategy == "final":
        return dict(steps[-1])
    keys = dict.fromkeys(key for rewards in steps for key in rewards)
    return {key: math.fsum(rewards.get(key, 0.0) for rewards in steps) / len(steps) for key in keys}
