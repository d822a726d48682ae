"""Rounds with a user: a prompt, the agent's work on it, its score, and from that the user's next prompt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pytest_benchflow.core.errors import BadValue, BenchflowError
from pytest_benchflow.rollout.users import (
    BaseUser,
    LoopStrategy,
    RoundResult,
    VerifyRetryUser,
    loop_report,
    parse_loop,
    round_record,
)

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.scenes import PlannedTurn, Scene
    from pytest_benchflow.rollout.sessions import Execution
    from pytest_benchflow.rollout.step_run import SoftVerification
    from pytest_benchflow.tasks import TaskStep


class RoundAgent(Protocol):
    """The agent as a user sees it: it takes a prompt, and then its work can be scored."""

    async def prompt(self, turn: PlannedTurn, text: str) -> Execution:
        """Let the agent of a turn work on a prompt in a session of its own."""

    async def score(self) -> SoftVerification:
        """Run the hidden tests on the agent's work so far."""


class UserLoop:
    """A user, the rounds it may have, and the results of those it had."""

    def __init__(self, config: RolloutConfig, user: BaseUser, max_rounds: int, loop: LoopStrategy | None) -> None:
        self._config = config
        self._user = user
        self._loop = loop
        self.max_rounds = max_rounds
        self.rounds: list[RoundResult] = []
        self._tokens: list[int | None] = []
        self._failed = False

    @classmethod
    def of(cls, config: RolloutConfig, scenes: Sequence[Scene]) -> UserLoop | None:
        """Return the loop that a configuration asks for, None if it has no user."""
        loop = None if config.loop_strategy is None else parse_loop(config.loop_strategy)
        user = config.user if loop is None else loop.user(config.threshold)
        if user is None:
            return None
        for scene in scenes:
            if len(scene.roles) != 1:
                raise BadValue(
                    f"scene {scene.name!r} has {len(scene.roles)} roles, and a user talks to one",
                    advice="give it one role, or leave the user out",
                )
        rounds = config.max_user_rounds if loop is None else loop.max_user_rounds
        turns = sum(len(scene.effective_turns) for scene in scenes)
        if turns > rounds:
            raise BadValue(
                f"the scenes have {turns} turns and the user {rounds} rounds", advice="raise max_user_rounds"
            )
        return cls(config, user, rounds, loop)

    @property
    def report(self) -> dict[str, Json] | None:
        """The content of `loop.json`: the rounds so far and why they ended; None for a user without a strategy."""
        if self._loop is None:
            return None
        threshold = self._config.threshold
        return loop_report(self._loop, self.rounds, threshold=threshold, failed=self._failed, tokens=self._tokens)

    async def run(
        self,
        agent: RoundAgent,
        step: TaskStep,
        turns: Sequence[PlannedTurn],
        on_round: Callable[[Mapping[str, Json]], None],
    ) -> None:
        """Go through the rounds until the user has no prompt left or the agent cannot take one.

        `on_round` gets the line of `user_rounds.jsonl` after every round.
        """
        try:
            await self._user.setup(step.instruction, self._solution(step))
            for number in range(self.max_rounds):
                turn = turns[min(number, len(turns) - 1)]
                instruction = turn.prompt if number < len(turns) else step.instruction
                prompt = await self._next_prompt(number, instruction)
                if prompt is None or not await self._round(agent, number, turn, prompt, on_round):
                    break
        except BaseException:
            self._failed = True
            raise

    async def _next_prompt(self, number: int, instruction: str) -> str | None:
        try:
            return await self._user.run(number, instruction, self.rounds[-1] if self.rounds else None)
        except Exception as error:
            message = f"user.run() failed at round {number}: {type(error).__name__}: {error}"
            raise BenchflowError(message, advice="correct the user") from error

    async def _round(
        self,
        agent: RoundAgent,
        number: int,
        turn: PlannedTurn,
        prompt: str,
        on_round: Callable[[Mapping[str, Json]], None],
    ) -> bool:
        """Let the agent work on a prompt and score it; return whether another round can follow."""
        start = time.monotonic()
        execution = await agent.prompt(turn, prompt)
        score = await agent.score()
        result = RoundResult(
            number,
            execution.trajectory,
            score.rewards,
            score.output,
            score.error,
            execution.n_tool_calls,
            turn.scene.name,
            turn.role.name,
            checks=score.verification.checks if score.verification else None,
        )
        tokens, wall_sec = _tokens(execution), time.monotonic() - start
        self.rounds.append(result)
        self._tokens.append(tokens)
        level = self._user.feedback if isinstance(self._user, VerifyRetryUser) else None
        on_round(round_record(result, prompt=prompt, wall_sec=wall_sec, tokens=tokens, feedback_level=level))
        return execution.can_continue

    def _solution(self, step: TaskStep) -> str | None:
        """Return the task's solution for a user who may see it, read on the host: it never enters the sandbox."""
        if not self._config.oracle_access or step.solution_dir is None:
            return None
        return (step.solution_dir / "solve.sh").read_text("utf-8", errors="replace")


def _tokens(execution: Execution) -> int | None:
    """Return the tokens that a round used, None if its agent did not say."""
    usages = [result.usage for result in execution.results]
    known = [n for usage in usages for n in (usage.input, usage.output) if n is not None]
    return sum(known) if known else None
