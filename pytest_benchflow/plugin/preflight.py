"""Before anything starts: what agents lack to reach their models, found for all cells at once; and the dry run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.agents import FREE_AGENTS, AgentRequest
from pytest_benchflow.core.errors import BenchflowError, CannotRunHere, CredentialsError
from pytest_benchflow.plugin.items import RolloutItem
from pytest_benchflow.plugin.session import BenchSession
from pytest_benchflow.rollout import (
    agent_spec,
    judges_of,
    refuse_unsupported,
    require_judge_prices,
    require_variables,
    verifier_spec,
)

if TYPE_CHECKING:
    from pytest_benchflow.jobs import Cell
    from pytest_benchflow.sandboxes import Backend
    from pytest_benchflow.tasks import Task


def refuse_missing(run: BenchSession, cells: Iterable[Cell], task_file: Path) -> None:
    """Raise one error that lists everything the selected cells lack, unless they are to be skipped."""
    if run.defaults.missing_credentials == "skip":
        return
    lacks = {lack: cell for cell in cells if (lack := lacking(run, cell, task_file)) is not None}
    if lacks:
        lines = "\n".join(f"  {_who(cell)}: {lack}" for lack, cell in lacks.items())
        advice = "to skip these rollouts instead, use --bf-missing-credentials skip"
        raise CredentialsError(f"nothing was started, because some agents cannot reach a model:\n{lines}\n{advice}")


def lacking(run: BenchSession, cell: Cell, task_file: Path) -> str | None:
    """Return what keeps a cell's agent from reaching its model; credentials are the same for every task."""
    from pytest_benchflow.agents import AgentRequest
    from pytest_benchflow.configfile import MissingVariables, TaskError
    from pytest_benchflow.tasks import load_task

    agent = run.agents.get(cell.agent)
    if not agent.calls_model:
        return None
    request = AgentRequest(cell.model, run.defaults.reasoning_effort, run.defaults.agent_env)
    try:
        agent.access(load_task(task_file), request)
    except (TaskError, MissingVariables):
        return None  # a fault of this one task, which its own rollout will tell
    except BenchflowError as error:
        return str(error)
    return None


def _who(cell: Cell) -> str:
    return "/".join(part for part in (cell.agent, cell.model) if part)


def list_cells(session: pytest.Session, run: BenchSession) -> bool:
    """Print the cells of the matrix and end the run; tasks that are broken are errors beside it."""
    items = [item for item in session.items if isinstance(item, RolloutItem)]
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.section("dry run")
        for line in DryRun(run, items).lines():
            reporter.line(line)
        if session.testsfailed:
            reporter.line(f"not listed: {session.testsfailed} that could not be collected, see the errors")
    return True


class DryRun:
    """What each rollout lacks to run, as far as can be known without starting anything."""

    def __init__(self, run: BenchSession, items: Sequence[RolloutItem]) -> None:
        self._run = run
        self._items = items
        self._trouble: str | None = None
        self._backend = self._open_backend()
        self._by_cell: dict[str, str | None] = {}
        self._by_environment: dict[Path, str | None] = {}
        self._n_judged = 0

    def lines(self) -> list[str]:
        """Return the cells, what each lacks, told once for all that lack the same, and what all could cost."""
        reasons = [self._reason(item) for item in self._items]
        counts = Counter(reason for reason in reasons if reason is not None)
        numbers: dict[str, int] = {}
        lines = []
        for item, reason in zip(self._items, reasons, strict=True):
            lines.append(f"{item.nodeid}  {_told_once(reason, counts, numbers)}")
        return [*lines, "", *self._totals(reasons)]

    def _totals(self, reasons: Sequence[str | None]) -> list[str]:
        run, paid = self._run, sum(item.cell.agent not in FREE_AGENTS for item in self._items)
        parts = [f"{paid} call a model"] if paid else []
        parts += [f"{self._n_judged} judged by a model"] if self._n_judged else []
        cost = ", ".join(parts) or "none calls a model, so they cost nothing"
        ready = f", {reasons.count(None)} of them ready" if any(reasons) else ""
        total = f"{len(reasons)} rollouts on {run.sandbox_name}{ready}, {run.in_flight} at a time; {cost}"
        return [total] if self._trouble is None else [f"nothing can run: {self._trouble}", total]

    def _open_backend(self) -> Backend:
        """Return the backend, which knows what it can do once it has looked; without that, why it could not run."""
        run = self._run
        try:
            return run.engine.call(run.resources.backend(run.sandbox_name))
        except BenchflowError as error:
            self._trouble = str(error)
            return run.sandboxes.create(run.sandbox_name)

    def _reason(self, item: RolloutItem) -> str | None:
        return self._own_reason(item) or self._cell_reason(item)

    def _cell_reason(self, item: RolloutItem) -> str | None:
        name = item.cell.name
        if name not in self._by_cell:
            self._by_cell[name] = lacking(self._run, item.cell, Path(item.summary.file))
        return self._by_cell[name]

    def _own_reason(self, item: RolloutItem) -> str | None:
        skip = item.get_closest_marker("skip")
        if skip is not None:
            return f"will be skipped: {skip.kwargs.get('reason', '')}"
        run = self._run
        agent = run.agents.get(item.cell.agent)
        try:
            task = run.task_of(item)
            if (reason := agent.skip_reason(task)) is not None:
                return f"will be skipped: {reason.removesuffix(f' for {task.short_name}')}"
            refuse_unsupported(task, self._backend, [agent])
            require_variables(task)
            judges = judges_of(task, run.defaults)
            self._n_judged += bool(judges)
            if run.resources.needs_prices:
                require_judge_prices(judges.values(), run.defaults)
            if not agent.calls_model:
                agent.access(task, AgentRequest(env=run.defaults.agent_env))
        except CannotRunHere as reason:
            return f"will be skipped: {reason}"
        except BenchflowError as error:
            # The line names the task already, and what is wrong with many must read the same.
            return str(error).removeprefix(f"{item.summary.file}: ")
        return self._environment_reason(task)

    def _environment_reason(self, task: Task) -> str | None:
        """Return what the backend says of the environments of a task: it may make sandboxes, and starts none."""
        defaults = self._run.defaults
        if self._trouble is not None or defaults.base_image_override or defaults.context_root:
            return None
        if task.path not in self._by_environment:
            try:
                self._run.engine.call(self._try_environments(task))
                self._by_environment[task.path] = None
            except BenchflowError as error:
                self._by_environment[task.path] = str(error).removeprefix(f"{task.short_name}: ")
        return self._by_environment[task.path]

    async def _try_environments(self, task: Task) -> None:
        config, directory = self._run.defaults, task.environment_dir
        specs = [agent_spec(task, config, task.short_name, build_dir=directory)]
        separate = [step for step in task.steps if step.verifier.mode == "separate"]
        specs += [verifier_spec(task, step, config, task.short_name, build_dir=directory) for step in separate]
        for spec in specs:
            await self._backend.create(spec).stop()


def _told_once(reason: str | None, counts: Counter[str], numbers: dict[str, int]) -> str:
    """Write a reason that several rollouts share with its number and their count, and later the number alone."""
    if reason is None:
        return "ready"
    if counts[reason] == 1:
        return reason
    if reason in numbers:
        return f"see ({numbers[reason]})"
    numbers[reason] = len(numbers) + 1
    return f"{reason} ({numbers[reason]}: {counts[reason]} rollouts)"
