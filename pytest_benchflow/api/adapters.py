"""Scenes and rewards in the shapes of other frameworks, as plain data: Inspect's tasks and OpenReward's records."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_benchflow.core.types import Json
from pytest_benchflow.rollout import Scene
from pytest_benchflow.verify import RewardEvent, Rubric, VerifyResult


@dataclass
class InspectAdapter:
    """A scene, and perhaps the rubric that scores it, as a task of Inspect."""

    scene: Scene
    rubric: Rubric | None = None

    def to_inspect_task(self) -> dict[str, Json]:
        """Return the task: its name, a sample for each turn, and what the scorer is made of."""
        task: dict[str, Json] = {
            "name": self.scene.name,
            "dataset": [{"input": turn.prompt or "", "role": turn.role} for turn in self.scene.turns],
        }
        if self.rubric is not None:
            weights = self.rubric.weights
            task["scorer"] = {
                "type": "benchflow_rubric",
                "reward_funcs": len(self.rubric.reward_funcs),
                "weights": None if weights is None else [*weights],
            }
        return task


class ORSAdapter:
    """Rewards as records of OpenReward; a reward that is not known is null and marked as not valid, never a 0."""

    @staticmethod
    def verify_result_to_ors(result: VerifyResult) -> dict[str, Json]:
        """Return the record of a result."""
        reward = result.reward
        is_reward = reward is not None and math.isfinite(reward) and 0 <= reward <= 1
        error = result.error or (None if is_reward else f"{reward!r} is not a reward from 0 to 1")
        return {
            "reward": reward if is_reward else None,
            "is_valid": error is None,
            "metadata": {
                "items": {name: _finite(score) for name, score in result.items.items()},
                "events": [ORSAdapter.reward_event_to_ors(event) for event in result.events],
                "error": error,
                "space": result.space,
                "granularity": result.granularity,
            },
        }

    @staticmethod
    def reward_event_to_ors(event: RewardEvent) -> dict[str, Json]:
        """Return the record of an event."""
        return {
            "type": event.type,
            "reward": _finite(event.reward),
            "source": event.source,
            "step": event.step,
            "space": event.space,
            "granularity": event.granularity,
            "timestamp": event.ts,
        }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def to_inspect_task(scene: Scene, rubric: Rubric | None = None) -> dict[str, Json]:
    """Return a scene as a task of Inspect."""
    return InspectAdapter(scene, rubric).to_inspect_task()


def to_ors_reward(result: VerifyResult) -> dict[str, Json]:
    """Return a result as a record of OpenReward."""
    return ORSAdapter.verify_result_to_ors(result)
