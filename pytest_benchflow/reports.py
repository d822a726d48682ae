"""What pytest's reports say about rollouts: properties for JUnit, the result for the controller, texts for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.current import RESULT, existing_run, get_run

if TYPE_CHECKING:
    from pytest_benchflow.matrix import Cell
    from pytest_benchflow.rollout import ErrorInfo, RolloutResult
    from pytest_benchflow.this_run import Run

_OURS = Path(__file__).parent


def add_properties(item: pytest.Item, result: RolloutResult) -> None:
    """Put the result's facts on the item, from where JUnit and other reporters take them."""
    facts: dict[str, object] = {
        "bf_task": result.task_name,
        "bf_agent": result.agent,
        "bf_model": result.model,
        "bf_scene": result.scene,
        "bf_trial": result.trial,
        "bf_sandbox": result.sandbox,
        "bf_reward": result.reward,
        "bf_threshold": result.threshold,
        **_other_rewards(result.rewards or {}),
        "bf_agent_outcome": result.agent_outcome and result.agent_outcome.value,
        "bf_error_category": result.error and result.error.category.value,
        "bf_error_phase": result.error and result.error.phase,
        "bf_tool_calls": result.n_tool_calls,
        "bf_tokens_input": result.tokens.input,
        "bf_tokens_output": result.tokens.output,
        "bf_tokens_cached": result.tokens.cached,
        "bf_cost_usd": result.cost_usd,
        **{f"bf_seconds_{phase}": seconds for phase, seconds in result.timing.items()},
        "bf_task_digest": result.task_digest,
        "bf_rollout_dir": result.rollout_dir and str(result.rollout_dir),
    }
    item.user_properties += [(key, value) for key, value in facts.items() if value is not None]


def _other_rewards(rewards: Mapping[str, float]) -> dict[str, float]:
    return {f"bf_reward_{_property_name(key)}": value for key, value in rewards.items() if key != "reward"}


def _property_name(key: str) -> str:
    """Return a reward's key as XML and every reader of JUnit files will take it."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", key)[:80]


def amend(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Complete a phase's report of an item that has, or should have had, a rollout."""
    result = _result_of(item) or _without_rollout(item, call, report)
    if result is not None and report.when == "setup":
        add_properties(item, result)
        report.user_properties = list(item.user_properties)
        report.duration = result.timing.get("total", report.duration)
        # Plain data only: a value that execnet cannot carry would lose the item without a word.
        report.bf = result.model_dump(mode="json")  # type: ignore[attr-defined]
        report.bf_quarantine = _is_quarantined(item)  # type: ignore[attr-defined]
    if result is not None and report.failed and report.when in ("setup", "call"):
        _show(item, report, result)
    if report.failed:
        _excuse(item, report)


def _result_of(item: pytest.Item) -> RolloutResult | None:
    """Return the result of an item's rollout, as its own `bf_result` gave it if a conftest has one."""
    given = getattr(item, "funcargs", {}).get("bf_result")
    if given is None:
        return item.stash.get(RESULT, None)
    from pytest_benchflow.rollout import RolloutResult

    return given if isinstance(given, RolloutResult) else item.stash.get(RESULT, None)


def _without_rollout(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> RolloutResult | None:
    """Return a result that says why an item has no rollout: a mark, a hook, a fixture or its task was in the way."""
    from pytest_benchflow.items import RolloutItem

    if not isinstance(item, RolloutItem) or report.when != "setup" or call.excinfo is None:
        return None
    return no_rollout(
        get_run(item.config),
        item.cell,
        (item.head.name, item.path.parent),
        error=_error(call.excinfo.value) if report.failed else None,
        skipped=str(call.excinfo.value) if report.skipped else None,
    )


def no_rollout(
    run: Run, cell: Cell, task: tuple[str, Path], *, error: ErrorInfo | None, skipped: str | None = None
) -> RolloutResult:
    """Return the result of an item that never had a rollout; the task is given by name and directory."""
    from pytest_benchflow.rollout import RolloutResult, utc_now

    now = utc_now()
    return RolloutResult(
        task_name=task[0],
        task_path=str(task[1]),
        rollout_name="",
        agent=cell.agent,
        model=cell.model,
        scene=cell.scene,
        trial=cell.trial,
        sandbox=run.sandbox_name,
        threshold=run.settings.threshold,
        error=error,
        skipped=skipped,
        started_at=now,
        finished_at=now,
    )


def _error(raised: BaseException) -> ErrorInfo:
    from pytest_benchflow.errors import BenchflowError
    from pytest_benchflow.rollout import ErrorInfo

    # What pytest is told is short; the error it was made from is still behind it.
    cause = raised.__context__ if isinstance(raised.__context__, BenchflowError) else raised
    if not isinstance(cause, BenchflowError):
        cause = BenchflowError(f"{type(cause).__name__}: {cause}")
    return ErrorInfo.of(cause, "create")


def _is_quarantined(item: pytest.Item) -> bool:
    return item.get_closest_marker("bf_quarantine") is not None


def _show(item: pytest.Item, report: pytest.TestReport, result: RolloutResult) -> None:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and Path(crash.path).is_relative_to(_OURS):
        crash.path, crash.lineno = str(item.path), 1  # what `--tb=line` and annotations of CI systems point at
    # What was captured belongs to whichever thread printed meanwhile, not to this rollout.
    report.sections = [section for section in report.sections if not section[0].startswith("Captured")]
    if result.last_message:
        report.sections.append(("Agent's last message", result.last_message))
    if result.verifier_tail:
        report.sections.append(("Verifier output (last lines)", result.verifier_tail))


def _excuse(item: pytest.Item, report: pytest.TestReport) -> None:
    """Turn a failure that must not block into an expected one."""
    run = existing_run(item.config)
    if _is_quarantined(item):
        _expected(report, "quarantined")
    elif report.when == "call" and run is not None and run.settings.report_only:
        _expected(report, "report only")


def _expected(report: pytest.TestReport, why: str) -> None:
    if report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        said = "failed" if crash is None else crash.message.removeprefix("Failed: ").partition("\n")[0]
        report.outcome = "skipped"
        report.wasxfail = f"{why}: {said}"
