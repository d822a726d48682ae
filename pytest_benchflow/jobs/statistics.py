"""Numbers over many rollouts, each from the results alone."""

from __future__ import annotations

import math


def wilson_interval(passed: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a pass rate."""
    if total == 0:
        return 0.0, 1.0
    rate, spread = passed / total, z * z / total
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)
