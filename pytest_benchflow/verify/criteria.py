"""What is known of the criteria behind a reward, and of the judge that scored them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_benchflow.verify.rubric import Space

Raw = int | float | str | bool | None
"""A score as the judge gave it: a number, a word, true or false."""


@dataclass(frozen=True, slots=True)
class CriterionScore:
    """One criterion: its score between 0 and 1, what the judge said, and why."""

    name: str
    value: float
    raw: Raw = None
    weight: float = 1.0
    reason: str = ""
    agreement: float | None = None
    """How far repeated verdicts agree: 1 if all are the same; None for a single one."""
    description: str = ""
    samples: tuple[Raw, ...] = ()
    """All verdicts, if there were several."""
    is_required: bool = True
    is_negated: bool = False
    space: Space = "output"
    error: str | None = None

    @property
    def passed(self) -> bool:
        """Whether at least half of what could be reached was."""
        return self.value >= 0.5


@dataclass(frozen=True, slots=True)
class JudgeRecord:
    """A judge and what its calls used."""

    model: str
    """As it was asked for."""
    models: tuple[str, ...] = ()
    """As they call themselves in their answers."""
    rubric: str | None = None
    dialect: str | None = None
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    """None if no call's price is known."""
    cost_is_partial: bool = False
    samples: int = 1
    agreement: float | None = None
    """The lowest of all criteria."""
    prompt_digest: str | None = None
    """Of rubric, instructions and submission: equal digests were asked the same."""
    warnings: tuple[str, ...] = ()
    """What a reader of the score has to know: what was left out, where verdicts disagree."""

    @property
    def lacks_cost(self) -> bool:
        """Whether some calls may have cost something that is not known."""
        return self.cost_is_partial or (self.calls > 0 and self.cost_usd is None)


def combined(records: Sequence[JudgeRecord]) -> JudgeRecord | None:
    """Return what several judgings used together, described as the last one was; None if there was none."""
    if not records:
        return None
    costs = [record.cost_usd for record in records if record.cost_usd is not None]
    agreements = [record.agreement for record in records if record.agreement is not None]
    return replace(
        records[-1],
        models=tuple(dict.fromkeys(model for record in records for model in record.models)),
        calls=sum(record.calls for record in records),
        input_tokens=sum(record.input_tokens for record in records),
        output_tokens=sum(record.output_tokens for record in records),
        cached_tokens=sum(record.cached_tokens for record in records),
        cost_usd=math.fsum(costs) if costs else None,
        cost_is_partial=any(record.cost_is_partial for record in records) or 0 < len(costs) < len(records),
        agreement=min(agreements, default=None),
        warnings=tuple(dict.fromkeys(warning for record in records for warning in record.warnings)),
    )
