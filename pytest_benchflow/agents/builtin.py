"""The built-in agents: `oracle` runs the task's own solution, `nop` does nothing."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents.base import AgentContext, AgentOutcome, AgentRequest, ModelAccess, PromptResult
from pytest_benchflow.configfile import resolve_env
from pytest_benchflow.core.text import exit_status, last_line
from pytest_benchflow.sandboxes import exec_checked, upload_selected

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Mount
    from pytest_benchflow.tasks import Task


class NopSession:
    """A session in which nothing happens."""

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        """Answer at once."""
        return PromptResult(AgentOutcome.COMPLETED)

    async def close(self) -> None:
        """Nothing to end."""


class NopAgent:
    """Leave the workspace as it is."""

    name = "nop"
    takes_model = False
    calls_model = False
    runs_as_task_user = True

    def skip_reason(self, task: Task) -> str | None:
        """It can do nothing anywhere."""
        return None

    def access(self, task: Task, request: AgentRequest) -> ModelAccess:
        """It needs nothing."""
        return ModelAccess(env=request.env)

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        """Nothing to mount."""
        return ()

    async def install(self, context: AgentContext) -> None:
        """Nothing to install."""

    async def connect(self, context: AgentContext) -> NopSession:
        """Open the empty session."""
        return NopSession()


LOG = "/logs/agent/oracle.txt"
_TAIL_BYTES = 4000
_CHMOD_TIMEOUT_SEC = 60.0


class OracleSession:
    """Run `solve.sh` for each prompt, with its output in the agent's log directory."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        """Run the solution; a non-zero exit is recorded and the workspace is verified all the same."""
        script = f"{self._context.task.solution_target}/solve.sh"
        tail = f"[ ! -s {LOG} ] || tail -c {_TAIL_BYTES} {LOG}"
        command = f"{{ {shlex.quote(script)}; }} >{LOG} 2>&1 </dev/null; s=$?; {tail}; exit $s"
        try:
            result = await self._context.sandbox.exec(
                command, user=self._context.user, env=self._context.access.env, timeout_sec=timeout_sec
            )
        except TimeoutError:
            self._context.emit({"type": "agent_timeout", "reason": "wall_clock_timeout", "timeout_sec": timeout_sec})
            return PromptResult(AgentOutcome.TIMED_OUT, f"stopped after {timeout_sec:g} s")
        self._context.emit(
            {"type": "oracle", "command": script, "return_code": result.return_code, "stdout": result.stdout}
        )
        if result.return_code:
            last = last_line(result.stdout)
            detail = f"solve.sh {exit_status(result.return_code)}" + (f": {last}" if last else "")
            return PromptResult(AgentOutcome.NONZERO_EXIT, detail)
        return PromptResult(AgentOutcome.COMPLETED)

    async def close(self) -> None:
        """The script has ended; services it started stay for the verifier."""


class OracleAgent:
    """Upload the solution, which no other agent ever gets, and run it."""

    name = "oracle"
    takes_model = False
    calls_model = False
    runs_as_task_user = True

    def skip_reason(self, task: Task) -> str | None:
        """A task without a solution has no oracle."""
        missing = [step.name or task.short_name for step in task.steps if step.solution_dir is None]
        return f"no oracle solution for {', '.join(missing)}" if missing else None

    def access(self, task: Task, request: AgentRequest) -> ModelAccess:
        """Return the solution's variables, filled in from the runner's environment; they win over those given."""
        resolved = resolve_env(task.config.solution.env, os.environ, f"{task.file}: [solution.env]")
        return ModelAccess(env={"DEBIAN_FRONTEND": "noninteractive", **request.env, **resolved})

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        """Nothing to mount."""
        return ()

    async def install(self, context: AgentContext) -> None:
        """Nothing to install: the solution is plain shell."""

    async def connect(self, context: AgentContext) -> OracleSession:
        """Put the step's solution in place."""
        target = context.task.solution_target
        source = context.step.solution_dir
        assert source is not None  # skip_reason() refused the rollout otherwise
        await upload_selected(context.sandbox, source, target, context.step.left_out.get(source, ()))
        if not _all_executable(source):
            purpose = f"make the solution in {target} executable"
            await exec_checked(
                context.sandbox, f"chmod -R +x {target}", purpose, cwd="/", timeout_sec=_CHMOD_TIMEOUT_SEC
            )
        return OracleSession(context)


def _all_executable(directory: Path) -> bool:
    """Return whether everyone may already run all files of a directory, as is usual for a lone `solve.sh`."""
    files = (Path(root, name) for root, _, names in os.walk(directory) for name in names)
    return all(path.is_symlink() or path.stat().st_mode & 0o555 == 0o555 for path in files)
