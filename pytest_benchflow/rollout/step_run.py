"""The verification of a step: copy the agent's logs and artifacts out, then run the hidden tests on its work."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pytest_benchflow.agents import AgentOutcome
from pytest_benchflow.core.errors import BenchflowError, RewardError, SandboxError, VerifierError
from pytest_benchflow.core.text import exit_status, one_line
from pytest_benchflow.rollout.artifacts import (
    AGENT_LOGS,
    EXIT_CODE,
    ArtifactEntry,
    CopiedLogs,
    copy_artifacts_in,
    copy_artifacts_out,
    copy_logs_out,
)
from pytest_benchflow.rollout.config import verifier_limit
from pytest_benchflow.rollout.judging import verifier_env
from pytest_benchflow.rollout.recorder import write_text
from pytest_benchflow.rollout.setup import run_command, run_setup_commands, verifier_spec, wait_until_healthy
from pytest_benchflow.sandboxes import MAIN, OWN_ENV, service_of, stop_main
from pytest_benchflow.verify import OUTPUT, EnvironmentSpoiled, Finding, Guard, Verification, Verifier, output_tail

if TYPE_CHECKING:
    from pytest_benchflow.core.network import Network
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.rollout.judge_limit import JudgeLimit
    from pytest_benchflow.rollout.recorder import Recorder
    from pytest_benchflow.sandboxes import Backend, HasNetwork, Sandbox
    from pytest_benchflow.tasks import CollectHook, Task, TaskStep
    from pytest_benchflow.verify import AgentUser, Evidence, JudgeSetup, JudgeVerifier


_RECOVER_TIMEOUT_SEC = 30.0
_COPY_TIMEOUT_SEC = 300.0
_LOOK_TIMEOUT_SEC = 60.0
_ARTIFACTS = "/logs/artifacts"
_INTACT = "intact"
_SIGNALS = 128
_SHOWN_NAMES = 5
#: With less than this, nothing can be verified in a sandbox.
_ROOM_BYTES = 64 << 10
# What the shell does by itself, without a program that the agent may have removed.
_LOOK = f'for d in /logs /logs/agent /logs/artifacts; do [ -L "$d" ] && echo "$d"; done; echo {_INTACT}'
_MAX_OUTPUT_CHARS = 64_000


@dataclass(frozen=True, slots=True)
class SoftVerification:
    """The result of the hidden tests between two rounds."""

    verification: Verification | None
    output: str | None
    error: str | None

    @property
    def rewards(self) -> dict[str, float] | None:
        """The rewards, None if the verifier gave none."""
        return None if self.verification is None else self.verification.rewards


@dataclass(slots=True)
class StepRun:
    """The current step with its sandbox; all steps of a task share the agent's sandbox."""

    config: RolloutConfig
    task: Task
    step: TaskStep
    recorder: Recorder
    backend: Backend
    build_dir: Path | None
    sandbox: Sandbox
    judges: Mapping[str | None, JudgeSetup] = field(default_factory=dict)
    """How steps are judged that have no test script, by their names."""
    judge_limit: JudgeLimit | None = None
    """Shared by all judges of the job."""
    evidence: Evidence | None = field(default=None, init=False)
    """What a judge is told of the agent, if that is not what was recorded here."""
    _network: Network | None = field(default=None, init=False)
    _verifier_sandbox: Sandbox | None = field(default=None, init=False)
    _copied: TaskStep | None = field(default=None, init=False)
    _links: tuple[str, ...] = field(default=(), init=False)
    """Directories for logs that the agent replaced by links, which are not followed."""
    _guard: Guard | None = field(default=None, init=False)
    _verifier_guard: Guard | None = field(default=None, init=False)
    _n_examined: int = field(default=0, init=False)
    """How many events of the trajectory were searched for a look at hidden files."""
    is_spoiled: bool = field(default=False, init=False)
    """Whether the agent left an environment that no later step could work in."""

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

    @property
    def network(self) -> Network:
        """What the sandbox can reach now: at first what its environment says."""
        # One that reaches nothing is false.
        return self.task.config.environment.network if self._network is None else self._network

    async def set_network(self, network: Network) -> None:
        """Let the sandbox reach what a phase may, if it can do that; tasks that need it are refused if it cannot."""
        if network != self.network and self.sandbox.capabilities.allowlist:
            await cast("HasNetwork", self.sandbox).set_network(network)
        self._network = network

    async def watch(self, users: Sequence[AgentUser]) -> None:
        """Remember what the sandbox is before its agents start, so that the verifier will find the same."""
        self._guard = Guard(self.sandbox, self.step.verifier.hardening, users, lists_changes=self.config.frame)
        await self._guard.watch(self.step)

    @asynccontextmanager
    async def begin(self, step: TaskStep) -> AsyncIterator[None]:
        """Make `step` the current one; what comes into the sandbox inside the context is the task's."""
        if self._guard is not None:
            await self._guard.step_over(self.step)
        self.step = step
        yield
        if self._guard is not None:
            self._guard.hardening = step.verifier.hardening
            await self._guard.watch_next(step)

    async def end_programs(self) -> bool:
        """Kill everything that agents have left running; False if the sandbox leaves that to a command inside."""
        findings = None if self._guard is None else await self._guard.end_programs()
        self.recorder.findings += [finding.model_copy(update={"step": self.step.name}) for finding in findings or ()]
        return findings is not None

    async def _clean(self, *, round: int | None = None) -> None:
        """Take away what the agents put in the verifier's way, and record what that was; a judge sees all of it."""
        if self._guard is not None and self.step.name not in self.judges:
            self.recorder.findings += await self._guard.clean(self.step, round=round)

    async def _restore_system(self) -> None:
        if self._guard is not None:
            if self.config.frame:
                self.recorder.frame = await self._guard.changes()
            if self.step.name not in self.judges:
                self.recorder.findings += await self._guard.restore_system(self.step)

    async def verify(self) -> Verification:
        """Copy the agent's logs and artifacts out, then run the hidden tests, here or in a sandbox of their own."""
        separate = self.step.verifier.mode == "separate"
        await self._examine_calls()
        try:
            return await self._verify(separate=separate)
        except SandboxError as error:
            if separate or not (await self._is_without_shell() or await self._is_full()):
                raise
            return self._blame_agent(EnvironmentSpoiled(error.message))

    async def _verify(self, *, separate: bool) -> Verification:
        await self.set_network(self.task.config.environment.network if separate else self.step.verifier.network)
        try:
            await self._restore_system()
            self._links = await self._log_links()
            await self._clean()
        except EnvironmentSpoiled as error:
            if not separate:
                return self._blame_agent(error)
            self._links = ("/logs",)
        if self.config.save_workspace and not separate:
            await self._save_workspace()
        entries = await self._collect(ends_main=separate and self.is_last)
        into = self.output / "verifier"
        try:
            verifier = self._verifier(await self._fresh_sandbox(entries) if separate else self.sandbox)
            verified = await verifier.run(into)
        except EnvironmentSpoiled as error:
            if separate:
                raise
            return self._blame_agent(error)
        finally:
            self.recorder.verifier_tail = output_tail(into)
            await self.stop()
        if not separate and not self.is_last:
            await verifier.clear()
        return verified

    async def _examine_calls(self) -> None:
        """Record whether the agent looked for what is hidden from it, by the tool calls of this step."""
        recorder, since = self.recorder, self._n_examined
        if not self.step.verifier.hardening.enabled or not any(one.n_tool_calls for one in recorder.prompt_results):
            return
        from pytest_benchflow.verify import hidden_files_sought

        self._n_examined = recorder.n_events
        told = "\n".join([self.step.instruction, *recorder.prompts])
        workdir = getattr(self.sandbox, "workdir", "/")

        def look() -> Finding | None:
            return hidden_files_sought(recorder.events(since, recorder.n_events), told, workdir)

        if (finding := await asyncio.to_thread(look)) is not None:
            recorder.findings.append(finding.model_copy(update={"step": self.step.name}))

    async def verify_artifacts(self, entries: list[ArtifactEntry]) -> Verification:
        """Run the hidden tests of a separate verifier on artifacts that are in the step's directory already."""
        try:
            return await self._verifier(await self._fresh_sandbox(entries)).run(self.output / "verifier")
        finally:
            self.recorder.verifier_tail = output_tail(self.output / "verifier")
            await self.stop()

    async def _save_workspace(self) -> None:
        """Keep what the agent left; its workspace is not worth an error where it cannot be kept."""
        from pytest_benchflow.rollout.workspace import save_workspace

        note = await save_workspace(self.sandbox, self.output, self.recorder.redactor)
        if note is not None:
            self.recorder.notes.append(note)

    async def _log_links(self) -> tuple[str, ...]:
        """Return which directories for logs are links now; a sandbox that lives and has no shell left is spoiled."""
        try:
            done = await self.sandbox.exec(_LOOK, user=0, cwd="/", env=OWN_ENV, timeout_sec=_LOOK_TIMEOUT_SEC)
        except TimeoutError:
            raise SandboxError(f"the sandbox did not answer within {_LOOK_TIMEOUT_SEC:g} s") from None
        except SandboxError as error:
            if await self._is_alive():
                raise EnvironmentSpoiled(error.message) from None
            raise
        *links, last = done.stdout.splitlines() or [""]
        if last != _INTACT and 0 <= done.return_code < _SIGNALS:
            why = one_line(done.stderr) or f"it {exit_status(done.return_code)} and did nothing"
            raise EnvironmentSpoiled(f"bash does not work any more: {why}")
        return tuple(links)

    @asynccontextmanager
    async def blaming_agents(self) -> AsyncIterator[None]:
        """Forgive what fails because an agent spoiled the environment: there is a verification all the same."""
        try:
            yield
        except BenchflowError as error:
            if not self.recorder.prompt_results or not await self._is_without_shell():
                raise
            self.recorder.agent_fault = f"left an environment that nothing can work in: {error.message}"

    async def _is_without_shell(self) -> bool:
        try:
            await self._log_links()
        except EnvironmentSpoiled:
            return True
        except BenchflowError:
            return False
        return False

    async def _is_full(self) -> bool:
        """Return whether the storage that the task gives its sandbox is used up."""
        environment = self.task.config.environment
        # Without a limit of its own, a sandbox may be full because of others.
        limit = min(filter(None, (environment.storage_mb, environment.memory_mb)), default=None)
        try:
            done = await self.sandbox.exec(
                "stat -f -c '%S %b %a' /", user=0, cwd="/", env=OWN_ENV, timeout_sec=_LOOK_TIMEOUT_SEC
            )
            size, total, free = map(int, done.stdout.split())
        except (BenchflowError, TimeoutError, ValueError):
            return False
        return limit is not None and size * total <= limit << 20 and size * free < _ROOM_BYTES

    async def _is_alive(self) -> bool:
        """Return whether the sandbox still moves files, for which it needs no program of the image."""
        with tempfile.TemporaryDirectory(prefix="bf-look-") as scratch:
            try:
                await self.sandbox.download_file("/etc/hostname", Path(scratch) / "file")
            except (FileNotFoundError, IsADirectoryError):
                return True
            except (OSError, BenchflowError):
                return False
        return True

    def _blame_agent(self, error: EnvironmentSpoiled) -> Verification:
        """Return the lowest reward for an agent that left nothing to verify."""
        self.is_spoiled = True
        self.recorder.agent_fault = f"left an environment that cannot be verified: {error.message}"
        lowest = self.step.verifier.reward_range
        return Verification({"reward": 0.0 if lowest is None else lowest[0]}, None)

    async def soft_verify(self, into: Path, round: int) -> SoftVerification:
        """Run the hidden tests between two rounds; what keeps them from giving a reward is returned, not raised."""
        try:
            verification, error = await self._verify_and_clear(into, round), None
        except (VerifierError, RewardError) as caught:
            verification, error = None, str(caught)
        return SoftVerification(verification, _read_output(into), error)

    async def rehearse(self, into: Path) -> SoftVerification:
        """Run the hidden tests as at the end, while agent and sandbox go on; tests and their files stay to be read."""
        try:
            verification, error = await self._verify_beside(into), None
        except (VerifierError, RewardError) as caught:
            verification, error = None, str(caught)
        return SoftVerification(verification, _read_output(into), error)

    async def _verify_beside(self, into: Path) -> Verification:
        if self.step.verifier.mode != "separate":
            await self._clean()
            async with self._network_of_verifier():
                # Programs of whoever is at work in the sandbox go on.
                return await self._verifier(self.sandbox, settles=False).run(into)
        await asyncio.to_thread(shutil.rmtree, self.output / "artifacts", ignore_errors=True)
        entries = await self._collect(ends_main=False)
        try:
            return await self._verifier(await self._fresh_sandbox(entries, keeps_main=True)).run(into)
        finally:
            await self.stop()

    async def _verify_and_clear(self, into: Path, round: int) -> Verification:
        if self.step.verifier.mode == "separate":
            raise VerifierError("a task with a separate verifier cannot be verified between rounds")
        await self._restore_system()
        await self._clean(round=round)
        verifier = self._verifier(self.sandbox)
        async with self._network_of_verifier():
            try:
                return await verifier.run(into)
            finally:
                await verifier.clear()

    @asynccontextmanager
    async def _network_of_verifier(self) -> AsyncIterator[None]:
        before = self.network
        await self.set_network(self.step.verifier.network)
        try:
            yield
        finally:
            await self.set_network(before)

    async def stop(self) -> None:
        """Stop the verifier's own sandbox, if there is one."""
        if self._verifier_sandbox is not None:
            sandbox, self._verifier_sandbox = self._verifier_sandbox, None
            await sandbox.stop()

    async def recover(self) -> None:
        """Copy out what the agent left in a step that failed before it was verified, as far as that is possible."""
        if self._copied is self.step:
            return
        with suppress(Exception):
            async with asyncio.timeout(_RECOVER_TIMEOUT_SEC):
                await self._copy_logs()
                await copy_artifacts_out(self.sandbox, self.step.artifacts, self.output / "artifacts")

    async def _collect(self, *, ends_main: bool) -> list[ArtifactEntry]:
        """Copy out what the agent left; what is in other services after main was stopped, if `ends_main` allows it."""
        await self._copy_logs()
        last = self.recorder.last_prompt_result
        if last is not None and last.outcome is AgentOutcome.NONZERO_EXIT:
            write_text(self.output / "agent" / EXIT_CODE, f"{last.detail}\n")
        hooks, artifacts = self.step.verifier.collect, self.step.artifacts
        if self._is_linked(_ARTIFACTS):
            artifacts = tuple(each for each in artifacts if each.source != _ARTIFACTS)
            self.recorder.notes.append(f"{_ARTIFACTS} is a link of the agent's, and not copied")
        await self._try_hooks([hook for hook in hooks if hook.service == MAIN])
        sidecars = [hook for hook in hooks if hook.service != MAIN]

        async def before_services() -> None:
            if ends_main and (sidecars or any(artifact.service != MAIN for artifact in artifacts)):
                await self._stop_main()
            await self._try_hooks(sidecars)

        entries = await copy_artifacts_out(
            self.sandbox, artifacts, self.output / "artifacts", before_services=before_services
        )
        failed = (entry for entry in entries if entry.status == "failed")
        self.recorder.notes += [f"artifact {entry.source} could not be copied: {entry.reason}" for entry in failed]
        return entries

    async def _copy_logs(self) -> None:
        self._copied = self.step
        if self._is_linked("/logs/agent"):
            self.recorder.notes.append("/logs/agent is a link of the agent's, and not copied")
            return
        try:
            async with asyncio.timeout(_COPY_TIMEOUT_SEC):
                copied = await copy_logs_out(self.sandbox, self.output / "agent")
        except TimeoutError:
            self.recorder.notes.append(f"/logs/agent could not be copied within {_COPY_TIMEOUT_SEC:g} s")
        except FileNotFoundError:
            self.recorder.notes.append("the agent removed /logs/agent")
        except SandboxError as error:
            # Too many logs must not turn a rollout into an error; if the sandbox is gone, the verifier will say so.
            self.recorder.notes.append(f"/logs/agent could not be copied: {error.message}")
        else:
            self._report_logs(copied)

    def _report_logs(self, copied: CopiedLogs) -> None:
        if copied.n_dropped:
            self.recorder.notes.append(f"/logs/agent holds too much: {copied.n_dropped} files are cut or left out")
        if copied.refused:
            names = ", ".join(one_line(name, 40) for name in copied.refused[:_SHOWN_NAMES])
            message = (
                f"files in {AGENT_LOGS} have names of the harness's own logs, and are kept as sandbox-NAME: {names}"
            )
            paths = [f"{AGENT_LOGS}/{one_line(name)}" for name in copied.refused[:_SHOWN_NAMES]]
            self.recorder.findings.append(Finding(kind="log_file", message=message, paths=paths, step=self.step.name))

    def _is_linked(self, directory: str) -> bool:
        return directory in self._links or "/logs" in self._links

    async def _try_hooks(self, hooks: Sequence[CollectHook]) -> None:
        """Run collect hooks in their services; the failure of one becomes a note."""
        for hook in hooks:
            where = "" if hook.service == MAIN else f" in {hook.service}"
            try:
                service = service_of(self.sandbox, hook.service)
                await run_command(service, hook.command, hook.timeout_sec, user=hook.user)
            except BenchflowError as error:
                self.recorder.notes.append(f"collect hook{where}: {error}")

    async def _stop_main(self) -> None:
        """Stop main, so that no process of the agent can change what other services have."""
        try:
            await stop_main(self.sandbox)
        except BenchflowError as error:
            self.recorder.notes.append(f"main could not be stopped before its services were read: {error}")

    async def _fresh_sandbox(self, entries: list[ArtifactEntry], *, keeps_main: bool = False) -> Sandbox:
        """Start a sandbox for the verifier, which gets the artifacts and nothing else of the agent's."""
        name = f"{self.recorder.name}-verifier"
        spec = verifier_spec(self.task, self.step, self.config, name, build_dir=self.build_dir)
        if self.is_last and self.config.keep_sandbox == "never" and not keeps_main:
            await self.sandbox.stop()
        else:
            spec = replace(spec, coexists_with=self.sandbox.id)
        self._verifier_sandbox = sandbox = self.backend.create(spec)
        await sandbox.start()
        await self._set_up(sandbox)
        guard = Guard(sandbox, self.step.verifier.hardening, artifacts=[entry.source for entry in entries])
        await guard.watch(self.step)
        if self._guard is not None:
            guard.adopt(self._guard)
        await copy_artifacts_in(sandbox, entries, self.output / "artifacts")
        self.recorder.findings += await guard.clean(self.step)
        self._verifier_guard = guard
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

    def _verifier(self, sandbox: Sandbox, *, settles: bool = True) -> Verifier | JudgeVerifier:
        if (setup := self.judges.get(self.step.name)) is not None:
            return self._judge_verifier(sandbox, setup)
        guard = self._guard if sandbox is self.sandbox else self._verifier_guard
        # Another service has variables and users of its own.
        if guard is not None and (not guard.is_watching or self.step.verifier.service != MAIN):
            guard = None
        hardening = self.step.verifier.hardening
        pins = guard.environment(settled=settles) if guard else {}
        return Verifier(
            sandbox=service_of(sandbox, self.step.verifier.service),
            step=self.step,
            target=self.task.tests_target,
            env={**pins, **verifier_env(self.task, self.step, self.config)},
            owner=guard.verifier_owner if guard and hardening.does("protect_logs") else None,
            settle=guard.settle if guard and settles else None,
            timeout_sec=verifier_limit(self.step, self.config),
            upload=self.step.verifier.uploads_tests,
        )

    def _judge_verifier(self, sandbox: Sandbox, setup: JudgeSetup) -> JudgeVerifier:
        from pytest_benchflow.providers import Prices
        from pytest_benchflow.verify import Evidence, JudgeVerifier

        last = self.recorder.last_prompt_result
        recorded = Evidence(None if last is None else last.message, self.recorder.events)
        return JudgeVerifier(
            sandbox=service_of(sandbox, self.step.verifier.service),
            step=self.step,
            setup=setup,
            evidence=self.evidence or recorded,
            timeout_sec=verifier_limit(self.step, self.config),
            limit=self.judge_limit,
            on_record=self.recorder.judge_records.append,
            prices=Prices.read(self.config.price),
        )


def _read_output(directory: Path) -> str | None:
    try:
        text = (directory / OUTPUT).read_text("utf-8", errors="replace")
    except OSError:
        return None
    return text[-_MAX_OUTPUT_CHARS:]
