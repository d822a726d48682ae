"""Jobs beside each other: the first is what the others are compared with, task by task, in a terminal and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_benchflow.core.text import one_line
from pytest_benchflow.jobs import Comparison, Tally, compare, comparison_lines
from pytest_benchflow.reporting.html.page import write_page
from pytest_benchflow.reporting.html.page_data import overview_of
from pytest_benchflow.reporting.html.rollout_files import config_of
from pytest_benchflow.reporting.report import Entry, Report, group

if TYPE_CHECKING:
    from rich.text import Text

    from pytest_benchflow.core.types import Json
    from pytest_benchflow.jobs import TaskChange

#: What differs between any two rollouts, or says only where they are.
_OF_ONE_ROLLOUT = frozenset(
    {
        "rollout_name", "task_name", "task_path", "task_digest", "key", "trial", "jobs_dir", "job_name", "started_at",
        "scenes", "rollout_dir",
    }
)  # fmt: skip
_LONGEST_VALUE = 120
_COLOURS = {"regressed": "red", "worse": "red", "improved": "green", "better": "green"}


@dataclass(frozen=True)
class ComparedJobs:
    """Jobs with their names, the first beside each of the others."""

    names: tuple[str, ...]
    reports: tuple[Report, ...]

    @classmethod
    def of(cls, sources: Sequence[tuple[Path, Report]]) -> ComparedJobs:
        """Name jobs by their directories, or by letters where these do not tell them apart."""
        names = [source.resolve().stem if source.is_file() else source.resolve().name for source, _ in sources]
        if len({*names}) < len(names):
            names = [f"{chr(ord('A') + number)} {name}" for number, name in enumerate(names)]
        return cls(tuple(names), tuple(report for _, report in sources))

    @property
    def comparisons(self) -> list[Comparison]:
        """The first job beside each other one."""
        first, *others = self.reports
        return [compare(first.rollouts, other.rollouts) for other in others]

    @property
    def changes(self) -> dict[str, list[str]]:
        """What was configured differently: for each setting what it was in each job."""
        configured = [_configuration(report) for report in self.reports]
        keys = dict.fromkeys(key for each in configured for key in each)
        values = {key: [", ".join(sorted(each.get(key, ()))) or "–" for each in configured] for key in keys}
        return {key: texts for key, texts in values.items() if len({*texts}) > 1}

    def as_json(self) -> dict[str, Json]:
        """Return everything as plain data."""
        first, *others = self.names
        return {
            "jobs": [_numbers(name, report) for name, report in zip(self.names, self.reports, strict=True)],
            "comparisons": [
                {"before": first, "after": name, **comparison.model_dump(mode="json")}
                for name, comparison in zip(others, self.comparisons, strict=True)
            ],
            "changes": {key: [*values] for key, values in self.changes.items()},
        }

    def overview(self) -> tuple[Report, dict[str, Json]]:
        """Return all jobs as one report, and the overview of the page that shows it."""
        entries = [
            entry.model_copy(update={"id": f"{name}:{entry.id}"})
            for name, report in zip(self.names, self.reports, strict=True)
            for entry in report.rollouts
        ]
        first = self.reports[0]
        report = first.model_copy(
            update={"rollouts": entries, "summary": group(entries), "gates": [], "exit_status": None, "job_dir": None}
        )
        overview = overview_of(report, " → ".join(self.names))
        jobs = [name for name, report in zip(self.names, self.reports, strict=True) for _ in report.rollouts]
        rows = overview["rollouts"]
        assert isinstance(rows, list)
        groups: list[Json] = [
            {**each.model_dump(mode="json"), "job": name}
            for name, report in zip(self.names, self.reports, strict=True)
            for each in report.summary
        ]
        labelled: list[Json] = [
            {**row, "job": job} for row, job in zip(rows, jobs, strict=True) if isinstance(row, dict)
        ]
        comparison: dict[str, Json] = {**self.as_json(), "tasks": [*self._task_rows()]}
        return report, {**overview, "groups": groups, "rollouts": labelled, "comparison": comparison}

    def _task_rows(self) -> Iterator[dict[str, Json]]:
        """Yield for each task what it was in the first job and in each other, and the rollouts to look at."""
        for (task, configuration), changes in task_changes(self.comparisons).items():
            known = next(change for change in changes if change is not None)
            cells: list[Json] = [
                {
                    "passed": known.before_passed,
                    "trials": known.before_trials,
                    "reward": known.before_reward,
                    "id": self._id(0, task, configuration, "failed" if known.change == "better" else "passed"),
                }
            ]
            for number, change in enumerate(changes, 1):
                cells.append(
                    None
                    if change is None
                    else {
                        "passed": change.after_passed,
                        "trials": change.after_trials,
                        "reward": change.after_reward,
                        "change": change.change,
                        "verdict": change.verdict,
                        "id": self._id(number, task, configuration, "failed" if change.change == "worse" else "passed"),
                    }
                )
            yield {"task": task, "configuration": configuration, "cells": cells}

    def _id(self, job: int, task: str, configuration: str, status: str) -> str | None:
        """Return the id of a rollout of a task in a job, if possible of this configuration and with this outcome."""
        entries = [each for each in self.reports[job].rollouts if task in (each.result.task_name, _file(each))]
        entries.sort(key=lambda each: (_who(each) != configuration, each.status != status))
        return next((f"{self.names[job]}:{each.id}" for each in entries), None)


def task_changes(comparisons: Sequence[Comparison]) -> dict[tuple[str, str], list[TaskChange | None]]:
    """Return for each task and configuration how it changed in each comparison, None where it cannot be told."""
    by_task = [{(change.task, change.configuration): change for change in each.tasks} for each in comparisons]
    keys = dict.fromkeys(key for each in by_task for key in each)
    return {key: [each.get(key) for each in by_task] for key in keys}


def write_comparison(jobs: ComparedJobs, path: Path) -> None:
    """Write the comparison as one page."""
    report, overview = jobs.overview()
    write_page(report, overview, path)


def print_comparison(jobs: ComparedJobs, file: IO[str]) -> None:
    """Print the comparison: a table of the tasks that differ, verdicts, and what was configured differently."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 160
    table = Table(box=None, pad_edge=False, header_style="bold")
    comparisons = jobs.comparisons
    has_agents = any(configuration for _, configuration in task_changes(comparisons))
    for heading in ("task", *(["agent"] if has_agents else []), *jobs.names):
        table.add_column(heading, overflow="fold")
    n_same = 0
    for (task, configuration), changes in task_changes(comparisons).items():
        if all(change is None or _is_same(change) for change in changes):
            n_same += 1
            continue
        known = next(change for change in changes if change is not None)
        cells = [Text("–") if change is None else _changed(change) for change in changes]
        before = Text(_score(known.before_passed, known.before_trials, known.before_reward))
        table.add_row(one_line(task), *([one_line(configuration)] if has_agents else []), before, *cells)
    with console.capture() as printed:  # a reader that stops reading is ours to handle, not the console's
        if table.row_count:
            console.print(table)
        if n_same:
            console.print(f"{n_same} with the same result")
        for name, comparison in zip(jobs.names[1:], comparisons, strict=True):
            console.print(Text(f"\n{jobs.names[0]} → {name}", style="bold"))
            for line in comparison_lines(comparison):
                if not line.startswith(("  worse: ", "  better: ")):  # the table has them
                    console.print(Text(line, style=_COLOURS.get(line.partition(":")[0], "")), soft_wrap=True)
        if jobs.changes:
            console.print(Text("\nconfigured differently", style="bold"))
            for key, values in jobs.changes.items():
                console.print(f"  {key}: {' → '.join(values)}", soft_wrap=True)
    file.write(printed.get())


def _is_same(change: TaskChange) -> bool:
    return change.change == "same" and change.before_reward == change.after_reward


def _changed(change: TaskChange) -> Text:
    from rich.text import Text

    text = Text(_score(change.after_passed, change.after_trials, change.after_reward))
    if change.change != "same":
        evidence = "" if change.verdict == "no evidence" else f", {change.verdict}"
        text.append(f"  {change.change}{evidence}", style=_COLOURS[change.change])
    return text


def _score(passed: int, trials: int, reward: float) -> str:
    return f"{passed} of {trials}" + ("" if reward == passed / trials else f", reward {reward:.2f}")


def _numbers(name: str, report: Report) -> dict[str, Json]:
    tally = Tally([entry.result for entry in report.rollouts], [entry.status for entry in report.rollouts])
    interval = tally.pass_rate_interval
    return {
        "name": name,
        "directory": report.job_dir,
        "started_at": report.started_at,
        "rollouts": len(report.rollouts),
        "passed": tally.n("passed"),
        "errors": tally.n("error"),
        "pass_rate": tally.pass_rate,
        "pass_rate_interval": None if interval is None else [*interval],
        "mean_reward": tally.mean_reward,
        "cost_usd": tally.cost_usd,
        "tokens": tally.tokens,
        "seconds": tally.seconds,
    }


def _configuration(report: Report) -> Mapping[str, set[str]]:
    """Return what the rollouts of a job were configured with, every value of each setting."""
    values: dict[str, set[str]] = {"version": {report.tool_version}}
    for entry in report.rollouts:
        result = entry.result
        for key, fact in (("agent version", result.agent_version), ("sandbox", result.sandbox)):
            values.setdefault(key, set()).update({fact} if fact else ())
        config = None if result.rollout_dir is None else config_of(result.rollout_dir)
        facts = config if isinstance(config, dict) else {"agent": result.agent, "model": result.model}
        for key, value in facts.items():
            if key not in _OF_ONE_ROLLOUT:
                text = value if isinstance(value, str) else json.dumps(value)
                values.setdefault(key, set()).add(one_line(text, _LONGEST_VALUE))
    return values


def _file(entry: Entry) -> str:
    return entry.id.partition("::")[0]


def _who(entry: Entry) -> str:
    return "/".join(part for part in (entry.result.agent, entry.result.model, entry.result.scene) if part)
