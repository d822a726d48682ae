"""Rollouts as training data: chat messages with rewards, one JSON object per line, split by what they are good for."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_benchflow.reporting.dialogue import Passage, passages_of

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.rollout import RolloutResult

ROLLOUTS, SFT, RL = "rollouts", "sft", "rl"
FILES = (ROLLOUTS, SFT, RL)


@dataclass(slots=True)
class Exported:
    """What was written, and why the rest was not."""

    rows: Counter[str] = field(default_factory=Counter)
    """Rows by file."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Rollouts that are in none of the files, by reason."""
    not_sft: Counter[str] = field(default_factory=Counter)
    """Rollouts that nobody should learn to imitate, by reason."""

    def as_json(self) -> dict[str, Json]:
        """Return the numbers as plain data."""
        return {"rows": {**self.rows}, "left_out": {**self.left_out}, "not_in_sft": {**self.not_sft}}


def write_training(
    results: Iterable[RolloutResult], directory: Path, *, min_reward: float | None = None, holdout: float = 0.0
) -> Exported:
    """Write `rollouts.jsonl` (all that were scored), `rl.jsonl` (prompt and reward) and `sft.jsonl` (what was good).

    Good is a reward that reaches `min_reward`, or the rollout's own threshold, without a finding of the defences. A
    share of the tasks is held out: its rows go into files of their own, so that nothing of a task is in both.
    """
    directory.mkdir(parents=True, exist_ok=True)
    exported = Exported()
    with ExitStack() as stack:
        lines = _Lines(directory, stack)
        for result in results:
            passages = passages_of(result.trajectory)
            if (reason := _unusable(result, passages)) is not None:
                exported.left_out[reason] += 1
                continue
            split = "-holdout" if _share_of(result) < holdout else ""
            rows = {ROLLOUTS: _rollout_row(result, passages), RL: _rl_row(result, passages)}
            if (reason := _not_good(result, min_reward)) is None:
                rows[SFT] = {"messages": [*_messages(passages)], "info": _info(result)}
            else:
                exported.not_sft[reason] += 1
            for name, row in rows.items():
                lines.write(f"{name}{split}", row)
                exported.rows[f"{name}{split}.jsonl"] += 1
        lines.keep()
    return exported


class _Lines:
    """Files that appear when all of them are complete; what a failure cut short is removed."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._open: dict[str, tuple[Path, IO[str]]] = {}
        for name in FILES:
            self._file(name)

    def write(self, name: str, row: Mapping[str, Json]) -> None:
        self._file(name).write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n")

    def keep(self) -> None:
        for name, (draft, file) in self._open.items():
            file.close()
            draft.replace(self._directory / f"{name}.jsonl")

    def _file(self, name: str) -> IO[str]:
        if name not in self._open:
            draft = self._directory / f".{name}.{os.getpid()}.tmp"
            self._stack.callback(draft.unlink, missing_ok=True)
            self._open[name] = draft, self._stack.enter_context(draft.open("w", encoding="utf-8"))
        return self._open[name][1]


def _unusable(result: RolloutResult, passages: list[Passage]) -> str | None:
    if result.reward is None:
        return "no reward"
    if not any(passage.source == "agent" and not passage.is_program for passage in passages):
        return "no dialogue with a model"
    return None


def _not_good(result: RolloutResult, min_reward: float | None) -> str | None:
    least = result.threshold if min_reward is None else min_reward
    if result.reward is None or result.reward < least:
        return "reward too low"
    return "tripped a defence" if result.integrity else None


def _rollout_row(result: RolloutResult, passages: list[Passage]) -> dict[str, Json]:
    messages = [*_messages(passages)]
    first = next((place for place, message in enumerate(messages) if message["role"] != "user"), len(messages))
    return {
        "prompt": [*messages[:first]],
        "completion": [*messages[first:]],
        "reward": result.reward,
        "rewards": {**(result.rewards or {})},
        "reward_events": [asdict(event) for event in result.reward_events],
        "info": _info(result),
    }


def _rl_row(result: RolloutResult, passages: list[Passage]) -> dict[str, Json]:
    prompt = [_said("user", passage.text) for passage in passages if passage.source == "user"][:1]
    return {"prompt": [*prompt], "reward": result.reward, "group": result.task_name, "info": _info(result)}


def _messages(passages: Iterable[Passage]) -> Iterator[dict[str, Json]]:
    """Yield the dialogue as chat messages; what the harness says of it is not part of it."""
    number = 0
    for passage in passages:
        if passage.source == "user":
            yield _said("user", passage.text)
        elif passage.source == "agent" and not passage.is_program:
            message = _said("assistant", passage.text)
            if passage.thought:
                message["reasoning_content"] = passage.thought
            names = [f"call_{number + place}" for place in range(1, len(passage.calls) + 1)]
            number += len(names)
            if names:
                message["tool_calls"] = [
                    {
                        "id": name,
                        "type": "function",
                        "function": {"name": call.kind, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                    }
                    for name, call in zip(names, passage.calls, strict=True)
                ]
            yield message
            for name, call in zip(names, passage.calls, strict=True):
                yield {**_said("tool", call.output), "tool_call_id": name}


def _said(role: str, text: str) -> dict[str, Json]:
    return {"role": role, "content": text}


def _info(result: RolloutResult) -> dict[str, Json]:
    return {
        "rollout": result.rollout_name,
        "task": result.task_name,
        "task_digest": result.task_digest,
        "agent": result.agent,
        "agent_version": result.agent_version,
        "model": result.model,
        "scene": result.scene,
        "trial": result.trial,
        "passed": result.passed,
        "threshold": result.threshold,
        "tokens": {"input": result.tokens.input, "output": result.tokens.output},
        "cost_usd": result.cost_usd,
    }


def _share_of(result: RolloutResult) -> float:
    """Return a number from 0 to 1 that is the same for all rollouts of a task, on every machine."""
    digest = hashlib.sha256(result.task_name.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8]) / 2**64
