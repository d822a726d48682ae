"""Score a workspace: bring the hidden tests in, run them within their limit, read the reward they leave."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, VerifierError
from pytest_benchflow.core.text import exit_status, last_line, tail
from pytest_benchflow.sandboxes import empty_dirs_script, exec_checked, upload_selected
from pytest_benchflow.verify.criteria import CriterionScore
from pytest_benchflow.verify.reward_details import read_criteria
from pytest_benchflow.verify.rewards import Checks, read_checks, read_rewards
from pytest_benchflow.verify.spoiled import spoiled_error

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Service
    from pytest_benchflow.tasks import TaskStep


LOGS = "/logs/verifier"
#: A home for a verifier whose own the agent could write to.
FRESH_HOME = "/var/lib/benchflow-verifier-home"
OUTPUT = "test-stdout.txt"
_STEP_TIMEOUT_SEC = 180.0
_LOGS_MADE_ANEW = "if [ -L /logs ] || [ ! -d /logs ]; then rm -rf -- /logs && mkdir /logs || exit 1; fi\n"


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verifier said."""

    rewards: dict[str, float]
    checks: Checks | None
    criteria: tuple[CriterionScore, ...] = ()
    """What the reward is made of, if the verifier says it."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """Runs the tests of one step in one sandbox and keeps what they write in a host directory."""

    sandbox: Service
    """The sandbox, or the service of it that the task names."""
    step: TaskStep
    target: str
    """Where the tests go: /tests, or /verifier for native tasks."""
    env: Mapping[str, str]
    timeout_sec: float
    upload: bool = True
    """False when the verifier's own image brings the tests along."""
    owner: str | None = None
    """Who alone may write the results, as `chown` takes it; None lets everyone."""
    settle: Callable[[], Awaitable[None]] | None = None
    """Ends what the tests have started before their results are read: it may be the agent's code."""

    async def run(self, into: Path) -> Verification:
        """Run the tests and return the reward; whatever keeps them from giving one is an error, never a zero."""
        await self._prepare()
        try:
            status = await self._run_script()
        except BenchflowError:
            with suppress(BenchflowError):  # what went wrong first is what the reader has to know
                await self._collect(into)
            raise
        if self.settle is not None:
            await self.settle()
        await self._collect(into)
        ending = _ending(status, into / OUTPUT)
        rewards = read_rewards(into, self.step.verifier.reward_range, ending, self._policy)
        return Verification(rewards, read_checks(into), read_criteria(into))

    async def clear(self) -> None:
        """Take tests and results away again, so that the next step's agent sees neither."""
        script = self._emptied(private=self.target) + self._owned("0:0")
        await self._must(script, "clear the verifier's files")

    def _emptied(self, private: str | None = None) -> str:
        return empty_dirs_script(LOGS, private=private, mode="777" if self.owner is None else "755")

    def _owned(self, owner: str) -> str:
        """Return the command that gives the results' directory to its owner; root, who runs it, may have it already."""
        if self.owner is None:
            return ""
        has_it = f"{{ [ -O {LOGS} ] && [ -G {LOGS} ]; }} || " if owner in ("0", "0:0") else ""
        return f"{has_it}chown {owner} {LOGS} || exit 1\n"

    async def _prepare(self) -> None:
        workspace = _made_anew(getattr(self.sandbox, "workdir", "/"))
        if not self.upload:
            script = _LOGS_MADE_ANEW + self._emptied() + workspace + self._owned(self.owner or "")
            await self._must(script, "empty /logs/verifier", error=spoiled_error)
            return
        script = _LOGS_MADE_ANEW + self._emptied(private=self.target) + workspace
        script += self._owned(self.owner or "")
        if self.env.get("HOME") == FRESH_HOME:
            script += (
                f"rm -rf {FRESH_HOME} && mkdir -m 700 {FRESH_HOME} && chown {self.owner or 0} {FRESH_HOME} || exit 1\n"
            )
        if self.target != "/tests":
            script += f"\nrm -rf /tests && ln -s {self.target} /tests"
        await self._must(script, "empty /logs/verifier", error=spoiled_error)
        for directory in self.step.tests_dirs:
            await upload_selected(self.sandbox, directory, self.target, self.step.left_out.get(directory, ()))
        if not all(_is_executable(directory / self.step.test_script) for directory in self.step.tests_dirs):
            await self._must(f"chmod +x {shlex.quote(self._script)}", "make the test script executable")

    async def _run_script(self) -> int:
        # Some programs take an empty variable for an answer.
        absent = [name for name, value in self.env.items() if not value]
        unset = f"unset {shlex.join(absent)}; " if absent and self.owner is not None else ""
        command = unset + f"{self._command} >{LOGS}/{OUTPUT} 2>&1 </dev/null"
        try:
            done = await self.sandbox.exec(
                command, user=self.step.verifier.user, env=self.env, timeout_sec=self.timeout_sec
            )
        except TimeoutError:
            raise VerifierError(
                f"the verifier did not end within {self.timeout_sec:g} s",
                advice="raise [verifier] timeout_sec or use --bf-timeout-multiplier",
            ) from None
        return done.return_code

    async def _collect(self, into: Path) -> None:
        try:
            await self.sandbox.download_dir(LOGS, into)
        except FileNotFoundError:
            raise VerifierError("the verifier removed /logs/verifier") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise VerifierError(f"what the verifier left in /logs/verifier cannot be kept: {reason}") from None

    async def _must(self, script: str, what: str, error: Callable[[str], VerifierError] = VerifierError) -> None:
        limit = _STEP_TIMEOUT_SEC
        await exec_checked(self.sandbox, script, what, cwd="/", timeout_sec=limit, error=error)

    @property
    def _policy(self) -> Mapping[str, object] | None:
        """What a native task's document says of making a reward of metrics; None in other tasks, which have none."""
        strategy = self.step.verifier.strategy
        if strategy is None:
            return {} if self.target == "/verifier" else None
        policy = strategy.outputs.get("aggregate_policy")
        return policy if isinstance(policy, Mapping) else {}

    @property
    def _command(self) -> str:
        """What runs the tests: their script, or a strategy's command in their directory."""
        strategy = self.step.verifier.strategy
        if strategy is None or strategy.command is None:
            return shlex.quote(self._script)
        return f"{{ cd {self.target} && {{\n{strategy.command}\n}}; }}"

    @property
    def _script(self) -> str:
        return f"{self.target}/{self.step.test_script}"


def output_tail(directory: Path) -> str | None:
    """Return the last lines the verifier printed."""
    return tail(directory / OUTPUT)


def _ending(status: int, output: Path) -> str:
    """Say how the verifier ended and what it said last, for a reader who expected a reward."""
    last = last_line(tail(output) or "")
    return exit_status(status) + (f", and its last line is {last}" if last else " and printed nothing")


def _made_anew(directory: str) -> str:
    """Return a command after which the tests have a place to start in, whatever the agent did to its workspace."""
    path = shlex.quote(directory)
    return f"[ -d {path} ] || {{ rm -rf -- {path} && mkdir -p -- {path}; }} || exit 1\n"


def _is_executable(path: Path) -> bool:
    return not path.exists() or os.stat(path).st_mode & 0o555 == 0o555
