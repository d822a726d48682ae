"""A sequential test: does the mean of a finite population reach a limit, from values seen in random order so far?

Betting against the limit, after Waudby-Smith and Ramdas ("Estimating means of bounded random variables by betting",
2023): for values between 0 and 1, drawn without replacement, the wealth of somebody who bets at fair odds under the
hypothesis is a supermartingale if the hypothesis holds, and exceeds 1/error ever with a chance of at most `error`
(Ville's inequality). So the verdict may be looked at after every value, and its error rate stays what was asked for.
"""

from __future__ import annotations

from typing import Literal

_STAKES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.97)
"""Parts of the wealth that are staked; the mean of all of them hedges against the wrong one."""
_TINY = 1e-9

Side = Literal["above", "below"]


class SequentialTest:
    """Takes the values of a population of known size in random order."""

    def __init__(self, population: int, limit: float, error: float) -> None:
        self.population = population
        self.limit = limit
        self.error = error
        self.n = 0
        self.verdict: Side | None = None
        """On which side of the limit the mean is, once that is certain enough; it never changes again."""
        self._sum = 0.0
        self._above = [1.0] * len(_STAKES)
        self._below = [1.0] * len(_STAKES)

    def add(self, value: float) -> None:
        """Take the next value, between 0 and 1."""
        if self.verdict is not None or self.n >= self.population:
            return
        expected = (self.population * self.limit - self._sum) / (self.population - self.n)
        self.n += 1
        self._sum += value
        if expected < -_TINY or (expected <= _TINY and value > _TINY):
            self.verdict = "above"
        elif expected > 1 + _TINY or (expected >= 1 - _TINY and value < 1 - _TINY):
            self.verdict = "below"
        elif _TINY < expected < 1 - _TINY:
            self._bet(value, expected)

    def _bet(self, value: float, expected: float) -> None:
        surprise = value - expected
        for place, stake in enumerate(_STAKES):
            self._above[place] *= 1 + stake * surprise / expected
            self._below[place] *= 1 - stake * surprise / (1 - expected)
        if sum(self._above) / len(_STAKES) >= 1 / self.error:
            self.verdict = "above"
        elif sum(self._below) / len(_STAKES) >= 1 / self.error:
            self.verdict = "below"
