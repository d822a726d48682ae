"""One rollout, phase by phase: setup → start → install_agent → (connect → execute → disconnect)* → verify → cleanup."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_benchflow.agents import Agent, AgentRegistry, Session
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, Category, UsageError
from pytest_benchflow.rollout.checks import refuse_document_user, refuse_unsupported, unheeded_notes
from pytest_benchflow.rollout.config import RolloutConfig
from pytest_benchflow.rollout.limits import combine, hard_deadline, reaches
from pytest_benchflow.rollout.outbox import Letters
from pytest_benchflow.rollout.recorder import (
    STOP_TIMEOUT_SEC,
    Record,
    describe,
    end_sandbox,
    mask_secrets,
    recover,
    write_result,
    write_sandbox_facts,
)
from pytest_benchflow.rollout.resources import Resources
from pytest_benchflow.rollout.result import RolloutResult, StepResult
from pytest_benchflow.rollout.roles import Cast
from pytest_benchflow.rollout.scenes import (
    PlannedTurn,
    Role,
    Scene,
    document_prompts,
    document_scenes,
    plan_turns,
    session_key,
)
from pytest_benchflow.rollout.sessions import Dialogue, Executed, may_go_on
from pytest_benchflow.rollout.setup import (
    agent_spec,
    check_services,
    override_notes,
    put_uploads,
    run_hooks,
    run_setup_commands,
    secrets_handed_out,
    wait_until_healthy,
)
from pytest_benchflow.rollout.stage import StageRun, demand_variables
from pytest_benchflow.rollout.trajectory import write_json
from pytest_benchflow.rollout.user_loop import Conversation, SoftVerification, softly_verified
from pytest_benchflow.sandboxes import SandboxRegistry
from pytest_benchflow.services import start_services
from pytest_benchflow.tasks import load_task

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox
    from pytest_benchflow.tasks import Stage, Task


class Rollout:
    """One agent, or a scene of several, on one task, once.

    `run()` does everything; each phase can also be awaited by itself, in order.
    """

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
        self.record = Record(config, task)
        self._resources = resources
        self._on_phase = on_phase
        self._scenes = _scenes_of(config, task)
        self._conversation = Conversation.of(config, self._scenes)
        self._cast = Cast(config, resources.agents, task)
        self.agent: Agent = resources.agents.get(self._first_role.agent)
        self.record.agent, self.record.model = self.agent.name, self._first_role.model
        self._services = resources.services.all_of(config.services)
        self._work: StageRun | None = None
        self._talk: Dialogue | None = None
        self._n_soft = 0
        self._started = False
        self._ready = False
        self._interrupted = False
        self._closed = False
        self._owns_resources = False

    @classmethod
    async def create(cls, config: RolloutConfig, resources: Resources | None = None) -> Rollout:
        """Load the task and make the rollout; nothing starts yet. Without resources it brings its own."""
        task = load_task(config.task_path)
        if resources is not None:
            return cls(config, resources, task)
        rollout = cls(config, Resources.of_this_machine(), task)
        rollout._owns_resources = True
        return rollout

    @property
    def sandbox(self) -> Sandbox:
        """The agent's sandbox."""
        return self._stage().sandbox

    @property
    def env(self) -> Sandbox:
        """What `sandbox` was called in older releases."""
        return self.sandbox

    @property
    def result(self) -> RolloutResult:
        """The result as far as it is known."""
        return self.record.result()

    async def run(self) -> RolloutResult:
        """Do all phases and return the result; only cancellation gets out, every failure is in the result."""
        if self._work is not None or self._closed:
            raise UsageError("the rollout has run already", advice="make a new one for another run")

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
        if self._work is not None:
            raise UsageError("the rollout is set up already", advice="make a new one for another run")
        with self._phase("setup"):
            plan_turns(self._scenes, base_prompt="")
            self._cast.call(role for scene in self._scenes for role in scene.roles)
            self.record.redactor.add(self._cast.secrets | secrets_handed_out(self.task, self.config, os.environ))
            backend = await self._resources.backend(self.config.sandbox)
            self.record.sandbox = backend.name
            refuse_unsupported(self.task, backend, self._cast.agents)
            refuse_document_user(self.task, self.config)
            demand_variables(self.task)
            directory = self.record.make_directory(self.config.jobs_dir / (self.config.job_name or ""))
            self.record.digest = await self._resources.digest(self.task)
            facts = {"rollout_name": self.record.name, "task_name": self.task.name, "task_digest": self.record.digest}
            write_json(directory / "config.json", {**facts, **self.config.public(), "sandbox": backend.name})
            self.record.notes += [*override_notes(self.task, self.config, backend), *self._cast.notes]
            self.record.notes += unheeded_notes(self.task, self._cast.agents)
            self.task = await self._resources.prepared(self.task, self.config)
            mounts = await self._cast.provide(directory / "agent")
            sandbox = backend.create(agent_spec(self.task, self.config, self.record.name, mounts))
            self._work = StageRun(self.config, self.task, self.task.stages[0], self.record, backend, sandbox)

    async def start(self) -> None:
        """Start the sandbox and bring it to where an agent can begin."""
        work = self._stage()
        environment = self.task.config.environment
        with self._phase("start"):
            await work.sandbox.start()
            self._started = True
            self.record.notes += work.sandbox.notes
            write_sandbox_facts(self.record, work.sandbox)
            check_services(work.sandbox, self.task)
            await put_uploads(work.sandbox, self.config.uploads)
            where = f"{self.task.file}: [environment.setup_commands.env]"
            await run_setup_commands(work.sandbox, environment.setup_commands, where)
            await start_services(work.sandbox, self._services)
            await run_hooks(work.sandbox, self.config)
            if environment.healthcheck is not None:
                await wait_until_healthy(work.sandbox, environment.healthcheck)
            await work.prepare()

    async def install_agent(self) -> None:
        """Make the agents ready in the sandbox."""
        if not self._started:
            raise UsageError("the sandbox is not up yet", advice="await start() first")
        with self._phase("install_agent"):
            self._talk = Dialogue(self._stage(), self._cast, self.task)
            await self._talk.install()
            self._ready = True

    async def connect(self) -> Session:
        """Open a session for the first role."""
        return await self.connect_as(self._first_role)

    async def connect_as(
        self, role: Role | str, *, scene: str | None = None, skills_dir: str | Path | None = None
    ) -> Session:
        """Open a session for a role, in place of the one that is open."""
        talk = self._agents_ready()
        with self._phase("connect"):
            return await talk.connect(self._role(role) if isinstance(role, str) else role, scene, skills_dir)

    async def connect_for(self, turn: PlannedTurn) -> Session:
        """Open a session for the role of a turn, with what the scene gives it."""
        scene = turn.scene.name if self.config.scenes else None
        return await self.connect_as(turn.role, scene=scene, skills_dir=turn.skills_dir)

    async def execute(self, prompts: str | Sequence[str | None] | None = None) -> Executed:
        """Send prompts, the task's own by default, on the open session or a new one; the first bad end stops it."""
        talk = self._agents_ready()
        texts = [prompts] if prompts is None or isinstance(prompts, str) else [*prompts]
        if not texts:
            raise UsageError("execute([]) has no prompt", advice="pass None for the task's own")
        if not talk.is_open:
            await self.connect()
        since = self.record.n_events
        results = []
        with self._phase("execute"):
            for text in texts:
                results.append(await talk.prompt(self._stage().stage.instruction if text is None else text))
                if not may_go_on(results[-1]):
                    break
        return Executed(tuple(results), self.record.events(since))

    async def disconnect(self) -> None:
        """End the session, if one is open."""
        if self._talk is not None:
            await self._talk.disconnect()

    async def verify(self) -> dict[str, float]:
        """End the agents, run the hidden tests of the current stage and return the rewards."""
        talk = self._agents_ready()
        await talk.end()
        with self._phase("verify"):
            verified = await self._stage().verify()
        self.record.checks = verified.checks
        self.record.rewards = verified.rewards
        return verified.rewards

    async def soft_verify(self) -> tuple[dict[str, float] | None, str | None, str | None]:
        """Run the hidden tests without ending the rollout; return rewards, the verifier's output and its error."""
        soft = await self.soft_verification()
        return soft.rewards, soft.output, soft.error

    async def soft_verification(self) -> SoftVerification:
        """Run the hidden tests between two rounds, in the same way as at the end; nothing of them stays."""
        talk = self._agents_ready()
        await talk.end()
        with self._phase("soft_verify"):
            self._n_soft += 1
            return await softly_verified(self._stage(), self._stage().output / "rounds" / str(self._n_soft))

    async def cleanup(self) -> None:
        """Stop what is still up and write the result; idempotent, and done to its end even when cancelled."""
        if self._closed:
            return
        self._closed = True
        cleaning = asyncio.ensure_future(self._clean_up())
        try:
            await asyncio.shield(cleaning)
        except asyncio.CancelledError:
            await asyncio.wait([cleaning], timeout=STOP_TIMEOUT_SEC)
            raise

    async def _guarded(self, work: Coroutine[object, object, None]) -> RolloutResult:
        rounds = None if self._conversation is None else self._conversation.max_rounds
        limit = hard_deadline(self.task, self.config, self._scenes, rounds)
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
        try:
            result, n_notes = write_result(self.record), len(self.record.notes)
        finally:
            await self.cleanup()
        return result if len(self.record.notes) == n_notes else write_result(self.record)

    async def _run_stages(self) -> None:
        rewards: list[dict[str, float]] = []
        for stage in self.task.stages:
            await self._enter(stage)
            await self._play(stage)
            if self.config.skip_verify:
                await self._agents_ready().end()
                continue
            rewards.append(await self.verify())
            if stage.name is not None:
                step = StepResult(name=stage.name, rewards=rewards[-1], agent_outcome=self.record.outcome)
                self.record.steps.append(step)
            if not reaches(rewards[-1], stage.min_reward):
                break
        if len(self.task.stages) > 1 and rewards:
            self.record.rewards = combine(rewards, self.task.config.multi_step_reward_strategy)

    async def _enter(self, stage: Stage) -> None:
        """Go on to a stage; the first one was prepared when the sandbox started."""
        work = self._stage()
        if stage is not work.stage:
            with self._phase("start"):
                work.stage = stage
                await work.prepare()
                if stage.workdir_dir is not None:
                    await self._agents_ready().hand_over()

    def _stage(self) -> StageRun:
        if self._work is None:
            raise UsageError("the rollout has no sandbox yet", advice="await setup() first")
        return self._work

    async def _play(self, stage: Stage) -> None:
        """Let the agents work on a stage: turn by turn, or round by round with a user."""
        turns = self._turns(stage)
        if self._conversation is not None:
            await self._conversation.hold(self, stage, turns)
            return
        talk, letters = self._agents_ready(), Letters(self.sandbox, self.record)
        last: PlannedTurn | None = None
        for turn in turns:
            if not talk.is_open_for(turn.role) if last is None else session_key(last) != session_key(turn):
                await self.connect_for(turn)
            done = await self.execute(await letters.deliver(turn))
            await letters.collect(turn, talk.user)
            if not may_go_on(done.results[-1]):
                break
            last = turn

    def _turns(self, stage: Stage) -> tuple[PlannedTurn, ...]:
        document = self.task.document
        prompt_for = document_prompts(document) if document is not None and not self.config.scenes else None
        return plan_turns(self._scenes, base_prompt=stage.instruction, prompt_for=prompt_for)

    @property
    def _first_role(self) -> Role:
        return self._scenes[0].roles[0]

    def _role(self, name: str) -> Role:
        known = {role.name: role for scene in self._scenes for role in scene.roles}
        return known[name] if name in known else self._scenes[0].role(name)

    def _agents_ready(self) -> Dialogue:
        if self._talk is None or not self._ready:
            raise UsageError("the agent is not installed yet", advice="await install_agent() first")
        return self._talk

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
        else:
            self.record.error = describe(error, self.record)

    async def _clean_up(self) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_SEC):
                await self.disconnect()
                if self._work is not None:
                    if self._ready and self.record.error is not None and not self._interrupted:
                        await recover(self._work)
                    await self._work.stop()
                    keep = self._started and not self._interrupted
                    await end_sandbox(self.record, self._work.sandbox, may_keep=keep)
        except Exception as error:
            self.record.notes.append(f"cleanup: {error}")
        if self._owns_resources:
            await self._resources.aclose()
        mask_secrets(self.record)
        if not self.record.is_written:
            write_result(self.record)


def _scenes_of(config: RolloutConfig, task: Task) -> tuple[Scene, ...]:
    """Return the scenes that count: the configuration's, else the task's own, else one agent's."""
    if not config.scenes and config.prompts is None and task.document is not None:
        own = document_scenes(
            task.document, agent=config.agent, model=config.model, reasoning_effort=config.reasoning_effort
        )
        if own:
            return own
    return config.effective_scenes


def make_config(given: Mapping[str, Any]) -> RolloutConfig:
    """Return the configuration of these fields; None leaves one as it is by default, but as a user it is root."""
    said = {key: value for key, value in given.items() if value is not None or key == "sandbox_user"}
    if "skills_dir" in said:
        said.setdefault("skill_mode", "with-skill")
    return RolloutConfig(**said)


async def run_rollout(
    config: RolloutConfig, *, agents: AgentRegistry | None = None, sandboxes: SandboxRegistry | None = None
) -> RolloutResult:
    """Run a rollout to its end; without a job's name it gets a job of its own, called by the time."""
    if agents is None:
        agents = AgentRegistry()
        agents.load_entry_points()
    if config.job_name is None:
        config = replace(config, job_name=time.strftime("%Y-%m-%d__%H-%M-%S"))
    resources = Resources(agents, sandboxes or SandboxRegistry())
    try:
        rollout = await Rollout.create(config, resources)
        return await rollout.run()
    finally:
        await resources.aclose()
