"""`bf shell`: a task's environment as an agent would find it, with a prompt, or one command in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pytest_benchflow.agents import AgentRegistry, NopAgent, NopSession
from pytest_benchflow.cli.relay import has_terminal, relay_pipes, relay_terminal
from pytest_benchflow.cli.verify_command import COMMAND, verify_command
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, UsageError
from pytest_benchflow.core.files import cache_directory, is_abandoned, temporary_name
from pytest_benchflow.core.removal import remove_tree
from pytest_benchflow.rollout import Resources, Role, Rollout, Scene, make_config
from pytest_benchflow.sandboxes import SandboxRegistry, parse_backend_options
from pytest_benchflow.tasks import load_task

if TYPE_CHECKING:
    from pytest_benchflow.agents import AgentContext
    from pytest_benchflow.rollout import RolloutConfig
    from pytest_benchflow.sandboxes import HasTerminals, Terminal
    from pytest_benchflow.tasks import Task

#: As of programs that run others: what ended with 1 or 2 was the command.
NOT_STARTED = 125
_PASSED_ON = ("TERM", "COLORTERM")
_PROMPT = r"\u@\h:\w\$ "


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """What the command line asks for."""

    task: Path
    command: Sequence[str] = ()
    sandbox: str = "auto"
    sandbox_options: Sequence[str] = ()
    services: Sequence[str] = ()
    user: str | None = None
    solve: bool = False
    verify: bool = False


def open_shell(options: ShellOptions) -> int:
    """Run a shell or a command in the environment of a task; return its status, 125 if there was no environment."""
    try:
        return asyncio.run(_run(options))
    except (BenchflowError, CannotRunHere) as error:
        print(f"bf shell: {error}", file=sys.stderr)
        return NOT_STARTED


async def _run(options: ShellOptions) -> int:
    """End like a program on SIGINT, SIGTERM and SIGHUP, but not before the sandbox is gone."""
    task = asyncio.current_task()
    assert task is not None
    signals: list[int] = []

    def end(number: int) -> None:
        signals.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)
    try:
        return await _Shell(options).run()
    except asyncio.CancelledError:
        if not signals:
            raise
        return 128 + signals[0]


class _Visitor(NopAgent):
    """An agent that does nothing but hold what an agent is given."""

    name = "shell"
    runs_as_task_user = False
    context: AgentContext | None = None

    async def connect(self, context: AgentContext) -> NopSession:
        """Keep what an agent would use."""
        self.context = context
        return NopSession()


class _Shell:
    def __init__(self, options: ShellOptions) -> None:
        self._options = options
        self._visitor = _Visitor()

    async def run(self) -> int:
        """Make the environment, run the program in it, and remove it again."""
        with _scratch() as scratch:
            resources = self._resources()
            try:
                task = load_task(self._directory)
                rollout = Rollout(self._config(task, scratch), resources, task)
                try:
                    return await self._visit(rollout, scratch)
                finally:
                    await rollout.cleanup()
            finally:
                await resources.aclose()

    def _resources(self) -> Resources:
        agents = AgentRegistry()
        agents.register(self._visitor)
        sandboxes = SandboxRegistry()
        sandboxes.add_options(parse_backend_options(self._options.sandbox_options, sandboxes))
        return Resources(agents, sandboxes)

    @property
    def _directory(self) -> Path:
        path = self._options.task
        return path.parent if path.name in ("task.toml", "task.md") and path.is_file() else path

    def _config(self, task: Task, scratch: Path) -> RolloutConfig:
        first = Role("first", agent="oracle" if self._options.solve else "nop")
        return make_config(
            {
                "task_path": task.path,
                "threshold": task.run.threshold,
                "scenes": [Scene(roles=[first])],
                "sandbox": self._options.sandbox,
                "services": tuple(self._options.services),
                "jobs_dir": scratch,
            }
        )

    async def _visit(self, rollout: Rollout, scratch: Path) -> int:
        from pytest_benchflow.reporting import work_shown

        await rollout.setup()
        _tell(f"{rollout.task.name}: starting the {rollout.recorder.sandbox} sandbox")
        with work_shown(2):
            await rollout.start()
        for note in rollout.recorder.notes:
            _tell(note)
        await rollout.install_agent()
        if self._options.solve:
            await _solve(rollout)
        await rollout.connect_as(Role("shell", agent=self._visitor.name))
        context = self._visitor.context
        assert context is not None
        async with self._verifier(rollout, scratch):
            self._greet(context)
            return await self._relay(context)

    @contextlib.asynccontextmanager
    async def _verifier(self, rollout: Rollout, scratch: Path) -> AsyncIterator[None]:
        if not self._options.verify:
            yield
            return
        async with verify_command(rollout, scratch / "verifications"):
            yield

    def _greet(self, context: AgentContext) -> None:
        step = "" if context.step.name is None else f", step {context.step.name} of {len(context.task.steps)}"
        user = self._options.user or context.user or "the image's own user"
        _tell(f"{context.cwd} as {user}{step}; the instruction is /instruction.md")
        _tell(
            f"{COMMAND} runs the verifier; exit ends the sandbox" if self._options.verify else "exit ends the sandbox"
        )

    async def _relay(self, context: AgentContext) -> int:
        user = self._options.user or context.user
        env = dict(context.access.env)
        if self._options.user is None:
            env["HOME"] = context.home
        argv = self._options.command or ["bash"]
        if not has_terminal():
            return await relay_pipes(await context.sandbox.open_process(argv, user=user, cwd=context.cwd, env=env))
        if not context.sandbox.capabilities.terminals:
            raise UsageError(
                "this sandbox has no terminals", advice="pipe commands into bf shell, or name one after --"
            )
        env |= {"PS1": _PROMPT} | {name: os.environ[name] for name in _PASSED_ON if name in os.environ}

        async def start(rows: int, columns: int) -> Terminal:
            sandbox = cast("HasTerminals", context.sandbox)
            return await sandbox.open_terminal(argv, rows=rows, columns=columns, user=user, cwd=context.cwd, env=env)

        return await relay_terminal(start)


async def _solve(rollout: Rollout) -> None:
    """Let the oracle work; a solution that fails is told, and what it left can be looked at."""
    _tell("running the solution")
    execution = await rollout.execute()
    await rollout.disconnect()
    if execution.detail is not None:
        print(f"bf shell: {execution.detail}; its output is in /logs/agent/oracle.txt", file=sys.stderr)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Make a directory for what rollouts write, and remove it with those that killed processes have left."""
    place = cache_directory() / "shells"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in place.iterdir():
        if is_abandoned(path.name):
            remove_tree(str(path))
    scratch = place / temporary_name()
    scratch.mkdir(mode=0o700)
    try:
        yield scratch
    finally:
        remove_tree(str(scratch))


def _tell(text: str) -> None:
    """Say something to whoever sits at a terminal; a script wants to read the command's own errors only."""
    if has_terminal():
        print(f"bf: {text}", file=sys.stderr, flush=True)
