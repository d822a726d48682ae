"""Run the commands of one installation: logged, owned, and gone when the runner is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_benchflow.core.errors import InstallError
from pytest_benchflow.core.text import one_line

#: Has the kernel kill the command when the runner dies, whatever kills that; 1 is PR_SET_PDEATHSIG.
_TIED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    print(f"{sys.argv[1]}: {error.strerror}", flush=True)
    os._exit(127)
"""
_TAIL_BYTES = 64 << 10


class Commands:
    """Runs commands for one agent, with everything they print in one log."""

    def __init__(self, agent: str, log: Path) -> None:
        self.agent = agent
        self._log = log
        log.write_bytes(b"")

    async def run(
        self,
        argv: Sequence[str],
        *,
        explain: Callable[[Sequence[str]], str],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        accept: Sequence[int] = (0,),
    ) -> None:
        """Run a command to its end; if it fails, `explain` finds the reason in the lines that it printed."""
        status, lines = await self.attempt(argv, cwd=cwd, env=env)
        if status not in accept:
            raise self.failed(explain(lines), status)

    async def attempt(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: float | None = None,
    ) -> tuple[int | None, list[str]]:
        """Return how a command ended, None if it was still running at the end of its time, and its last lines."""
        shown = ["…" if "\n" in word else word for word in argv]
        self.say(f"$ {shlex.join(shown)}")
        with self._log.open("ab") as log:
            start = log.tell()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _TIED, *argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        status: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_sec):
                    status = await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
        return status, self._printed(start)

    def say(self, line: str) -> None:
        """Add a line of our own to the log."""
        with self._log.open("a") as log:
            log.write(f"{line}\n")

    def failed(self, reason: str, status: int | None = None) -> InstallError:
        """Return the error that tells why the agent cannot be installed."""
        code = "" if status is None else f" (rc={status})"
        return InstallError(
            f"Agent {self.agent} install failed{code}: {one_line(reason, 300)}", advice=f"see {self._log}"
        )

    def _printed(self, start: int) -> list[str]:
        with self._log.open("rb") as log:
            log.seek(max(start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
