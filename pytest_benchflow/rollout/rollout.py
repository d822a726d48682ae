"""One rollout, phase by phase: setup → start → install_agent → (connect → execute → disconnect)* → verify → cleanup."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import Agent, AgentContext, AgentOutcome, PromptResult, Session
from pytest_benchflow.errors import BenchflowError, CannotRunHere, Category, SandboxError, UsageError
from pytest_benchflow.rollout.artifacts import Kept, keep_artifacts, place_artifacts
from pytest_benchflow.rollout.environment import agent_spec, verifier_spec
from pytest_benchflow.rollout.healthcheck import wait_until_healthy
from pytest_benchflow.rollout.record import Record
from pytest_benchflow.rollout.result import ErrorInfo, RolloutResult, StepResult
from pytest_benchflow.rollout.steps import combine, reaches
from pytest_benchflow.rollout.store import write_json, write_text
from pytest_benchflow.rollout.support import refuse_unsupported
from pytest_benchflow.tasks import load_task, resolve_env
from pytest_benchflow.verify import Verification, Verifier, output_tail

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.resources import Resources
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Stage, Task

_STEP_TIMEOUT_SEC = 180.0
_STOP_TIMEOUT_SEC = 60.0
_MARGIN_SEC = 1800.0
_UNLIMITED_AGENT_SEC = 24 * 3600.0

# One command for all of it, since every exec costs; the prompt comes through standard input.
_PREPARE = """
for d in /logs/agent /logs/verifier /logs/artifacts; do mkdir -p "$d" && chmod 777 "$d" || exit 1; done
rm -rf -- /logs/agent/* && cat >/instruction.md
"""


class Rollout:
    """One agent on one task, once. `run()` does everything; each phase can also be awaited by itself, in order."""

    def __init__(
        self,
        config: RolloutConfig,
        resources: Resources,
        task: Task,
        *,
        on_phase: Callable[[Rollout, str], None] | None = None,
    ) -> None:
        self.config = config
        self.task = task
        self.agent: Agent = resources.agents.get(config.agent)
        self.record = Record(config, task)
        self._resources = resources
        self._on_phase = on_phase
        self._stage: Stage = task.stages[0]
        self._agent_env: dict[str, str] = {}
        self._sandbox: Sandbox | None = None
        self._verifier_sandbox: Sandbox | None = None
        self._session: Session | None = None
        self._ready = False
        self._closed = False

    @classmethod
    async def create(cls, config: RolloutConfig, resources: Resources) -> Rollout:
        """Load the task and make the rollout; nothing starts yet."""
        return cls(config, resources, load_task(config.task_path))

    @property
    def sandbox(self) -> Sandbox:
        """The agent's sandbox."""
        if self._sandbox is None:
            raise UsageError("the rollout has no sandbox yet", advice="await setup() first")
        return self._sandbox

    @property
    def result(self) -> RolloutResult:
        """The result as far as it is known."""
        return self.record.result()

    async def run(self) -> RolloutResult:
        """Do all phases and return the result; only cancellation gets out, every failure is in the result."""

        async def everything() -> None:
            await self.setup()
            await self.start()
            await self.install_agent()
            await self._run_stages()

        return await self._guarded(everything())

    async def finish(self) -> RolloutResult:
        """Do what is left of a rollout whose agent is installed, and return the result as `run()` does."""
        return await self._guarded(self._run_stages())

    async def setup(self) -> None:
        """Check everything that can be checked without cost, and make the result directory."""
        with self._phase("setup"):
            reason = self.agent.why_not(self.task)
            if reason is not None:
                raise CannotRunHere(reason)
            backend = await self._resources.backend(self.config.sandbox)
            self.record.sandbox = backend.name
            refuse_unsupported(self.task, backend)
            self._agent_env = {**self.agent.environment(self.task), **self.config.agent_env}
            for stage in self.task.stages:
                self._verifier_env(stage)
            directory = self.record.make_directory(self.config.jobs_dir / (self.config.job_name or ""))
            self.record.digest = await self._resources.digest(self.task)
            facts = {
                "rollout_name": self.record.name,
                "task_name": self.task.name,
                "task_digest": self.record.digest,
            }
            write_json(directory / "config.json", {**facts, **self.config.public(), "sandbox": backend.name})
            self._sandbox = backend.create(agent_spec(self.task, self.config, self.record.name))
            self._backend = backend

    async def start(self) -> None:
        """Start the sandbox and bring it to where an agent can begin."""
        with self._phase("start"):
            sandbox = self.sandbox
            await sandbox.start()
            self.record.notes += sandbox.notes
            self._write_sandbox_facts(sandbox)
            for command in self.task.config.environment.setup_commands:
                await self._must(
                    command.command, command.timeout_sec, user=command.user, cwd=command.cwd, env=command.env
                )
            if self.task.config.environment.healthcheck is not None:
                await wait_until_healthy(sandbox, self.task.config.environment.healthcheck)
            await self._enter(self.task.stages[0])

    async def install_agent(self) -> None:
        """Make the agent ready in the sandbox."""
        with self._phase("install_agent"):
            await self.agent.install(self._context())
            self._ready = True

    async def connect(self) -> Session:
        """Open a session with the agent for the current stage."""
        if not self._ready:
            raise UsageError("the agent is not installed yet", advice="await install_agent() first")
        with self._phase("connect"):
            self._session = await self.agent.connect(self._context())
        return self._session

    async def execute(self, prompt: str | None = None) -> PromptResult:
        """Send a prompt, the task's own by default, on the open session or a new one."""
        session = self._session or await self.connect()
        text = self._stage.instruction if prompt is None else prompt
        with self._phase("execute"):
            done = await session.prompt(text, timeout_sec=self._agent_limit(self._stage))
        self.record.prompted(text, done)
        return done

    async def disconnect(self) -> None:
        """End the session, if one is open."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def verify(self) -> dict[str, float]:
        """End the agent, run the hidden tests of the current stage and return the rewards."""
        if not self._ready:
            raise UsageError("there is nothing to verify yet", advice="await install_agent() first")
        await self.disconnect()
        with self._phase("verify"):
            kept = await self._collect()
            verified = await self._verified(kept)
        self.record.checks = verified.checks
        self.record.rewards = verified.rewards
        return verified.rewards

    async def cleanup(self) -> None:
        """Stop what is still up and write the result; idempotent, and done to its end even when cancelled."""
        if self._closed:
            return
        self._closed = True
        cleaning = asyncio.ensure_future(self._clean_up())
        try:
            await asyncio.shield(cleaning)
        except asyncio.CancelledError:
            await asyncio.wait([cleaning], timeout=_STOP_TIMEOUT_SEC)
            raise

    async def _guarded(self, work: Coroutine[object, object, None]) -> RolloutResult:
        limit = self._hard_deadline()
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                await work
        except TimeoutError as error:
            late = BenchflowError(f"the rollout did not end within {limit:g} s", category=Category.DEADLINE)
            self._failed(late if deadline.expired() else error)
        except (Exception, CannotRunHere) as error:
            self._failed(error)
        except BaseException:
            await self.cleanup()
            raise
        result = self.record.write()
        await self.cleanup()
        return result

    async def _run_stages(self) -> None:
        rewards: list[dict[str, float]] = []
        for number, stage in enumerate(self.task.stages):
            if number:
                await self._enter(stage)
            await self.execute()
            rewards.append(await self.verify())
            if stage.name is not None:
                step = StepResult(name=stage.name, rewards=rewards[-1], agent_outcome=self.record.outcome)
                self.record.steps.append(step)
            if not reaches(rewards[-1], stage.min_reward):
                break
        if len(self.task.stages) > 1:
            self.record.rewards = combine(rewards, self.task.config.multi_step_reward_strategy)

    async def _enter(self, stage: Stage) -> None:
        """Prepare the workspace for a stage: its files, its prompt, clean agent logs."""
        self._stage = stage
        done = await self.sandbox.exec(
            _PREPARE, user=0, stdin=stage.instruction.encode(), timeout_sec=_STEP_TIMEOUT_SEC
        )
        if done.return_code:
            raise SandboxError(f"could not prepare the workspace: {done.stderr.strip()[:300]}")
        if stage.workdir_dir is not None:
            await self.sandbox.upload_dir(stage.workdir_dir, self.sandbox.workdir)
            if (stage.workdir_dir / "setup.sh").exists():
                await self._must("bash setup.sh", self._agent_limit(stage) or _UNLIMITED_AGENT_SEC, user=None)
        if stage.healthcheck is not None:
            await wait_until_healthy(self.sandbox, stage.healthcheck)

    async def _collect(self) -> list[Kept]:
        """Take the agent's logs and the artifacts out, before the tests come in."""
        output = self._output()
        try:
            await self.sandbox.download_dir("/logs/agent", output / "agent")
        except FileNotFoundError:
            self.record.notes.append("the agent removed /logs/agent")
        if self.record.outcome is AgentOutcome.NONZERO_EXIT:
            write_text(output / "agent" / "exit-code.txt", f"{self.record.detail}\n")
        for hook in self._stage.verifier.collect:
            await self._try_hook(hook.command, hook.user, hook.timeout_sec)
        return await keep_artifacts(self.sandbox, self._stage.artifacts, output / "artifacts")

    async def _try_hook(self, command: str, user: str | int | None, timeout_sec: float) -> None:
        try:
            done = await self.sandbox.exec(command, user=user, timeout_sec=timeout_sec)
            failed = f"exit status {done.return_code}" if done.return_code else None
        except TimeoutError:
            failed = f"no end within {timeout_sec:g} s"
        if failed:
            self.record.notes.append(f"collect hook {command!r}: {failed}")

    async def _verified(self, kept: list[Kept]) -> Verification:
        into = self._output() / "verifier"
        separate = self._stage.verifier.mode == "separate"
        verifier = await self._separate_verifier(kept) if separate else self._shared_verifier()
        try:
            verified = await verifier.run(into)
        finally:
            self.record.verifier_tail = output_tail(into)
            await self._stop_verifier_sandbox()
        if not separate and self._stage is not self.task.stages[-1]:
            await verifier.clear()
        return verified

    def _shared_verifier(self) -> Verifier:
        return self._verifier(self.sandbox, upload=True)

    async def _separate_verifier(self, kept: list[Kept]) -> Verifier:
        spec = verifier_spec(self.task, self._stage, self.config, f"{self.record.name}-verifier")
        if self._stage is self.task.stages[-1]:
            await self.sandbox.stop()
        self._verifier_sandbox = sandbox = self._backend.create(spec)
        await sandbox.start()
        await place_artifacts(sandbox, kept, self._output() / "artifacts")
        return self._verifier(sandbox, upload=self._stage.verifier.uploads_tests)

    def _verifier(self, sandbox: Sandbox, *, upload: bool) -> Verifier:
        return Verifier(
            sandbox=sandbox,
            stage=self._stage,
            target=self.task.tests_target,
            env=self._verifier_env(self._stage),
            timeout_sec=self._stage.verifier.timeout_sec * self.config.timeout_multiplier,
            upload=upload,
        )

    def _verifier_env(self, stage: Stage) -> dict[str, str]:
        resolved = resolve_env(stage.verifier.env, os.environ, f"{self.task.file}: [verifier.env]")
        return {**resolved, **self.config.verifier_env}

    def _agent_limit(self, stage: Stage) -> float | None:
        limit = stage.agent_timeout_sec if self.config.timeout is None else self.config.timeout
        return None if limit is None else limit * self.config.timeout_multiplier

    def _hard_deadline(self) -> float:
        build = self.task.config.environment.build_timeout_sec * self.config.timeout_multiplier
        stages = sum(
            (self._agent_limit(stage) or _UNLIMITED_AGENT_SEC)
            + stage.verifier.timeout_sec * self.config.timeout_multiplier
            for stage in self.task.stages
        )
        return build + stages + _MARGIN_SEC

    def _context(self) -> AgentContext:
        stage = self._stage
        return AgentContext(
            sandbox=self.sandbox,
            task=self.task,
            stage=stage,
            env=self._agent_env,
            user=stage.agent_user,
            emit=lambda event: self.record.emit(event, step=stage.name),
        )

    def _output(self) -> Path:
        """Where the files of the current stage go: the rollout's directory, or the step's in it."""
        assert self.record.directory is not None  # setup() made it
        step = self._stage.name
        return self.record.directory if step is None else self.record.directory / "steps" / step

    @contextmanager
    def _phase(self, phase: str) -> Iterator[None]:
        if self._closed:
            raise UsageError("the rollout has ended", advice="make a new one")
        if self._on_phase is not None:
            self._on_phase(self, phase)
        with self.record.in_phase(phase):
            yield

    async def _must(
        self,
        command: str,
        timeout_sec: float,
        *,
        user: str | int | None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        try:
            done = await self.sandbox.exec(command, user=user, cwd=cwd, env=env, timeout_sec=timeout_sec)
        except TimeoutError:
            raise SandboxError(f"{command!r} did not end within {timeout_sec:g} s", retryable=False) from None
        if done.return_code:
            said = (done.stderr.strip() or done.stdout.strip())[-300:]
            raise SandboxError(f"{command!r} ended with status {done.return_code}: {said}", retryable=False)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, CannotRunHere):
            self.record.skipped = str(error)
        elif isinstance(error, BenchflowError):
            self.record.error = ErrorInfo.of(error, self.record.phase)
        else:
            trace = "".join(traceback.format_exception(error))
            if self.record.directory is not None:
                write_text(self.record.directory / "exception.txt", trace)
            bug = BenchflowError(f"{type(error).__name__}: {error}", advice="a bug in the harness; see exception.txt")
            self.record.error = ErrorInfo.of(bug, self.record.phase)

    def _write_sandbox_facts(self, sandbox: Sandbox) -> None:
        assert self.record.directory is not None  # setup() made it
        facts = {
            "sandbox": self._backend.name,
            "id": sandbox.id,
            "workdir": sandbox.workdir,
            "notes": [*sandbox.notes],
        }
        write_json(self.record.directory / "sandbox.json", facts)

    async def _stop_verifier_sandbox(self) -> None:
        if self._verifier_sandbox is not None:
            sandbox, self._verifier_sandbox = self._verifier_sandbox, None
            await sandbox.stop()

    async def _clean_up(self) -> None:
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_SEC):
                await self.disconnect()
                await self._stop_verifier_sandbox()
                if self._sandbox is not None:
                    await self._sandbox.stop()
        except Exception as error:
            self.record.notes.append(f"cleanup: {error}")
        if not self.record.is_written:
            self.record.write()
