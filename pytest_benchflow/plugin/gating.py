"""The gates and the baseline of a run of pytest: what options name, and what the hook says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, UsageError
from pytest_benchflow.plugin.stash import attribute_errors_to

if TYPE_CHECKING:
    import pytest

    from pytest_benchflow.jobs import Budget, Gate, GateVerdict, StopWhenDecided
    from pytest_benchflow.plugin.items import RolloutItem
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.reporting import Entry, Judgement, Report


def read_run_gates(run: BenchSession) -> list[Gate]:
    """Return the gates that options and files name; what is wrong with them is told before anything starts."""
    settings = run.settings
    if run.defaults.price:
        from pytest_benchflow.providers import Prices

        Prices.read(run.defaults.price)  # one that is not a price is told at once
    if settings.max_regression is not None and settings.baseline is None:
        raise UsageError("--bf-max-regression has nothing to compare with", advice="give --bf-baseline FILE")
    if settings.update_baseline and settings.baseline is None:
        raise UsageError("--bf-update-baseline has no file", advice="give --bf-baseline FILE")
    if not settings.gate and settings.max_regression is None:
        return []
    from pytest_benchflow.jobs import read_gates

    drop = None if settings.update_baseline else settings.max_regression  # an update moves the bar
    gates = read_gates(settings.gate, max_regression=drop)
    for gate in gates:
        if gate.needs_baseline and settings.baseline is None:
            raise UsageError(f"--bf-gate: {gate} has nothing to compare with", advice="give --bf-baseline FILE")
    return gates


def stop_rule(run: BenchSession) -> StopWhenDecided | None:
    """Return the rule that stops the run once its gates are decided, if it is to stop then."""
    settings = run.settings
    if not settings.stop_when_decided and settings.confidence is None:
        return None
    flag = "--bf-stop-when-decided" if settings.confidence is None else "--bf-confidence"
    if not run.gates:
        raise UsageError(f"{flag} has no gate to decide", advice="give --bf-gate")
    if run.config.hook.pytest_bf_gate.get_hookimpls():
        raise UsageError(f"{flag} and pytest_bf_gate do not go together", advice="the hook judges all results")
    if source := _reruns(run.config):
        raise UsageError(f"{flag} and {source} do not go together", advice="a rerun may change what was decided")
    from pytest_benchflow.jobs import StopWhenDecided, is_tested

    if settings.confidence is not None and not any(map(is_tested, run.gates)):
        raise UsageError(f"{flag} has no gate on pass_rate or mean_reward", advice="add one, or leave it away")
    return StopWhenDecided(run.gates, confidence=settings.confidence, report_only=settings.report_only)


def _reruns(config: pytest.Config) -> str | None:
    """Return which setting of pytest-rerunfailures has failed items run again, None if there is none."""
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return None
    for option in ("force_reruns", "reruns"):
        if config.getoption(option, None):
            return f"--{option.replace('_', '-')}"
    return "the setting reruns" if config.getini("reruns") not in ("", "0") else None


def _may_rerun(item: RolloutItem) -> bool:
    """Return whether a mark of pytest-rerunfailures has the item run again if it fails."""
    mark = item.get_closest_marker("flaky") if item.config.pluginmanager.hasplugin("rerunfailures") else None
    return mark is not None and mark.kwargs.get("reruns", [*mark.args, 1][0]) != 0


def plan_run(run: BenchSession, items: Sequence[RolloutItem]) -> None:
    """Tell the rule which rollouts there are; those that never block are none of its business."""
    if run.stop_rule is None:
        return
    from pytest_benchflow.jobs import Labels, Planned

    counted = [item for item in items if item.get_closest_marker("bf_quarantine") is None]
    run.stop_rule.begin(
        [
            Planned(
                item.nodeid,
                Labels(
                    item.summary.name,
                    item.cell.agent,
                    item.cell.model,
                    item.cell.scene,
                    run.sandbox_name,
                    item.summary.difficulty,
                    item.summary.category,
                    item.summary.tags,
                    (str(item.path.parent), item.cell.agent, item.cell.model, item.cell.scene),
                ),
                may_rerun=_may_rerun(item),
            )
            for item in counted
        ]
    )
    for item in counted:
        if item.get_closest_marker("skip") is not None:  # it has no rollout that could tell
            run.stop_rule.add(item.nodeid, "skipped", None)


def shuffle_rollouts(run: BenchSession, items: list[pytest.Item]) -> None:
    """Bring rollouts into an order that has nothing to do with their outcomes: the same in all processes of the run."""
    from pytest_benchflow.plugin.items import RolloutItem

    places = [place for place, item in enumerate(items) if isinstance(item, RolloutItem)]
    shuffled = [items[place] for place in places]
    random.Random(run.run_id).shuffle(shuffled)  # noqa: S311
    for place, item in zip(places, shuffled, strict=True):
        items[place] = item


def needs_costs(run: BenchSession) -> bool:
    """Return whether anything in the run asks what it costs."""
    return run.settings.max_cost is not None or any(gate.metric == "cost_usd" for gate in run.gates)


def budget_rule(run: BenchSession) -> Budget | None:
    """Return the rule that keeps the run to its budget, if it has one; prices have to be known for that."""
    limit = run.settings.max_cost
    if limit is None:
        return None
    from pytest_benchflow.jobs import Budget, guess_by, require_prices
    from pytest_benchflow.providers import Prices

    prices = Prices.read((*run.defaults.price, "auto"))
    files = [file.scenes_for(cell.agent, cell.model) for cell in run.cells() if cell.scene in run.scenes
             for file in [run.scenes[cell.scene]]]  # fmt: skip
    roles = {(role.agent, role.model) for scenes in files for scene in scenes for role in scene.roles}
    require_prices(prices, roles | {(cell.agent, cell.model) for cell in run.cells()})
    return Budget(limit, guess_by(prices))


def read_baseline(run: BenchSession) -> Sequence[Entry] | None:
    """Return the rollouts of the baseline, None if there is none."""
    path = run.settings.baseline
    if path is None or (run.settings.update_baseline and not path.exists()):
        return None
    from pytest_benchflow.reporting import read_report

    try:
        return read_report(path).rollouts
    except BenchflowError as error:
        raise UsageError(f"--bf-baseline: {error}") from None


def judge_run(
    run: BenchSession,
    entries: Sequence[Entry],
    *,
    status: int,
    missing: Sequence[str],
    n_other_failures: int,
) -> Judgement:
    """Return the judgement on a run that would end with a status of pytest's."""
    from pytest_benchflow.jobs import early_verdicts
    from pytest_benchflow.plugin.controller import is_of_task_file
    from pytest_benchflow.reporting import judge

    level = run.settings.confidence
    collected = [entry for entry in entries if is_of_task_file(entry.id)]
    return judge(
        run.gates if entries or run.is_judged_without_rollouts else [],
        entries,
        status=status,
        baseline=run.baseline,
        others=_hook_verdicts(run, entries),
        tests=None if level is None else early_verdicts(run.gates, collected, level),
        missing=missing,
        n_other_failures=n_other_failures,
        report_only=run.settings.report_only,
    )


def update_baseline(run: BenchSession, judgement: Judgement, report: Report, path: Path) -> str:
    """Make the report of a complete run the new baseline, and say so or why not."""
    from pytest_benchflow.reporting import write_report

    shown = run.shown(str(path))
    broken = any(entry.status in ("error", "cancelled") for entry in report.rollouts)
    if not judgement.is_complete or broken or not report.rollouts:
        return f"baseline: {shown} is not updated, because the run is not complete"
    try:
        write_report(report, path)
    except OSError as error:
        return f"baseline: {shown} could not be written: {error.strerror}"
    return f"baseline: {shown} is this run now"


def _hook_verdicts(run: BenchSession, entries: Sequence[Entry]) -> list[GateVerdict]:
    hook = run.config.hook.pytest_bf_gate
    if not entries or not hook.get_hookimpls():
        return []
    results = [entry.result for entry in entries if entry.status != "quarantined" and entry.result.held_back is None]
    try:
        with attribute_errors_to("pytest_bf_gate"):
            answers: list[object] = hook(results=results)
    except BenchflowError as error:
        answers = [error]
    return [_hook_verdict(answer, len(results), report_only=run.settings.report_only) for answer in answers]


def _hook_verdict(answer: object, n_results: int, *, report_only: bool) -> GateVerdict:
    from pytest_benchflow.jobs import GateVerdict

    outcome, message = "error", f"returned {answer!r}, which is not a text, True or False"
    if isinstance(answer, BenchflowError):
        message = str(answer)
    elif isinstance(answer, str):
        outcome, message = "failed", answer
    elif isinstance(answer, bool):
        outcome, message = ("passed", "as the hook wants it") if answer else ("failed", "not as the hook wants it")
    described = {"gate": "pytest_bf_gate", "origin": "hook", "rollouts": n_results, "outcome": outcome}
    blocking = not (report_only and outcome == "failed")
    return GateVerdict.model_validate({**described, "message": message, "blocking": blocking})
