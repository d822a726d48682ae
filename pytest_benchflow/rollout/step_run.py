"""One stage of a rollout: bring the workspace to where the agent starts, take its work out, score it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents import AgentOutcome
from pytest_benchflow.configfile import resolve_env
from pytest_benchflow.core.errors import BenchflowError, SandboxError, VerifierError
from pytest_benchflow.rollout.artifacts import Kept, keep_artifacts, place_artifacts
from pytest_benchflow.rollout.config import UNLIMITED_AGENT_SEC, agent_limit, verifier_limit
from pytest_benchflow.rollout.setup import run_command, run_setup_commands, verifier_spec, wait_until_healthy
from pytest_benchflow.rollout.trajectory import write_text
from pytest_benchflow.sandboxes import MAIN, empty_dirs_script, exec_checked, service_of, stop_main
from pytest_benchflow.verify import Verification, Verifier, output_tail

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.recorder import Recorder
    from pytest_benchflow.sandboxes import Backend, Sandbox
    from pytest_benchflow.tasks import CollectHook, Task, TaskStep


_STEP_TIMEOUT_SEC = 180.0

# One command for all of it, since every exec costs; the prompt comes through standard input.
_PREPARE = f"""
mkdir -p /logs/agent /logs/verifier /logs/artifacts && chmod 777 /logs/verifier /logs/artifacts || exit 1
{empty_dirs_script("/logs/agent")}
cat >/instruction.md
"""


def verifier_env(task: Task, step: TaskStep, config: RolloutConfig) -> dict[str, str]:
    """Return the verifier's variables, filled in from the runner's environment."""
    resolved = resolve_env(step.verifier.env, os.environ, f"{task.file}: [verifier.env]")
    return {**resolved, **config.verifier_env}


@dataclass(slots=True)
class StepRun:
    """The work on one step; all steps of a task share the agent's sandbox."""

    config: RolloutConfig
    task: Task
    step: TaskStep
    recorder: Recorder
    backend: Backend
    build_dir: Path | None
    sandbox: Sandbox
    _verifier_sandbox: Sandbox | None = field(default=None, init=False)
    _taken_out: TaskStep | None = field(default=None, init=False)

    @property
    def is_last(self) -> bool:
        """Whether no other step follows."""
        return self.step is self.task.steps[-1]

    @property
    def output(self) -> Path:
        """Where the files of the step go: the rollout's directory, or the step's in it."""
        assert self.recorder.directory is not None  # setup() made it
        directory, name = self.recorder.directory, self.step.name
        return directory if name is None else directory / "steps" / name

    async def prepare(self) -> None:
        """Put the prompt and the step's files in place, and wait until the environment is ready."""
        step, sandbox = self.step, self.sandbox
        prompt = step.instruction.encode()
        await exec_checked(sandbox, _PREPARE, "prepare the workspace", stdin=prompt, timeout_sec=_STEP_TIMEOUT_SEC)
        if step.workdir_dir is not None:
            await sandbox.upload_dir(step.workdir_dir, sandbox.workdir)
            if (step.workdir_dir / "setup.sh").exists():
                await run_command(sandbox, "bash setup.sh", agent_limit(step, self.config) or UNLIMITED_AGENT_SEC)
        if step.healthcheck is not None:
            await wait_until_healthy(sandbox, step.healthcheck)

    async def verify(self) -> Verification:
        """Take the agent's logs and artifacts out, then run the hidden tests, here or in a sandbox of their own."""
        separate = self.step.verifier.mode == "separate"
        kept = await self._collect(ends_main=separate and self.is_last)
        into = self.output / "verifier"
        try:
            verifier = self._verifier(await self._fresh_sandbox(kept) if separate else self.sandbox)
            verified = await verifier.run(into)
        finally:
            self.recorder.verifier_tail = output_tail(into)
            await self.stop()
        if not separate and not self.is_last:
            await verifier.clear()
        return verified

    async def soft_verify(self, into: Path) -> Verification:
        """Run the hidden tests between two rounds, and take them and what they wrote away again."""
        if self.step.verifier.mode == "separate":
            raise VerifierError("a task with a separate verifier cannot be verified between rounds")
        verifier = self._verifier(self.sandbox)
        try:
            return await verifier.run(into)
        finally:
            await verifier.clear()

    async def stop(self) -> None:
        """Stop the verifier's own sandbox, if there is one."""
        if self._verifier_sandbox is not None:
            sandbox, self._verifier_sandbox = self._verifier_sandbox, None
            await sandbox.stop()

    async def recover(self) -> None:
        """Take out what the agent left in a step that broke before it was verified."""
        if self._taken_out is not self.step:
            await self._take_logs()
            await keep_artifacts(self.sandbox, self.step.artifacts, self.output / "artifacts")

    async def _collect(self, *, ends_main: bool) -> list[Kept]:
        """Take out what the agent left; evidence in other services only once main cannot change it, if that may end."""
        await self._take_logs()
        if self.recorder.outcome is AgentOutcome.NONZERO_EXIT:
            write_text(self.output / "agent" / "exit-code.txt", f"{self.recorder.detail}\n")
        hooks, artifacts = self.step.verifier.collect, self.step.artifacts
        await self._try_hooks([hook for hook in hooks if hook.service == MAIN])
        sidecars = [hook for hook in hooks if hook.service != MAIN]

        async def before_services() -> None:
            if ends_main and (sidecars or any(artifact.service != MAIN for artifact in artifacts)):
                await self._stop_main()
            await self._try_hooks(sidecars)

        return await keep_artifacts(self.sandbox, artifacts, self.output / "artifacts", before_services=before_services)

    async def _take_logs(self) -> None:
        self._taken_out = self.step
        try:
            await self.sandbox.download_dir("/logs/agent", self.output / "agent")
        except FileNotFoundError:
            self.recorder.notes.append("the agent removed /logs/agent")
        except SandboxError as error:
            # A flood of logs must not turn a rollout into an error; a sandbox that is gone tells so soon enough.
            self.recorder.notes.append(f"/logs/agent could not be copied: {error.message}")

    async def _try_hooks(self, hooks: Sequence[CollectHook]) -> None:
        """Run collect hooks where they belong; the failure of one is noted and nothing more."""
        for hook in hooks:
            where = "" if hook.service == MAIN else f" in {hook.service}"
            try:
                service = service_of(self.sandbox, hook.service)
                await run_command(service, hook.command, hook.timeout_sec, user=hook.user)
            except BenchflowError as error:
                self.recorder.notes.append(f"collect hook{where}: {error}")

    async def _stop_main(self) -> None:
        """End what the agent may have left running before anything else is looked at."""
        try:
            await stop_main(self.sandbox)
        except BenchflowError as error:
            self.recorder.notes.append(f"main could not be stopped before its services were read: {error}")

    async def _fresh_sandbox(self, kept: list[Kept]) -> Sandbox:
        """Start a sandbox for the verifier alone, with nothing of the agent's in it but the artifacts."""
        name = f"{self.recorder.name}-verifier"
        spec = verifier_spec(self.task, self.step, self.config, name, build_dir=self.build_dir)
        if self.is_last and self.config.keep_sandbox == "never":
            await self.sandbox.stop()
        else:
            spec = replace(spec, coexists_with=self.sandbox.id)
        self._verifier_sandbox = sandbox = self.backend.create(spec)
        await sandbox.start()
        await self._set_up(sandbox)
        await place_artifacts(sandbox, kept, self.output / "artifacts")
        return sandbox

    async def _set_up(self, sandbox: Sandbox) -> None:
        """Prepare the verifier's sandbox as its own table says, or as the agent's was if it is a copy of that."""
        verifier = self.step.verifier
        if verifier.environment is not None:
            where = f"{self.task.file}: [verifier.environment.setup_commands.env]"
            await run_setup_commands(sandbox, verifier.environment.setup_commands, where)
            if verifier.environment.healthcheck is not None:
                await wait_until_healthy(sandbox, verifier.environment.healthcheck)
        elif verifier.uploads_tests:
            where = f"{self.task.file}: [environment.setup_commands.env]"
            await run_setup_commands(sandbox, self.task.config.environment.setup_commands, where)

    def _verifier(self, sandbox: Sandbox) -> Verifier:
        return Verifier(
            sandbox=service_of(sandbox, self.step.verifier.service),
            step=self.step,
            target=self.task.tests_target,
            env=verifier_env(self.task, self.step, self.config),
            timeout_sec=verifier_limit(self.step, self.config),
            upload=self.step.verifier.uploads_tests,
        )
