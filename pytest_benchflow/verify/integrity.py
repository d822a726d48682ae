"""What defences of the verification found: evidence for people, never a verdict by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pytest_benchflow.core.text import one_line

_MOST_OF_A_KIND = 50

FindingKind = Literal[
    "planted_file",
    "changed_config",
    "shadowing_module",
    "escaping_link",
    "foreign_process",
    "reward_directory",
    "system_file",
    "environment",
    "git",
    "log_file",
    "tests_sought",
]


class Finding(BaseModel):
    """One defence that a rollout tripped."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FindingKind
    message: str = Field(description="what was found and what was done about it, with the evidence, on one line")
    paths: list[str] = Field(default=[], description="the files it is about, as they are called in the sandbox")
    step: str | None = Field(default=None, description="the step of a multi-step task")
    round: int | None = Field(
        default=None, description="the round of a user's loop, from 1; None is the final verification"
    )


def bounded(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with at most so many of a kind; an agent may give reason for any number of them."""
    kept: list[Finding] = []
    counts: Counter[FindingKind] = Counter()
    for finding in findings:
        counts[finding.kind] += 1
        if counts[finding.kind] <= _MOST_OF_A_KIND:
            kept.append(finding)
    for kind, count in counts.items():
        if count > _MOST_OF_A_KIND:
            kept.append(Finding(kind=kind, message=f"and {count - _MOST_OF_A_KIND} more of this kind"))
    return kept


def listed_findings(findings: Iterable[Finding], limit: int = 3) -> str:
    """Return findings as one line of text, the first few in full."""
    texts = list(dict.fromkeys(one_line(finding.message, 160) for finding in findings))
    more = len(texts) - limit
    return "; ".join(texts[:limit]) + (f"; and {more} more" if more > 0 else "")
