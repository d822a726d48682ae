"""From what every source says to plain data: the settings of a run, its agents, and each item's configuration.

Hooks are called here and task files read, on pytest's own thread; a rollout gets what came of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.settings import Layer, Source, merge, settings_of
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.jobs import AgentChoice
from pytest_benchflow.plugin.gating import needs_costs
from pytest_benchflow.plugin.settings import Settings, require_writable
from pytest_benchflow.plugin.stash import expect_type
from pytest_benchflow.rollout import RolloutConfig
from pytest_benchflow.rollout.settings import JobName, RolloutSettings, RunSettings

if TYPE_CHECKING:
    from pytest_benchflow.agents import AgentRegistry
    from pytest_benchflow.jobs import Cell
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.rollout import RolloutFile
    from pytest_benchflow.tasks import RunHints, Task

_RUN, _ROLLOUT = settings_of(RunSettings), settings_of(RolloutSettings)
_MARKED = {declared.marker: declared for declared in _ROLLOUT.values() if declared.marker is not None}
_EXAMPLES = {"bf_threshold": "0.8", "bf_timeout": "600"}


def run_settings(config: pytest.Config, settings: Settings, job: RolloutFile | None) -> RunSettings:
    """Return the settings of the whole run."""
    values = merge(_RUN.values(), *settings.layers, *([] if job is None else [job.layer("job file")]))
    merged = RunSettings(**values)
    if job is not None and job.source is not None:
        merged = replace(merged, source=(*merged.source, job.source))
    if job is not None and job.job_name is not None:
        JobName().read(job.job_name, Source(f"{job.path}: job_name"))
    for name, path in (("json", merged.json), ("html", merged.html)):
        if path is not None:
            require_writable(path, f"--bf-{name}" if config.getoption(f"bf_{name}") else f"bf_{name}")
    if merged.selftest and config.getoption("bf_agent") is not None:
        raise UsageError("--bf-selftest runs nop and oracle", advice="take --bf-agent away")
    merged = replace(merged, jobs_dir=config.invocation_params.dir / merged.jobs_dir)
    return _with_earlier_job(config, merged)


def _with_earlier_job(config: pytest.Config, run: RunSettings) -> RunSettings:
    """Return the settings with the job that is to be continued, which may be given by name or directory."""
    if run.resume_anyway and run.resume is None:
        run = replace(run, resume="")
    if not run.resume:
        return run
    from pytest_benchflow.jobs import job_names, owner_of

    directory = run.jobs_dir / run.resume
    if "/" in run.resume:
        directory = config.invocation_params.dir / run.resume
    if config.getoption("bf_job_name") not in (None, directory.name):
        raise UsageError("--bf-resume and --bf-job-name name different jobs", advice="name it once")
    if owner_of(directory) is None:
        names = job_names(directory.parent)
        advice = did_you_mean(directory.name, names) if names else "there is none yet"
        raise UsageError(f"there is no job {directory.name} in {directory.parent}", advice=advice)
    return replace(run, jobs_dir=directory.parent, job_name=directory.name)


def choose_agents(settings: Settings, run: RunSettings, job: RolloutFile | None) -> tuple[AgentChoice, ...]:
    """Return the agents of the matrix: of the command line, the job file, the ini file or the nested table."""
    if run.selftest:
        return AgentChoice("nop"), AgentChoice("oracle")
    by_layer = {layer.name: layer.values["agent"] for layer in settings.layers if "agent" in layer.values}
    if job is not None and job.agents and "command line" not in by_layer:
        return tuple(AgentChoice(agent.name, (agent.model,)) for agent in job.agents)
    names = [name for text in run.agent for name in _agent_names(text)]
    if not names and run.agent:
        raise UsageError("--bf-agent names no agent", advice="give at least one, for example oracle")
    nested = {} if names else settings.agents
    chosen = list(dict.fromkeys(names or nested or ["oracle"]))
    return tuple(AgentChoice(name, nested.get(name) or _models_for(name, chosen, run.model)) for name in chosen)


def with_own_models(choice: AgentChoice, agents: AgentRegistry) -> AgentChoice:
    """Return an agent without the models that `agent=model` means for other ones; aliases are the same agent."""

    def agent_called(word: str) -> str | None:
        try:
            return agents.get(word).name
        except UsageError:
            return None

    own: list[str | None] = []
    for model in choice.models:
        word, _, rest = (model or "").partition("=")
        owner = agent_called(word) if rest else None
        if owner is None:
            own.append(model)
        elif owner == agent_called(choice.name):
            own.append(rest)
    return replace(choice, models=tuple(own) or (None,))


def trials_of(session: BenchSession, folder: str, name: str, hints: RunHints) -> tuple[int, ...]:
    """Return how often a task is to run: one number for each scene of the run, or one if it has no scenes."""
    override = session.given.override_for(folder, name)
    if override.values:
        return _trials_by_scene(session, override, hints)
    if hints not in session.known_trials:  # most tasks say the same: nothing
        session.known_trials[hints] = _trials_by_scene(session, override, hints)
    return session.known_trials[hints]


def _trials_by_scene(session: BenchSession, override: Layer, hints: RunHints) -> tuple[int, ...]:
    layers = (*session.layers, override, _task_layer(hints))
    files: list[RolloutFile | None] = [*session.scenes.values()]
    return tuple(_trials([*layers, *_scene_layer(session, file)]) for file in files or [None])


def _trials(layers: Sequence[Layer]) -> int:
    return int(merge([_RUN["trials"]], *layers).get("trials", RunSettings.trials))


def _scene_layer(session: BenchSession, file: RolloutFile | None) -> list[Layer]:
    """Return what a scene file says; a job file that has scenes of its own is a layer of the run already."""
    return [] if file is None or file is session.job_file else [file.layer("scene file")]


def rollout_config(session: BenchSession, node: pytest.Item, task: Task) -> RolloutConfig:
    """Return the configuration of a node's rollout; the order of precedence is that of `core.settings.LAYERS`."""
    cell: Cell | None = getattr(node, "cell", None)
    if cell is not None and node.get_closest_marker("bf_trials") is not None:
        advice = "set trials in the task file or in [[tool.benchflow.overrides]]"
        raise UsageError(f"{node.nodeid}: bf_trials comes too late for a task", advice=advice)
    scene = session.scenes.get(cell.scene) if cell is not None and cell.scene is not None else None
    path = os.path.relpath(task.path, session.config.rootpath)
    layers = [_markers(node), session.given.override_for(path, task.name), _task_layer(task.run), *session.layers]
    layers += _scene_layer(session, scene)
    values = merge(_ROLLOUT.values(), *layers)
    if values.get("sandbox", "auto") == session.defaults.sandbox:
        values["sandbox"] = session.sandbox_name
    if needs_costs(session) and "auto" not in values.get("price", ()):
        values["price"] = (*values.get("price", ()), "auto")
    first = session.agent_choices[0]
    agent, model = (cell.agent, cell.model) if cell else (first.name, first.models[0])
    for file in (session.job_file, scene):
        values |= {} if file is None else _players(file, agent, model, values)
    config = RolloutConfig(
        task_path=task.path,
        agent=agent,
        model=model,
        trial=cell.trial if cell else _trial_of(node),
        scene=cell.scene if cell else None,
        jobs_dir=session.job.directory.parent,
        job_name=session.job.directory.name,
        key=node.nodeid,
        **values,
    )
    if getattr(node, "namesake", None) is not None:
        config = longer_named(config, task, path)
    changed = node.ihook.pytest_bf_modify_config(config=config, task=task)
    return config if changed is None else expect_type(changed, RolloutConfig, "pytest_bf_modify_config", "returned")


def longer_named(config: RolloutConfig, task: Task, path: str) -> RolloutConfig:
    """Return the configuration with the path in the name of the rollout's directory, for a task that has a namesake."""
    return replace(config, rollout_name=config.name_for(f"{task.short_name}-{path}"))


def modified_task(node: pytest.Item | pytest.Collector, task: Task) -> Task:
    """Return a task as the hooks want it."""
    from pytest_benchflow.tasks import Task

    changed = node.ihook.pytest_bf_modify_task(task=task)
    return task if changed is None else expect_type(changed, Task, "pytest_bf_modify_task", "returned")


def marked_task(node: pytest.Item) -> Path:
    """Return the task that a test's `bf_task` marker names: beside the test, or below the root."""
    marker = node.get_closest_marker("bf_task")
    if marker is None or len(marker.args) != 1:
        raise UsageError(f"{node.nodeid} names no task", advice='mark it with @pytest.mark.bf_task("tasks/NAME")')
    path = Path(marker.args[0])
    near = node.path.parent / path
    return near if near.exists() else node.config.rootpath / path


def _players(file: RolloutFile, agent: str, model: str | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return who takes part as a file says: its user, its scenes, which replace prompts, its agent's effort."""
    players: dict[str, Any] = {} if file.user is None else file.user.fields()
    effort = values.get("reasoning_effort")
    if scenes := file.scenes_for(agent, model, effort):
        players |= {"scenes": scenes, "prompts": None}
    if file.agents and effort is None:
        players["reasoning_effort"] = file.agents[0].reasoning_effort
    return players


def _markers(node: pytest.Item) -> Layer:
    values: dict[str, Any] = {}
    for name, declared in _MARKED.items():
        marker = node.get_closest_marker(name)
        if marker is None:
            continue
        if len(marker.args) != 1 or isinstance(marker.args[0], bool) or not isinstance(marker.args[0], int | float):
            advice = f"write {name}({_EXAMPLES[name]})"
            raise UsageError(f"{node.nodeid}: {name} takes one number", advice=advice)
        values[declared.name] = declared.kind.read(marker.args[0], Source(f"{node.nodeid}: {name}"))
    return Layer("marker", values)


def _task_layer(hints: RunHints) -> Layer:
    declared = [one for one in (*_ROLLOUT.values(), *_RUN.values()) if one.task is not None]
    values = {one.name: value for one in declared if (value := getattr(hints, str(one.task))) is not None}
    return Layer("task", values)


def _agent_names(text: str) -> list[str]:
    """Return the agents that one value names; a raw command may hold commas of its own."""
    parts = [text] if text.lstrip().startswith("cmd:") else text.split(",")
    return [part.strip() for part in parts if part.strip()]


def _models_for(agent: str, agents: Sequence[str], texts: Sequence[str]) -> tuple[str | None, ...]:
    models: list[str | None] = []
    for text in texts:
        owner, equals, model = text.partition("=")
        if not equals or owner not in agents:
            models.append(text)
        elif owner == agent:
            models.append(model)
    return tuple(dict.fromkeys(models)) or (None,)


def _trial_of(node: pytest.Item) -> int:
    callspec = getattr(node, "callspec", None)
    return 1 if callspec is None else int(callspec.params.get("bf_trial", 1))
