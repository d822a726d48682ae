"""What a reward is made of: the files `reward-details.json` and `evaluation_details.json`, and reward events."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.text import one_line, shortened
from pytest_benchflow.core.types import Json
from pytest_benchflow.verify.criteria import CriterionScore, JudgeRecord, Raw
from pytest_benchflow.verify.rewards import Checks, primary_reward
from pytest_benchflow.verify.rubric import RewardEvent

if TYPE_CHECKING:
    from pytest_benchflow.verify.verifier import Verification

REWARD_DETAILS = "reward-details.json"
EVALUATION_DETAILS = "evaluation_details.json"
_MAX_CHECK_EVENTS = 200
_MAX_BYTES = 5_000_000
_MAX_CRITERIA = 1_000
_MAX_DEPTH = 8


def read_criteria(directory: Path) -> tuple[CriterionScore, ...]:
    """Return the criteria in a verifier's `reward-details.json`; none if it cannot be read, for it only explains."""
    path = directory / REWARD_DETAILS
    try:
        if path.is_symlink() or path.stat().st_size > _MAX_BYTES:
            return ()
        data: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    nodes = data if isinstance(data, dict) else {}
    found = ((key, criterion) for key, node in nodes.items() for criterion in _criteria_of(node, 0))
    named = (replace(each, name=f"{one_line(str(key))}.{each.name}") if len(nodes) > 1 else each for key, each in found)
    return tuple(islice(_unique(named), _MAX_CRITERIA))


def _criteria_of(node: object, depth: int) -> Iterator[CriterionScore]:
    """Yield the criteria of a node: its own, or those of what it is put together from."""
    if isinstance(node, list):
        for item in node:
            yield from _criteria_of(item, depth)
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return
    for item in _list(node.get("criteria")):
        if (criterion := _criterion(item)) is not None:
            yield criterion
    for component in _list(node.get("components")):
        if isinstance(component, dict):
            yield from _criteria_of(component.get("detail"), depth + 1)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _criterion(item: object) -> CriterionScore | None:
    if not isinstance(item, dict) or (value := _number(item.get("value"))) is None:
        return None
    samples = item.get("samples")
    return CriterionScore(
        name=shortened(one_line(str(item.get("name") or item.get("id") or "criterion"))),
        value=value,
        raw=_raw(item.get("raw")),
        weight=weight if (weight := _number(item.get("weight"))) is not None else 1.0,
        reason=_text(item.get("reasoning")),
        agreement=_number(item.get("agreement")),
        description=_text(item.get("description")),
        samples=tuple(map(_raw, samples[:100])) if isinstance(samples, list) else (),
        is_required=item.get("optional") is not True,
        is_negated=item.get("negate") is True,
        error=_text(item["error"]) if item.get("error") else None,
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _raw(value: object) -> Raw:
    if value is None or isinstance(value, bool):
        return value
    return number if (number := _number(value)) is not None else shortened(one_line(str(value)))


def _text(value: object) -> str:
    return shortened(value) if isinstance(value, str) else ""


def _unique(criteria: Iterator[CriterionScore]) -> Iterator[CriterionScore]:
    seen: dict[str, int] = {}
    for criterion in criteria:
        n = seen[criterion.name] = seen.get(criterion.name, 0) + 1
        yield criterion if n == 1 else replace(criterion, name=f"{criterion.name}_{n}")


def reward_events(verification: Verification) -> list[RewardEvent]:
    """Return the signals of a verification: its checks, its criteria, and the reward they end in."""
    return [
        *_check_events(verification.checks),
        *(
            RewardEvent("dense", criterion.value, f"criterion:{criterion.name}", step, criterion.space, "step")
            for step, criterion in enumerate(verification.criteria)
        ),
        RewardEvent("terminal", primary_reward(verification.rewards), "verifier"),
    ]


def _check_events(checks: Checks | None) -> Iterator[RewardEvent]:
    if checks is None:
        return
    scores = [*((name, 1.0) for name in checks.passed), *((name, 0.0) for name in checks.failed)]
    for step, (name, score) in enumerate(scores[:_MAX_CHECK_EVENTS]):
        yield RewardEvent("process", score, f"check:{name}", step, "output", "step")


def event_line(event: RewardEvent, *, step: str | None = None, **meta: Json) -> dict[str, Json]:
    """Return an event as a line of `rewards.jsonl`; `step` is the step of the task, if it has several."""
    where: dict[str, Json] = {} if step is None else {"step": step}
    return {
        "ts": event.ts,
        "type": event.type,
        "source": event.source,
        "value": event.reward,
        "tag": event.source.partition(":")[2] or "reward",
        "step_index": event.step,
        "space": event.space,
        "granularity": event.granularity,
        "meta": {**where, **meta},
    }


def criterion_details(criterion: CriterionScore) -> dict[str, Json]:
    """Return a criterion in the shape of `reward-details.json`."""
    details: dict[str, Json] = {
        "name": criterion.name,
        "value": round(criterion.value, 4),
        "raw": criterion.raw,
        "weight": criterion.weight,
    }
    if criterion.description:
        details["description"] = criterion.description
    if criterion.reason:
        details["reasoning"] = criterion.reason
    if criterion.is_negated:
        details["negate"] = True
    if not criterion.is_required:
        details["optional"] = True
    if criterion.agreement is not None:
        details["samples"] = list(criterion.samples)
        details["agreement"] = round(criterion.agreement, 4)
    return details


def judge_details(score: float, criteria: Sequence[CriterionScore], record: JudgeRecord) -> dict[str, Json]:
    """Return the content of `reward-details.json`."""
    usage: dict[str, Json] = {
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "cache_read_input_tokens": record.cached_tokens,
        "total_tokens": record.input_tokens + record.output_tokens,
    }
    if record.cost_usd is not None:
        usage["cost_usd"] = record.cost_usd
    return {
        "reward": {
            "score": score,
            "criteria": [criterion_details(criterion) for criterion in criteria],
            "kind": "llm",
            "judge": {"model": record.model, "models": list(record.models), "samples": record.samples},
            "usage": usage,
            "warnings": list(record.warnings),
        }
    }


def evaluation_details(score: float, criteria: Sequence[CriterionScore]) -> Mapping[str, Json]:
    """Return the content of `evaluation_details.json`."""
    return {
        "score": score,
        "n_passed": sum(criterion.passed for criterion in criteria),
        "n_total": len(criteria),
        "results": [
            {
                "id": criterion.name,
                "description": criterion.description,
                "score": criterion.value,
                "weight": criterion.weight,
                "verdict": _verdict(criterion),
            }
            for criterion in criteria
        ],
    }


def _verdict(criterion: CriterionScore) -> dict[str, Json]:
    """Return what the judge said: pass or fail of a question with yes and no, else its score."""
    is_binary = criterion.raw is None or isinstance(criterion.raw, bool)
    said: dict[str, Json] = (
        {"verdict": "pass" if criterion.passed else "fail"} if is_binary else {"score": criterion.raw}
    )
    return {**said, "reasoning": criterion.reason}
