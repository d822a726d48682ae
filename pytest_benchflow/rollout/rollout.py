"""One rollout, phase by phase: setup → start → install_agent → (connect → execute → disconnect)* → verify → cleanup."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_benchflow.agents import Access, Agent, AgentContext, AgentRequest, PromptResult, Session
from pytest_benchflow.errors import BenchflowError, CannotRunHere, Category, UsageError
from pytest_benchflow.rollout.environment import agent_spec, override_notes
from pytest_benchflow.rollout.healthcheck import wait_until_healthy
from pytest_benchflow.rollout.record import Record
from pytest_benchflow.rollout.result import ErrorInfo, RolloutResult, StepResult
from pytest_benchflow.rollout.stage import (
    UNLIMITED_AGENT_SEC,
    StageRun,
    agent_limit,
    must,
    verifier_env,
    verifier_limit,
)
from pytest_benchflow.rollout.steps import combine, reaches
from pytest_benchflow.rollout.store import write_json, write_text
from pytest_benchflow.rollout.support import refuse_unsupported
from pytest_benchflow.tasks import load_task

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.resources import Resources
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Stage, Task

_STOP_TIMEOUT_SEC = 60.0
_MARGIN_SEC = 1800.0


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
        self._access = Access()
        self._work: StageRun | None = None
        self._session: Session | None = None
        self._started = False
        self._ready = False
        self._interrupted = False
        self._closed = False

    @classmethod
    async def create(cls, config: RolloutConfig, resources: Resources) -> Rollout:
        """Load the task and make the rollout; nothing starts yet."""
        return cls(config, resources, load_task(config.task_path))

    @property
    def sandbox(self) -> Sandbox:
        """The agent's sandbox."""
        return self._stage().sandbox

    @property
    def _request(self) -> AgentRequest:
        return AgentRequest(self.config.model, env=self.config.agent_env)

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
            self._access = self.agent.access(self.task, self._request)
            for stage in self.task.stages:
                verifier_env(self.task, stage, self.config)
            directory = self.record.make_directory(self.config.jobs_dir / (self.config.job_name or ""))
            self.record.digest = await self._resources.digest(self.task)
            facts = {"rollout_name": self.record.name, "task_name": self.task.name, "task_digest": self.record.digest}
            write_json(directory / "config.json", {**facts, **self.config.public(), "sandbox": backend.name})
            self.record.notes += override_notes(self.task, self.config, backend)
            self.task = await self._resources.prepared(self.task, self.config)
            sandbox = backend.create(agent_spec(self.task, self.config, self.record.name))
            self._work = StageRun(self.config, self.task, self.task.stages[0], self.record, backend, sandbox)

    async def start(self) -> None:
        """Start the sandbox and bring it to where an agent can begin."""
        work = self._stage()
        environment = self.task.config.environment
        with self._phase("start"):
            await work.sandbox.start()
            self._started = True
            self.record.notes += work.sandbox.notes
            self._write_sandbox_facts(work.sandbox)
            for setup in environment.setup_commands:
                await must(
                    work.sandbox, setup.command, setup.timeout_sec, user=setup.user, cwd=setup.cwd, env=setup.env
                )
            if environment.healthcheck is not None:
                await wait_until_healthy(work.sandbox, environment.healthcheck)
            await work.prepare()

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
        stage = self._stage().stage
        text = stage.instruction if prompt is None else prompt
        with self._phase("execute"):
            done = await session.prompt(text, timeout_sec=agent_limit(stage, self.config))
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
            verified = await self._stage().verify()
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
            self._interrupted = True
            await self.cleanup()
            raise
        # Before the clean-up: what was paid for is on disk whatever happens to the sandbox.
        result = self.record.write()
        await self.cleanup()
        return result if self.record.notes == result.notes else self.record.write()

    async def _run_stages(self) -> None:
        rewards: list[dict[str, float]] = []
        for stage in self.task.stages:
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
        """Go on to a stage; the first one was prepared when the sandbox started."""
        work = self._stage()
        if stage is not work.stage:
            with self._phase("start"):
                work.stage = stage
                await work.prepare()

    def _stage(self) -> StageRun:
        if self._work is None:
            raise UsageError("the rollout has no sandbox yet", advice="await setup() first")
        return self._work

    def _hard_deadline(self) -> float:
        build = self.task.config.environment.build_timeout_sec * self.config.timeout_multiplier
        stages = sum(
            (agent_limit(stage, self.config) or UNLIMITED_AGENT_SEC) + verifier_limit(stage, self.config)
            for stage in self.task.stages
        )
        return build + stages + _MARGIN_SEC

    def _context(self) -> AgentContext:
        work = self._stage()
        step = work.stage.name
        return AgentContext(
            sandbox=work.sandbox,
            task=self.task,
            stage=work.stage,
            request=self._request,
            access=self._access,
            user=work.stage.agent_user,
            home="/root",
            cwd=work.sandbox.workdir,
            log_dir=work.output / "agent",
            emit=lambda event: self.record.emit(event, step=step),
        )

    @contextmanager
    def _phase(self, phase: str) -> Iterator[None]:
        if self._closed:
            raise UsageError("the rollout has ended", advice="make a new one")
        if self._on_phase is not None:
            self._on_phase(self, phase)
        with self.record.in_phase(phase):
            yield

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
        facts = {"sandbox": self.record.sandbox, "id": sandbox.id, "workdir": sandbox.workdir}
        write_json(self.record.directory / "sandbox.json", {**facts, "notes": [*sandbox.notes]})

    async def _clean_up(self) -> None:
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_SEC):
                await self.disconnect()
                if self._work is not None:
                    await self._work.stop()
                    await self._end_sandbox(self._work.sandbox)
        except Exception as error:
            self.record.notes.append(f"cleanup: {error}")
        if not self.record.is_written:
            self.record.write()

    async def _end_sandbox(self, sandbox: Sandbox) -> None:
        """Stop the sandbox, unless it is to be kept; one that cannot outlive its runner leaves its workspace."""
        keep = self._started and not self._interrupted and self.config.keeps_sandbox(passed=self.result.passed)
        if keep and not sandbox.capabilities.keeps:
            await self._keep_workspace(sandbox)
        await sandbox.stop(delete=not keep)
        self.record.notes += [note for note in sandbox.notes if note not in self.record.notes]
        if keep:
            self._write_sandbox_facts(sandbox)

    async def _keep_workspace(self, sandbox: Sandbox) -> None:
        assert self.record.directory is not None  # setup() made it
        where = f"{self.record.sandbox} sandboxes end with their rollout"
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_SEC / 2):
                await sandbox.download_dir(sandbox.workdir, self.record.directory / "workspace")
        except (BenchflowError, OSError) as error:
            self.record.notes.append(f"{where}, and {sandbox.workdir} could not be copied: {error}")
        else:
            self.record.notes.append(f"{where}: {sandbox.workdir} is kept as workspace/ beside its result.json")
