"""`bf-verify`: a command in a sandbox that runs the verifier from outside, as often as somebody asks."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, SandboxError
from pytest_benchflow.sandboxes import exec_checked
from pytest_benchflow.verify import primary_reward

if TYPE_CHECKING:
    from pytest_benchflow.rollout import Rollout, SoftVerification
    from pytest_benchflow.sandboxes import Process

COMMAND = "bf-verify"
_PLACE = "/run/benchflow"
_TIMEOUT_SEC = 30.0
_SHOWN_CHECKS = 5
#: Statuses of the command.
_PASSED, _FAILED, _NO_REWARD = 0, 1, 2

# A directory of its own for the pipes: in one with a sticky bit, as /tmp, not even root may write to others' pipes.
# Who asks makes a pipe for the answer and names it; the pipe of questions is open on both sides, so that it never ends.
_LISTEN = f"""
cd {_PLACE} && exec 3<>questions && echo ready || exit 1
while read -r question <&3; do printf '%s\\n' "$question"; done
"""

_INSTALL = f"""
mkdir -p {_PLACE} /usr/local/bin && cd {_PLACE} && rm -f questions && mkfifo questions || exit 1
chmod 777 . && chmod 666 questions || exit 1
cat >/usr/local/bin/{COMMAND} && chmod 755 /usr/local/bin/{COMMAND}
"""

_SCRIPT = f"""#!/bin/bash
# Runs the task's verifier on what is here now, and prints its output and the reward.
answer=$(mktemp -u {_PLACE}/answer.XXXXXX) && mkfifo -m 622 "$answer" || exit {_NO_REWARD}
trap 'rm -f "$answer"' EXIT
trap 'echo "cancel $answer" >{_PLACE}/questions; exit 130' INT TERM HUP
echo "verify $answer" >{_PLACE}/questions
exec 3<>"$answer"
read -r status <&3 && read -r size <&3 && head -c "$size" <&3
exit "${{status:-{_NO_REWARD}}}"
"""


@asynccontextmanager
async def verify_command(rollout: Rollout, into: Path) -> AsyncIterator[None]:
    """Have the command in the sandbox of a rollout; each verification gets a directory of its own in `into`."""
    sandbox = rollout.sandbox
    script = _SCRIPT.encode()
    await exec_checked(sandbox, _INSTALL, f"install {COMMAND}", cwd="/", stdin=script, timeout_sec=_TIMEOUT_SEC)
    process = await sandbox.open_process(["bash", "-c", _LISTEN], user=0, cwd="/")
    listener = _Listener(rollout, process, into)
    async with asyncio.timeout(_TIMEOUT_SEC):
        if await listener.line() != "ready":
            raise SandboxError(f"{COMMAND} cannot be had in this sandbox")
    listening = asyncio.create_task(listener.run())
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.wait([listening])
        with suppress(BenchflowError):
            await process.kill()


class _Listener:
    """Answers questions one after the other; whoever asked may take the question back."""

    def __init__(self, rollout: Rollout, process: Process, into: Path) -> None:
        self._rollout = rollout
        self._process = process
        self._into = into
        self._numbers = count(1)
        self._buffer = b""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    async def line(self) -> str:
        """Return the next line of the process; "" at its end."""
        while b"\n" not in self._buffer:
            data = await self._process.read()
            if not data:
                return ""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    async def run(self) -> None:
        """Answer until the process ends or this is cancelled."""
        try:
            while line := await self.line():
                word, _, answer = line.partition(" ")
                if word == "cancel" and answer in self._running:
                    self._running[answer].cancel()
                elif word == "verify":
                    self._running[answer] = task = asyncio.create_task(self._verify(answer))
                    task.add_done_callback(lambda _, answer=answer: self._running.pop(answer, None))  # type: ignore[misc]
        finally:
            tasks = [*self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _verify(self, answer: str) -> None:
        async with self._turn:
            try:
                soft = await self._rollout.rehearse_verification(self._into / str(next(self._numbers)))
                status, text = describe(soft, self._rollout.config.threshold)
            except BenchflowError as error:
                status, text = _NO_REWARD, f"no reward: {error}\n"
        data = text.encode()
        head = f"{status}\n{len(data)}\n".encode()
        script = f"[ -p {shlex.quote(answer)} ] && cat >{shlex.quote(answer)}"
        with suppress(BenchflowError, TimeoutError):
            await self._rollout.sandbox.exec(script, user=0, cwd="/", stdin=head + data, timeout_sec=_TIMEOUT_SEC)


def describe(soft: SoftVerification, threshold: float) -> tuple[int, str]:
    """Return the command's status for a verification and what it prints: the verifier's output, then the reward."""
    output = soft.output or ""
    lines = [output if output.endswith("\n") or not output else f"{output}\n"]
    if soft.verification is None:
        return _NO_REWARD, "".join([*lines, f"no reward: {soft.error}\n"])
    reward, checks = primary_reward(soft.verification.rewards), soft.verification.checks
    parts = [f"reward {reward:g}"]
    if len(soft.verification.rewards) > 1:
        parts += [f"{name} {value:g}" for name, value in soft.verification.rewards.items() if name != "reward"]
    if checks is not None:
        parts.append(f"{len(checks.passed)} of {checks.total} checks passed")
        if checks.failed:
            more = f" and {len(checks.failed) - _SHOWN_CHECKS} more" if len(checks.failed) > _SHOWN_CHECKS else ""
            parts.append(f"failing: {', '.join(checks.failed[:_SHOWN_CHECKS])}{more}")
    lines.append(" · ".join(parts) + "\n")
    return (_PASSED if reward >= threshold else _FAILED), "".join(lines)
