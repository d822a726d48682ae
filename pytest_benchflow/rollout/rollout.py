"""One rollout, phase by phase: setup → start → install_agent → (connect → execute → disconnect)* → verify → cleanup."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from pytest_benchflow.agents import Agent, AgentRegistry, Session
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, Category, UsageError
from pytest_benchflow.rollout.checks import check_rollout, configured_secrets, ignored_key_notes, override_notes
from pytest_benchflow.rollout.config import RolloutConfig, hard_deadline
from pytest_benchflow.rollout.judging import judges_of, require_judge_prices
from pytest_benchflow.rollout.recorder import Recorder, write_json
from pytest_benchflow.rollout.resources import Resources
from pytest_benchflow.rollout.result import RolloutResult, reaches_minimum
from pytest_benchflow.rollout.scenes import (
    PlannedTurn,
    Role,
    Scene,
    document_prompts,
    plan_turns,
    scenes_of,
    session_key,
)
from pytest_benchflow.rollout.sessions import AgentSessions, Execution, RoleAgents, can_continue
from pytest_benchflow.rollout.setup import STOP_TIMEOUT_SEC, agent_spec, prepare_environment, prepare_step, stop_sandbox
from pytest_benchflow.rollout.step_run import SoftVerification, StepRun
from pytest_benchflow.sandboxes import SandboxRegistry
from pytest_benchflow.tasks import load_task

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.rollout.outbox import Outbox
    from pytest_benchflow.rollout.user_loop import UserLoop
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Task, TaskStep


OnPhase: TypeAlias = "Callable[[Rollout, str], Awaitable[None]]"
"""Is awaited whenever a rollout enters a phase."""


class Rollout:
    """One agent, or a scene of several, on one task, once.

    `run()` does all phases; each can also be awaited by itself, in order. A failure in `run()` is the error of its
    result; a single phase raises it, and a phase called too early or too late raises a UsageError.

        rollout = await Rollout.create(RolloutConfig(task_path="tasks/hello", agent="oracle"))
        result = await rollout.run()
    """

    def __init__(
        self, config: RolloutConfig, resources: Resources, task: Task, *, on_phase: OnPhase | None = None
    ) -> None:
        self.config: Final = config
        self.task: Final = task
        self._resources = resources
        self._on_phase = on_phase
        self._scenes = scenes_of(config, task)
        self._user_loop = _user_loop(config, self._scenes)
        self._role_agents = RoleAgents(config, resources.agents, task)
        self.agent: Agent = resources.agents.get(self._first_role.agent)
        self.recorder = Recorder(config, task, agent=self.agent.name, model=self._first_role.model)
        self._services = resources.services.all_of(config.services) if config.services else []
        self._step_run: StepRun | None = None
        self._sessions: AgentSessions | None = None
        self._n_soft = 0
        self._started = False
        self._interrupted = False
        self._closed = False
        self._owns_resources = False

    @classmethod
    async def create(cls, config: RolloutConfig, resources: Resources | None = None) -> Rollout:
        """Load the task and make the rollout; nothing starts yet.

        Without a job name it gets a job named after the time; without `resources` it makes and closes its own.
        """
        if config.job_name is None:
            config = replace(config, job_name=time.strftime("%Y-%m-%d__%H-%M-%S"))
        task = load_task(config.task_path)
        if resources is not None:
            return cls(config, resources, task)
        rollout = cls(config, Resources.with_defaults(), task)
        rollout._owns_resources = True
        return rollout

    @property
    def sandbox(self) -> Sandbox:
        """The agent's sandbox."""
        return self._require_step_run().sandbox

    @property
    def env(self) -> Sandbox:
        """What `sandbox` was called in older releases."""
        return self.sandbox

    @property
    def result(self) -> RolloutResult:
        """The result as far as it is known."""
        return self.recorder.result()

    async def run(self) -> RolloutResult:
        """Do all phases and return the result; every failure is in the result, only a cancellation is raised."""
        if self._step_run is not None or self._closed:
            raise UsageError("the rollout has run already", advice="make a new one for another run")

        async def all_phases() -> None:
            await self.setup()
            await self.start()
            await self.install_agent()
            await self._run_steps()

        return await self._run_to_result(all_phases())

    async def finish(self) -> RolloutResult:
        """Do what is left of a rollout whose agent is installed, and return the result as `run()` does."""
        return await self._run_to_result(self._run_steps())

    async def setup(self) -> None:
        """Check everything that can be checked without cost, and make the result directory."""
        if self._step_run is not None:
            raise UsageError("the rollout is set up already", advice="make a new one for another run")
        async with self._phase("setup"):
            plan_turns(self._scenes, base_prompt="")
            self._role_agents.require(role for scene in self._scenes for role in scene.roles)
            self.recorder.redactor.add(
                self._role_agents.secrets | configured_secrets(self.task, self.config, os.environ)
            )
            backend = await self._resources.backend(self.config.sandbox)
            self.recorder.sandbox = backend.name
            check_rollout(self.task, self.config, backend, self._role_agents.agents)
            judges = await asyncio.to_thread(judges_of, self.task, self.config)
            self.recorder.redactor.add(judge.endpoint.api_key for judge in judges.values())
            if self._resources.needs_prices:
                require_judge_prices(judges.values(), self.config)
            directory = self.recorder.make_directory(self.config.jobs_dir / (self.config.job_name or ""))
            self.recorder.version = await self._resources.version(self.task)
            facts = {
                "rollout_name": self.recorder.name,
                "task_name": self.task.name,
                "task_digest": self.recorder.version.digest,
            }
            write_json(directory / "config.json", {**facts, **self.config.public(), "sandbox": backend.name})
            self.recorder.notes += [*override_notes(self.task, self.config), *self._role_agents.notes]
            self.recorder.notes += ignored_key_notes(self.task, self._role_agents.agents)
            self.recorder.notes += [judge.note for judge in judges.values() if judge.note is not None]
            build_dir = await self._resources.build_context(self.task, self.config)
            mounts = await self._role_agents.prepare_on_host(directory / "agent")
            spec = agent_spec(
                self.task,
                self.config,
                self.recorder.name,
                build_dir=build_dir,
                mounts=mounts,
                endpoints=self._role_agents.endpoints,
            )
            self._step_run = StepRun(
                self.config,
                self.task,
                self.task.steps[0],
                self.recorder,
                backend,
                build_dir,
                backend.create(spec),
                judges,
                self._resources.judge_limit,
            )

    async def start(self) -> None:
        """Start the sandbox and prepare the first step in it."""
        step_run = self._require_step_run()
        async with self._phase("start"):
            await step_run.sandbox.start()
            self._started = True
            self.recorder.notes += step_run.sandbox.notes
            self.recorder.write_sandbox(step_run.sandbox)
            await prepare_environment(step_run.sandbox, self.task, self.config, self._services)
            await prepare_step(step_run.sandbox, step_run.step, self.config)

    async def install_agent(self) -> None:
        """Make the agents ready in the sandbox."""
        if not self._started:
            raise UsageError("the sandbox is not up yet", advice="await start() first")
        async with self._phase("install_agent"):
            sessions = AgentSessions(self._require_step_run(), self._role_agents, self.task)
            await sessions.install()
            await self._require_step_run().watch(sessions.agent_users)
            self._sessions = sessions

    async def connect(self) -> Session:
        """Open a session for the first role."""
        return await self.connect_as(self._first_role)

    async def connect_as(
        self, role: Role | str, *, scene: str | None = None, skills_dir: str | Path | None = None
    ) -> Session:
        """Open a session for a role, in place of the one that is open."""
        sessions = self._require_sessions()
        async with self._phase("connect"):
            return await sessions.connect(self._role(role) if isinstance(role, str) else role, scene, skills_dir)

    async def connect_for(self, turn: PlannedTurn) -> Session:
        """Open a session for the role of a turn, with the skills of its scene."""
        scene = turn.scene.name if self.config.scenes else None
        return await self.connect_as(turn.role, scene=scene, skills_dir=turn.skills_dir)

    async def execute(self, prompts: str | Sequence[str | None] | None = None) -> Execution:
        """Send prompts, by default the task's own, until the agent cannot take another."""
        sessions = self._require_sessions()
        texts = [prompts] if prompts is None or isinstance(prompts, str) else [*prompts]
        if not texts:
            raise UsageError("execute([]) has no prompt", advice="pass None for the task's own")
        if not sessions.is_open:
            await self.connect()
        since, instruction = self.recorder.n_events, self._require_step_run().step.instruction
        results = []
        async with self._phase("execute"):
            for text in texts:
                results.append(await sessions.prompt(instruction if text is None else text))
                if not can_continue(results[-1]):
                    break
        return Execution(tuple(results), partial(self.recorder.events, since, self.recorder.n_events))

    async def disconnect(self) -> None:
        """End the session, if one is open."""
        if self._sessions is not None:
            await self._sessions.disconnect()

    async def verify(self) -> dict[str, float]:
        """End the agents, run the hidden tests of the current step and return the rewards."""
        sessions, step_run = self._require_sessions(), self._require_step_run()
        async with step_run.blaming_agents():
            await sessions.end()
        async with self._phase("verify"):
            verification = await step_run.verify()
        self.recorder.add_verification(step_run.step, verification)
        return verification.rewards

    async def soft_verify(self) -> tuple[dict[str, float] | None, str | None, str | None]:
        """Run the hidden tests without ending the rollout; return rewards, the verifier's output and its error."""
        soft = await self.soft_verification()
        return soft.rewards, soft.output, soft.error

    async def soft_verification(self) -> SoftVerification:
        """Run the hidden tests between two rounds, as at the end, and remove them and their files again."""
        sessions, step_run = self._require_sessions(), self._require_step_run()
        await sessions.end()
        async with self._phase("soft_verify"):
            self._n_soft += 1
            return await step_run.soft_verify(step_run.output / "rounds" / str(self._n_soft), self._n_soft)

    async def rehearse_verification(self, into: Path) -> SoftVerification:
        """Run the hidden tests as at the end, into a new directory, while the agent's session stays open."""
        return await self._require_step_run().rehearse(into)

    async def cleanup(self) -> None:
        """Stop the sandbox and write the result; idempotent, and a cancellation does not interrupt it."""
        if self._closed:
            return
        self._closed = True
        cleanup = asyncio.ensure_future(self._clean_up())
        try:
            await asyncio.shield(cleanup)
        except asyncio.CancelledError:
            await asyncio.wait([cleanup], timeout=STOP_TIMEOUT_SEC)
            raise

    async def _run_to_result(self, work: Coroutine[object, object, None]) -> RolloutResult:
        rounds = None if self._user_loop is None else self._user_loop.max_rounds
        limit = hard_deadline(self.task, self.config, self._scenes, rounds)
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                await work
        except TimeoutError as error:
            late = BenchflowError(f"the rollout did not end within {limit:g} s", category=Category.DEADLINE)
            self.recorder.add_error(late if deadline.expired() else error)
        except (Exception, CannotRunHere) as error:
            self.recorder.add_error(error)
        except BaseException:
            self._interrupted = self.recorder.is_cancelled = True
            await self.cleanup()
            raise
        # Before the clean-up, so that the result is on disk even if the clean-up fails.
        try:
            result, n_notes = self.recorder.write(), len(self.recorder.notes)
        finally:
            await self.cleanup()
        return result if len(self.recorder.notes) == n_notes else self.recorder.write()

    async def _run_steps(self) -> None:
        for step in self.task.steps:
            await self._begin_step(step)
            async with self._require_step_run().blaming_agents():
                await self._run_turns(step)
            if self.config.skip_verify:
                await self._require_sessions().end()
                continue
            if not reaches_minimum(await self.verify(), step.min_reward) or self._require_step_run().is_spoiled:
                break

    async def _begin_step(self, step: TaskStep) -> None:
        """Prepare a step, unless it is the first one, which start() has prepared."""
        step_run = self._require_step_run()
        if step is not step_run.step:
            async with self._phase("start"), step_run.begin(step):
                await step_run.set_network(self.task.config.environment.network)
                await prepare_step(step_run.sandbox, step, self.config)
                if step.workdir_dir is not None:
                    await self._require_sessions().hand_over()

    def _require_step_run(self) -> StepRun:
        if self._step_run is None:
            raise UsageError("the rollout has no sandbox yet", advice="await setup() first")
        return self._step_run

    async def _run_turns(self, step: TaskStep) -> None:
        """Let the agents work on a step: turn by turn, or round by round with a user."""
        turns = self._turns(step)
        if self._user_loop is not None:
            await self._run_user_loop(self._user_loop, step, turns)
            return
        sessions, outbox = self._require_sessions(), self._outbox(turns)
        last: PlannedTurn | None = None
        for turn in turns:
            if not sessions.is_open_for(turn.role) if last is None else session_key(last) != session_key(turn):
                await self.connect_for(turn)
            execution = await self.execute(turn.prompt if outbox is None else await outbox.deliver(turn))
            if outbox is not None:
                await outbox.collect(turn, sessions.user)
            if not execution.can_continue:
                break
            last = turn

    async def _run_user_loop(self, loop: UserLoop, step: TaskStep, turns: Sequence[PlannedTurn]) -> None:
        def record(line: Mapping[str, Json]) -> None:
            self.recorder.append_line("user_rounds.jsonl", dict(line))

        try:
            await loop.run(_RoundAgent(self), step, turns, record)
        finally:
            if loop.report is not None and self.recorder.directory is not None:
                write_json(self.recorder.directory / "loop.json", loop.report)

    def _outbox(self, turns: Sequence[PlannedTurn]) -> Outbox | None:
        if not any(turn.has_outbox for turn in turns):
            return None
        from pytest_benchflow.rollout.outbox import Outbox

        return Outbox(self.sandbox, self.recorder)

    def _turns(self, step: TaskStep) -> tuple[PlannedTurn, ...]:
        document = self.task.document
        prompt_for = document_prompts(document) if document is not None and not self.config.scenes else None
        return plan_turns(self._scenes, base_prompt=step.instruction, prompt_for=prompt_for)

    @property
    def _first_role(self) -> Role:
        return self._scenes[0].roles[0]

    def _role(self, name: str) -> Role:
        known = {role.name: role for scene in self._scenes for role in scene.roles}
        return known[name] if name in known else self._scenes[0].role(name)

    def _require_sessions(self) -> AgentSessions:
        if self._sessions is None:
            raise UsageError("the agent is not installed yet", advice="await install_agent() first")
        return self._sessions

    @asynccontextmanager
    async def _phase(self, phase: str) -> AsyncIterator[None]:
        if self._closed:
            raise UsageError("the rollout has ended", advice="make a new one")
        if self._on_phase is not None:
            await self._on_phase(self, phase)
        with self.recorder.in_phase(phase):
            yield

    async def _clean_up(self) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_SEC):
                await self.disconnect()
                if self._step_run is not None:
                    if self._sessions is not None and self.recorder.error is not None and not self._interrupted:
                        await self._step_run.recover()
                    await self._step_run.stop()
                    keep = self._started and not self._interrupted and self._keeps_sandbox()
                    await stop_sandbox(self._step_run.sandbox, self.recorder, keep=keep)
        except Exception as error:
            self.recorder.notes.append(f"cleanup: {error}")
        if self._owns_resources:
            await self._resources.aclose()
        self.recorder.mask_secrets()
        if not self.recorder.is_written:
            self.recorder.write()

    def _keeps_sandbox(self) -> bool:
        return self.config.keeps_sandbox(passed=self.recorder.result().passed)


class _RoundAgent:
    """The agent of a rollout as its user loop sees it."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout

    async def prompt(self, turn: PlannedTurn, text: str) -> Execution:
        """Let the agent of a turn work on a prompt in a session of its own."""
        await self._rollout.connect_for(turn)
        try:
            return await self._rollout.execute(text)
        finally:
            await self._rollout.disconnect()

    async def score(self) -> SoftVerification:
        """Run the hidden tests on the agent's work so far."""
        return await self._rollout.soft_verification()


def _user_loop(config: RolloutConfig, scenes: Sequence[Scene]) -> UserLoop | None:
    if config.user is None and config.loop_strategy is None:
        return None
    from pytest_benchflow.rollout.user_loop import UserLoop

    return UserLoop.of(config, scenes)


async def run_rollout(
    config: RolloutConfig, *, agents: AgentRegistry | None = None, sandboxes: SandboxRegistry | None = None
) -> RolloutResult:
    """Run a whole rollout."""
    resources = Resources.with_defaults(agents, sandboxes)
    try:
        rollout = await Rollout.create(config, resources)
        return await rollout.run()
    finally:
        await resources.aclose()
