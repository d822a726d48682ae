"""Rounds with a user, without a rollout: all a loop needs is something that takes prompts and can be scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_benchflow import FunctionUser, Role, RolloutConfig, RoundResult, Scene
from pytest_benchflow.agents import AgentOutcome, PromptResult, Usage
from pytest_benchflow.core.errors import BadValue, BenchflowError
from pytest_benchflow.core.types import Json
from pytest_benchflow.rollout.scenes import PlannedTurn, plan_turns
from pytest_benchflow.rollout.sessions import Execution
from pytest_benchflow.rollout.step_run import SoftVerification
from pytest_benchflow.rollout.user_loop import UserLoop
from pytest_benchflow.tasks import TaskStep, load_task
from pytest_benchflow.verify import Verification


class ScriptedAgent:
    """Ends its prompts in the given ways, and gets the given rewards; None is a verifier that failed."""

    def __init__(self, rewards: list[float | None], outcomes: list[AgentOutcome] | None = None) -> None:
        self._rewards = iter(rewards)
        self._outcomes = iter(outcomes or [AgentOutcome.COMPLETED] * len(rewards))
        self.prompts: list[str] = []

    async def prompt(self, turn: PlannedTurn, text: str) -> Execution:
        self.prompts.append(text)
        return Execution((PromptResult(next(self._outcomes), usage=Usage(input=10, output=2)),))

    async def score(self) -> SoftVerification:
        reward = next(self._rewards)
        if reward is None:
            return SoftVerification(None, None, "no reward")
        return SoftVerification(Verification({"reward": reward}, None), "looked", None)


@pytest.fixture
def step(make_task: Callable[..., Path]) -> TaskStep:
    return load_task(make_task(files={"instruction.md": "Do it."})).steps[0]


class Rounds:
    """A loop, and the lines that it has recorded."""

    def __init__(self, scenes: list[Scene] | None = None, **settings: object) -> None:
        self.config = RolloutConfig(task_path=Path("x"), scenes=scenes or (), **settings)  # type: ignore[arg-type]
        self.scenes = self.config.effective_scenes
        self.lines: list[Mapping[str, Json]] = []
        loop = UserLoop.of(self.config, self.scenes)
        assert loop is not None
        self.loop = loop

    async def run(self, agent: ScriptedAgent, step: TaskStep) -> None:
        turns = plan_turns(self.scenes, base_prompt=step.instruction)
        await self.loop.run(agent, step, turns, self.lines.append)


def say_twice(round: int, instruction: str, result: RoundResult | None) -> str | None:
    return f"{round}: {instruction}" if round < 2 else None


async def test_the_user_decides_after_every_round(step: TaskStep) -> None:
    rounds, agent = Rounds(user=FunctionUser(say_twice)), ScriptedAgent([0.0, None])
    await rounds.run(agent, step)
    assert agent.prompts == ["0: Do it.", "1: Do it."]
    assert [result.reward for result in rounds.loop.rounds] == [0.0, None]
    shown = [(line["round"], line["rewards"], line["verifier_error"], line["tokens"]) for line in rounds.lines]
    assert shown == [(0, {"reward": 0.0}, None, 12), (1, None, "no reward", 12)]
    assert rounds.loop.report is None


async def test_prompts_of_a_scene_come_before_the_task_again(step: TaskStep) -> None:
    scene = Scene.single(agent="bot", prompts=["first", "second"])
    rounds, agent = (
        Rounds([scene], user=FunctionUser(lambda n, text, _: text), max_user_rounds=3),
        ScriptedAgent([0] * 3),
    )
    await rounds.run(agent, step)
    assert agent.prompts == ["first", "second", "Do it."]


@pytest.mark.parametrize(
    ("rewards", "outcomes", "n_rounds", "reason"),
    [
        ([0.0, 1.0], None, 2, "passed_bar"),
        ([0.0, 0.0, 0.0], None, 3, "max_iterations"),
        ([0.0], [AgentOutcome.CRASHED], 1, "strategy_stop"),
    ],
    ids=["passed", "no retries left", "crashed"],
)
async def test_a_strategy_reports_why_its_rounds_ended(
    step: TaskStep, rewards: list[float | None], outcomes: list[AgentOutcome] | None, n_rounds: int, reason: str
) -> None:
    rounds = Rounds(loop_strategy="verify-retry:k=2")
    await rounds.run(ScriptedAgent(rewards, outcomes), step)
    report = rounds.loop.report
    assert report is not None
    assert (report["iterations_run"], report["stop_reason"]) == (n_rounds, reason)
    assert report["tokens_trajectory"] == [12] * n_rounds
    assert [line["feedback_level"] for line in rounds.lines] == ["names"] * n_rounds


async def test_an_error_of_the_user_ends_the_rounds(step: TaskStep) -> None:
    def fail(*_: object) -> str:
        raise KeyError("x")

    with pytest.raises(BenchflowError, match=r"user\.run\(\) failed at round 0: KeyError: 'x'; correct the user"):
        await Rounds(user=FunctionUser(fail)).run(ScriptedAgent([]), step)


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        (Scene("s", [Role("a", "bot"), Role("b", "bot")]), "scene 's' has 2 roles, and a user talks to one"),
        (Scene.single(agent="bot", prompts=["x"] * 6), "the scenes have 6 turns and the user 5 rounds"),
    ],
)
def test_scenes_that_a_user_cannot_play_are_refused(scene: Scene, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        Rounds([scene], user=FunctionUser(say_twice))
