"""Trajectories in the Agent Trajectory Interchange Format, built with and checked by the package `atif`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.reporting.dialogue import Call, Passage, passages_of

if TYPE_CHECKING:
    import atif

    from pytest_benchflow.core.types import Json
    from pytest_benchflow.rollout import RolloutResult

VERSION = "ATIF-v1.8"
_NOTES = (
    "Tokens and cost of a prompt are on its last step: agents tell them per prompt. Tool calls are named by their kind "
    "in the Agent Client Protocol; their titles are in extra."
)


def require_atif() -> None:
    """Refuse to go on without the package, before anything is paid for."""
    try:
        import atif  # noqa: F401
    except ImportError:
        advice = "pip install 'pytest-benchflow[atif]'"
        raise UsageError("ATIF files need the package atif", advice=advice) from None


def atif_of(result: RolloutResult) -> atif.Trajectory | None:
    """Return a rollout's trajectory, None if it has none."""
    import atif

    passages = passages_of(result.trajectory)
    if not passages:
        return None
    totals = atif.FinalMetrics(
        total_prompt_tokens=result.tokens.input,
        total_completion_tokens=result.tokens.output,
        total_cached_tokens=result.tokens.cached,
        total_cost_usd=result.cost_usd,
        total_steps=len(passages),
    )
    return atif.Trajectory(
        schema_version=VERSION,
        session_id=result.rollout_name,
        agent=atif.Agent(
            name=result.agent_name or result.agent,
            version=result.agent_version or "unknown",
            model_name=result.model,
        ),
        steps=[_step(number, passage) for number, passage in enumerate(passages, 1)],
        notes=_NOTES,
        final_metrics=totals,
        extra=_facts(result),
    )


def write_atif(results: Sequence[RolloutResult], directory: Path) -> int:
    """Write one file per rollout that has a trajectory, named like its directory, and return how many there are."""
    require_atif()
    directory.mkdir(parents=True, exist_ok=True)
    written = 0
    for result in results:
        trajectory = atif_of(result) if result.rollout_name else None
        if trajectory is not None:
            text = json.dumps(trajectory.model_dump(exclude_none=True), indent=2, ensure_ascii=False) + "\n"
            write_atomically(directory / f"{result.rollout_name}.json", text.encode("utf-8", "replace").decode())
            written += 1
    return written


def _step(number: int, passage: Passage) -> atif.Step:
    import atif

    extra = {**passage.place, "prompt_tokens_are_of": "the whole prompt"} if passage.usage else {**passage.place}
    step: dict[str, object] = {
        "step_id": number,
        "source": passage.source,
        "timestamp": None if passage.ts is None else datetime.fromtimestamp(passage.ts, UTC).isoformat(),
        "message": passage.text,
        "extra": extra or None,
    }
    if passage.source != "agent":
        return atif.Step.model_validate(step)
    calls = [_tool_call(f"{number}.{place}", call) for place, call in enumerate(passage.calls, 1)]
    outputs = [
        atif.ObservationResult(source_call_id=made.tool_call_id, content=call.output)
        for made, call in zip(calls, passage.calls, strict=True)
        if call.output
    ]
    return atif.Step.model_validate(
        {
            **step,
            "model_name": passage.models[-1] if passage.models else None,
            "reasoning_content": passage.thought or None,
            "tool_calls": calls or None,
            "observation": atif.Observation(results=outputs) if outputs else None,
            "metrics": None if passage.is_program else _metrics(passage.usage),
            "llm_call_count": 0 if passage.is_program else None,
        }
    )


def _tool_call(name: str, call: Call) -> atif.ToolCall:
    """Return a call under a name of our own: agents use theirs again in later turns."""
    import atif

    extra = {"tool_call_id": call.id, "title": call.title, "status": call.status, "duration_sec": call.seconds}
    known = {key: value for key, value in extra.items() if value not in (None, "")}
    return atif.ToolCall(tool_call_id=name, function_name=call.kind, arguments=call.arguments, extra=known)


def _metrics(usage: dict[str, Json] | None) -> atif.Metrics | None:
    import atif

    words = {"input": "prompt_tokens", "output": "completion_tokens", "cached": "cached_tokens", "cost_usd": "cost_usd"}
    known = {theirs: usage.get(ours) for ours, theirs in words.items() if usage.get(ours) is not None} if usage else {}
    return atif.Metrics.model_validate(known) if known else None


def _facts(result: RolloutResult) -> dict[str, Json]:
    facts: dict[str, Json] = {
        "task": result.task_name,
        "task_digest": result.task_digest,
        "status": result.status,
        "reward": result.reward,
        "rewards": None if result.rewards is None else {**result.rewards},
        "threshold": result.threshold,
        "agent": result.agent,
        "scene": result.scene,
        "trial": result.trial,
        "error": None if result.error is None else result.error.model_dump(mode="json"),
    }
    return {key: value for key, value in facts.items() if value is not None}
