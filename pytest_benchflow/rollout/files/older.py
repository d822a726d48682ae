"""Files of older releases and of Harbor: what their keys are called today, and which have no meaning any more."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from pytest_benchflow.configfile import Table, quoted, rule_error
from pytest_benchflow.rollout.files.schema import Env, OlderKeys, RolloutTable, SettingKeys, Text, Texts, Tracking

#: Older words for the same thing, by the word of today.
SYNONYMS = {
    "tasks": ("tasks_dir",),
    "task_path": ("task_dir",),
    "rollout_name": ("trial_name",),
    "include": ("includes", "include_tasks"),
    "exclude": ("excludes", "exclude_tasks"),
}
#: Keys that are read and change nothing, with the reason.
IDLE_KEYS = {
    "sandbox_locked_paths": "tests and solution are never in the sandbox while an agent works",
    "build_concurrency": "each image is built once, however many rollouts wait for it",
    "skill_creator_dir": "skills are made by a scene of their own",
}


def _refused(advice: str) -> BeforeValidator:
    """Refuse a setting that would change results and cannot be honoured; one that says nothing passes."""

    def check(value: object) -> object:
        if value:
            raise rule_error(f"is {quoted(value)}, which is not supported", advice)
        return None

    return BeforeValidator(check)


def _job_mode(value: object) -> object:
    if value not in (None, "parallel-independent"):
        raise rule_error(f"is {quoted(value)}, which is not supported", "leave it out, rollouts are independent")
    return None


_Verifier = Annotated[None, _refused("let the task choose with [verifier] environment_mode")]


class _Extras(Table):
    """Keys that the older dialects share."""

    includes: Texts | None = None
    include_tasks: Texts | None = None
    excludes: Texts | None = None
    exclude_tasks: Texts | None = None
    sandbox_locked_paths: Texts | None = None
    build_concurrency: int | None = None
    skill_creator_dir: str | None = None
    self_gen_no_internet: Annotated[None, _refused("let the task set its network")] = None
    separate_verifier: _Verifier = None
    separate_verifier_include: _Verifier = None
    reviewer: Annotated[None, _refused("write the review as a scene")] = None
    environment_manifest: Annotated[None, _refused("describe the environment in the task")] = None
    config_override: Annotated[None, _refused("change the task, or use pytest_bf_modify_task")] = None
    job_mode: Annotated[None, BeforeValidator(_job_mode)] = None


class OlderTable(RolloutTable, OlderKeys, _Extras):
    """A rollout file with the keys of older trial and job files allowed too."""

    task_path: Text | None = None
    task_dir: Text | None = None
    tasks_dir: Text | None = None
    rollout_name: Text | None = None
    trial_name: Text | None = None
    max_retries: Annotated[int, Field(ge=0)] | None = None
    skip_install: Annotated[None, _refused("agents are installed once and then only mounted")] = None


class HarborAgent(Table):
    """One agent of a Harbor job."""

    name: Text
    model_name: Text | None = None
    reasoning_effort: Text | None = None
    env: Env = Field(default={})
    skip_install: Annotated[None, _refused("agents are installed once and then only mounted")] = None


class HarborDataset(Table):
    """One folder of tasks of a Harbor job."""

    path: Text
    task_names: Texts | None = None
    exclude_task_names: Texts | None = None


def _variables(value: object) -> object:
    if not isinstance(value, list):
        return value
    for entry in value:
        if not isinstance(entry, str) or "=" not in entry.lstrip("="):
            raise rule_error(f"has {quoted(entry)}", "write NAME=value")
    return dict(entry.split("=", 1) for entry in value)


class HarborEnvironment(Table):
    """Where a Harbor job runs."""

    type: Text | None = None
    env: Annotated[Env, BeforeValidator(_variables)] = Field(default={})
    force_build: bool | None = None
    delete: Literal[True, None] = None


class HarborOrchestrator(Table):
    """How a Harbor job is driven."""

    type: Literal["local"] = "local"
    n_concurrent_trials: Annotated[int, Field(ge=1)] | None = None
    quiet: bool = False


class HarborTable(SettingKeys, _Extras):
    """A Harbor job file; it can say what a rollout file says, too."""

    n_attempts: Annotated[int, Field(ge=1)] = 1
    orchestrator: HarborOrchestrator = HarborOrchestrator()
    environment: HarborEnvironment = HarborEnvironment()
    agents: Annotated[tuple[HarborAgent, ...], Field(min_length=1)] = ()
    datasets: Annotated[tuple[HarborDataset, ...], Field(min_length=1)] = (HarborDataset(path="tasks"),)
    include: Texts | None = None
    exclude: Texts | None = None
    usage_tracking: Tracking | None = None
