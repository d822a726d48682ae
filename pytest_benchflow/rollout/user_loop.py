"""Rounds with a user: say something, let the agent work, look at what came of it, decide what to say next."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BadValue, BenchflowError, RewardError, VerifierError
from pytest_benchflow.rollout.sessions import may_go_on
from pytest_benchflow.rollout.trajectory import write_json
from pytest_benchflow.rollout.users import (
    BaseUser,
    LoopStrategy,
    RoundResult,
    VerifyRetryUser,
    loop_report,
    parse_loop,
    round_record,
)
from pytest_benchflow.verify import OUTPUT

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.recorder import Recorder
    from pytest_benchflow.rollout.rollout import Rollout
    from pytest_benchflow.rollout.scenes import PlannedTurn, Scene
    from pytest_benchflow.rollout.step_run import StepRun
    from pytest_benchflow.tasks import TaskStep
    from pytest_benchflow.verify import Verification


_MAX_OUTPUT_CHARS = 64_000


class UserLoop:
    """A user, the rounds it may have, and what came of them."""

    def __init__(self, config: RolloutConfig, user: BaseUser, max_rounds: int, loop: LoopStrategy | None) -> None:
        self._config = config
        self._user = user
        self._loop = loop
        self.max_rounds = max_rounds
        self.rounds: list[RoundResult] = []
        self._tokens: list[int | None] = []

    @classmethod
    def of(cls, config: RolloutConfig, scenes: Sequence[Scene]) -> UserLoop | None:
        """Return the conversation a configuration asks for; None if turns are all there is."""
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

    async def hold(self, rollout: Rollout, step: TaskStep, turns: Sequence[PlannedTurn]) -> None:
        """Go through the rounds; the last prompt's bad end or an error of the user's ends them."""
        failed = False
        try:
            await self._user.setup(step.instruction, self._solution(step))
            for number in range(self.max_rounds):
                turn = turns[min(number, len(turns) - 1)]
                instruction = turn.prompt if number < len(turns) else step.instruction
                prompt = await self._next(number, instruction)
                if prompt is None or not await self._round(rollout, number, turn, prompt):
                    break
        except BaseException:
            failed = True
            raise
        finally:
            if self._loop is not None and rollout.recorder.directory is not None:
                report = loop_report(
                    self._loop, self.rounds, threshold=self._config.threshold, failed=failed, tokens=self._tokens
                )
                write_json(rollout.recorder.directory / "loop.json", report)

    async def _next(self, number: int, instruction: str) -> str | None:
        try:
            return await self._user.run(number, instruction, self.rounds[-1] if self.rounds else None)
        except Exception as error:
            said = f"user.run() failed at round {number}: {type(error).__name__}: {error}"
            raise BenchflowError(said, advice="mend the user") from error

    async def _round(self, rollout: Rollout, number: int, turn: PlannedTurn, prompt: str) -> bool:
        began, before = time.monotonic(), rollout.recorder.tokens
        await rollout.connect_for(turn)
        try:
            done = await rollout.execute(prompt)
        finally:
            await rollout.disconnect()
        soft = await rollout.soft_verification()
        result = RoundResult(
            number,
            done.trajectory,
            soft.rewards,
            soft.output,
            soft.error,
            done.n_tool_calls,
            turn.scene.name,
            turn.role.name,
            checks=soft.verification.checks if soft.verification else None,
        )
        used = _difference(rollout.recorder, before.input, before.output)
        self.rounds.append(result)
        self._tokens.append(used)
        level = self._user.feedback if isinstance(self._user, VerifyRetryUser) else None
        line = round_record(result, prompt=prompt, wall_sec=time.monotonic() - began, tokens=used, feedback_level=level)
        rollout.recorder.append_line("user_rounds.jsonl", json.dumps(line, ensure_ascii=False))
        return may_go_on(done.results[-1])

    def _solution(self, step: TaskStep) -> str | None:
        """Return the task's solution for a user who may see it, read on the host: it never enters the sandbox."""
        if not self._config.oracle_access or step.solution_dir is None:
            return None
        return (step.solution_dir / "solve.sh").read_text("utf-8", errors="replace")


class SoftVerification:
    """What the hidden tests say between two rounds."""

    def __init__(self, verification: Verification | None, output: str | None, error: str | None) -> None:
        self.verification = verification
        self.output = output
        self.error = error

    @property
    def rewards(self) -> dict[str, float] | None:
        """The rewards, None if the verifier gave none."""
        return None if self.verification is None else self.verification.rewards


async def softly_verified(work: StepRun, into: Path) -> SoftVerification:
    """Run the hidden tests between two rounds; what keeps them from giving a reward is returned, not raised."""
    try:
        verification, error = await work.soft_verify(into), None
    except (VerifierError, RewardError) as caught:
        verification, error = None, str(caught)
    return SoftVerification(verification, _output(into), error)


def _output(directory: Path) -> str | None:
    try:
        text = (directory / OUTPUT).read_text("utf-8", errors="replace")
    except OSError:
        return None
    return text[-_MAX_OUTPUT_CHARS:]


def _difference(recorder: Recorder, input_before: int | None, output_before: int | None) -> int | None:
    now = (recorder.tokens.input, recorder.tokens.output)
    if now == (None, None):
        return None
    return sum(n or 0 for n in now) - (input_before or 0) - (output_before or 0)
