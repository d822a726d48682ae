"""Regrading: the present tests on the work that an agent left, in a fresh sandbox, without asking the agent again."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, UsageError
from pytest_benchflow.rollout.artifacts import ArtifactEntry, copy_artifacts_in
from pytest_benchflow.rollout.checks import configured_secrets
from pytest_benchflow.rollout.config import RolloutConfig
from pytest_benchflow.rollout.judging import judges_of
from pytest_benchflow.rollout.recorder import Recorder, write_json
from pytest_benchflow.rollout.result import RolloutResult, StepResult, read_trajectory
from pytest_benchflow.rollout.setup import (
    STOP_TIMEOUT_SEC,
    agent_spec,
    create_user,
    existing_user,
    prepare_environment,
    prepare_step,
)
from pytest_benchflow.rollout.step_run import StepRun
from pytest_benchflow.rollout.workspace import WORKSPACE, copy_artifacts, restore_workspace

if TYPE_CHECKING:
    from pytest_benchflow.rollout.resources import Resources
    from pytest_benchflow.tasks import Task, TaskStep
    from pytest_benchflow.verify import Evidence, JudgeSetup

REGRADES = "regrades"
#: What of a result the verifier decides.
_VERIFIED = (
    "rewards", "reward", "error", "checks", "criteria", "judge", "reward_events", "verifier_tail", "task_digest",
    "sandbox", "rollout_dir"
)  # fmt: skip
#: What of `config.json` says where and how the tests run; the rest was about the agent.
_KEPT = ("sandbox", "sandbox_user", "threshold", "timeout_multiplier", "base_image_override", "context_root")


def regrade_config(
    rollout: Path, task: Path, *, sandbox: str | None = None, verifier_env: Mapping[str, str] | None = None
) -> RolloutConfig:
    """Return how a finished rollout is verified again: as it was configured, but for what is said here."""
    try:
        stored: object = json.loads((rollout / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{rollout}/config.json cannot be read: {error}") from None
    if not isinstance(stored, dict):
        raise UsageError(f"{rollout}/config.json is not an object")
    kept = {name: stored[name] for name in _KEPT if name in stored}
    missing = sorted({*stored.get("verifier_env", ())} - {*(verifier_env or {})})
    if missing:
        advice = "give the verifier's variables again with --verifier-env; values are never written down"
        raise UsageError(f"{rollout.name} was verified with {', '.join(missing)}", advice=advice)
    config = RolloutConfig(
        task_path=task, key=str(stored.get("key", "")), verifier_env=dict(verifier_env or {}), **kept
    )
    return config if sandbox is None else replace(config, sandbox=sandbox)


async def regrade(earlier: RolloutResult, task: Task, config: RolloutConfig, resources: Resources) -> RolloutResult:
    """Return the result with the rewards of the task's present tests; it is written beside the earlier one.

    What keeps the tests from giving a reward is the error of the new result; a rollout that cannot be regraded at all
    is a UsageError.
    """
    rollout = earlier.rollout_dir
    assert rollout is not None  # it was read from there
    steps, judges = _steps(rollout, task), await asyncio.to_thread(judges_of, task, config)
    began, directory = time.monotonic(), _new_directory(rollout)
    recorder = Recorder(config, task, agent=earlier.agent, model=earlier.model)
    recorder.name, recorder.directory = f"{earlier.rollout_name}-regrade-{directory.name}", directory
    recorder.redactor.add(configured_secrets(task, config, os.environ))
    recorder.redactor.add(judge.endpoint.api_key for judge in judges.values())
    for step in steps:
        try:
            with recorder.in_phase("verify"):
                await _verify(step, rollout, recorder, resources, judges)
        except (BenchflowError, TimeoutError, OSError) as error:
            recorder.add_error(error)
            break
    recorder.version = await resources.version(task)
    result = _merged(earlier, recorder.result(), seconds=time.monotonic() - began)
    write_json(directory / "result.json", result.model_dump(mode="json"))
    recorder.redactor.scrub(directory)
    return result


def _steps(rollout: Path, task: Task) -> list[TaskStep]:
    """Return the steps whose work was kept; a separate verifier needs the artifacts only, which always are."""
    kept = [step for step in task.steps if _needed(rollout, step).exists()]
    if not kept:
        advice = "save it with --bf-save-workspace the next time"
        raise UsageError(f"{rollout.name} has no saved workspace", advice=advice)
    return kept


def _output(rollout: Path, step: TaskStep) -> Path:
    return rollout if step.name is None else rollout / "steps" / step.name


def _needed(rollout: Path, step: TaskStep) -> Path:
    name = "artifacts/manifest.json" if step.verifier.mode == "separate" else WORKSPACE
    return _output(rollout, step) / name


def _new_directory(rollout: Path) -> Path:
    for number in count(1):
        directory = rollout / REGRADES / str(number)
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        return directory
    raise AssertionError("unreachable")


async def _verify(
    step: TaskStep,
    rollout: Path,
    recorder: Recorder,
    resources: Resources,
    judges: Mapping[str | None, JudgeSetup],
) -> None:
    config, task = recorder.config, recorder.task
    backend = await resources.backend(config.sandbox)
    recorder.sandbox = backend.name
    build_dir = await resources.build_context(task, config)
    sandbox = backend.create(agent_spec(task, config, recorder.name, build_dir=build_dir))
    work = StepRun(config, task, step, recorder, backend, build_dir, sandbox, judges, resources.judge_limit)
    if step.name in judges:
        work.evidence = await asyncio.to_thread(_evidence, rollout, step)
    entries = _artifacts(_output(rollout, step))
    await asyncio.to_thread(copy_artifacts, _output(rollout, step) / "artifacts", work.output / "artifacts")
    try:
        if step.verifier.mode == "separate":
            verification = await work.verify_artifacts(entries)
        else:
            await sandbox.start()
            await prepare_environment(sandbox, task, config)
            await prepare_step(sandbox, step, config)
            await restore_workspace(sandbox, _needed(rollout, step))
            # Whose files they are is not in the archive: everything belongs to who worked there.
            limit = config.sandbox_setup_timeout
            await (
                existing_user(sandbox, None, limit)
                if config.sandbox_user is None
                else create_user(sandbox, config.sandbox_user, limit)
            )
            await copy_artifacts_in(sandbox, entries, _output(rollout, step) / "artifacts")
            verification = await work.verify()
    finally:
        await work.stop()
        async with asyncio.timeout(STOP_TIMEOUT_SEC):
            await sandbox.stop()
    recorder.add_verification(step, verification)


def _evidence(rollout: Path, step: TaskStep) -> Evidence:
    """Return what the agent said and did until the end of a step, as the trajectory has it."""
    from pytest_benchflow.verify import Evidence

    events = read_trajectory(rollout)
    last = max((n for n, event in enumerate(events) if event.get("step") == step.name), default=len(events) - 1)
    events = events[: last + 1]
    spoken: list[str] = []
    for event in events:
        kind, text = event.get("type"), event.get("text")
        if kind == "user_message":
            spoken = []
        elif kind == "agent_message" and not event.get("notice") and isinstance(text, str):
            spoken = [*spoken, text] if event.get("continues") else [text]
    return Evidence("".join(spoken) or None, lambda: events)


def _artifacts(output: Path) -> list[ArtifactEntry]:
    try:
        lines = json.loads((output / "artifacts/manifest.json").read_bytes())
        return [ArtifactEntry(**{**line, "exclude": tuple(line["exclude"])}) for line in lines]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{output}/artifacts/manifest.json cannot be read: {error}") from None


def _merged(earlier: RolloutResult, verified: RolloutResult, *, seconds: float) -> RolloutResult:
    """Return what the agent did, as it was, with what the tests say of it now."""
    outcomes = {step.name: step.agent_outcome for step in earlier.steps}
    steps = [StepResult(name=s.name, rewards=s.rewards, agent_outcome=outcomes.get(s.name)) for s in verified.steps]
    said_now = {name: getattr(verified, name) for name in _VERIFIED}
    times = {"started_at": verified.started_at, "finished_at": verified.finished_at}
    notes = [*earlier.notes, *verified.notes, f"regraded; the earlier result is in {earlier.rollout_name}/result.json"]
    changes = {**said_now, **times, "steps": steps, "notes": notes, "threshold": verified.threshold}
    return earlier.model_copy(update={**changes, "timing": {"verify": round(seconds, 4), "total": round(seconds, 4)}})
