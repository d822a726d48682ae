"""What pytest's reports say about rollouts, and the results of the run gathered from them: the same under xdist."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.plugin.controller import is_of_task_file
from pytest_benchflow.plugin.outcome import judge
from pytest_benchflow.plugin.stash import RESULT, existing_run, get_session

if TYPE_CHECKING:
    from pytest_benchflow.jobs import Cell
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.reporting import Entry, Report
    from pytest_benchflow.rollout import ErrorInfo, RolloutResult


@dataclass
class Results:
    """Results by node id, with what pytest made of each; packed until the run is over, for there may be many."""

    started_at: str = ""
    outcomes: dict[str, str] = field(default_factory=dict)
    n_reused: int = 0
    _packed: dict[str, bytes] = field(default_factory=dict)
    _unscored: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """Whether it was cancelled and whether it was skipped, of those that were either."""
    _entries: dict[str, Entry] = field(default_factory=dict)

    def knows(self, nodeid: str) -> bool:
        """Return whether a rollout has a result."""
        return nodeid in self.outcomes

    @property
    def ids(self) -> Collection[str]:
        """The node ids of all rollouts that have a result."""
        return self.outcomes.keys()

    def add(self, report: pytest.TestReport) -> None:
        """Take what a report of any phase says about a rollout."""
        self._entries.clear()
        raw: dict[str, object] | None = getattr(report, "bf", None)
        if raw is not None:
            self._keep(report.nodeid, raw)
            self.n_reused += getattr(report, "bf_reused", False)
            self.outcomes[report.nodeid] = "quarantined" if getattr(report, "bf_quarantine", False) else "passed"
            if not report.failed:  # pytest keeps its reports to the end
                del report.bf
        if self.outcomes.get(report.nodeid, "quarantined") != "quarantined":
            self._judge(report)

    def _keep(self, nodeid: str, raw: Mapping[str, object]) -> None:
        self._packed[nodeid] = _pack(raw)
        self._unscored.pop(nodeid, None)
        if raw["cancelled"] or raw["skipped"] is not None:
            self._unscored[nodeid] = bool(raw["cancelled"]), raw["skipped"] is not None

    def add_unreached(self, results: Iterable[RolloutResult], quarantined: Collection[str], *, selftest: bool) -> None:
        """Take rollouts that ended, or were cancelled, before pytest came to their items."""
        self._entries.clear()
        for result in results:
            kind = "cancelled" if result.cancelled else judge(result, must_fail=selftest and result.agent == "nop").kind
            self._keep(result.key, result.model_dump(mode="json"))
            self.outcomes[result.key] = "quarantined" if result.key in quarantined else kind

    def entries(self, order: Sequence[str]) -> list[Entry]:
        """Return the results as entries of the report, in the order of collection if it is known."""
        if not self._entries:
            from pytest_benchflow.reporting import Entry

            self._entries = {
                nodeid: Entry.model_validate(
                    {"id": nodeid, "status": self.outcomes[nodeid], "result": _unpacked(packed)}
                )
                for nodeid, packed in self._packed.items()
            }
        place = {nodeid: number for number, nodeid in enumerate(order)}
        return [entry for _, entry in sorted(self._entries.items(), key=lambda pair: place.get(pair[0], 0))]

    def report(self, order: Sequence[str], *, exit_status: int, job_dir: str | None, finished_at: str) -> Report:
        """Return the report of the run."""
        from pytest_benchflow.reporting import Report, group

        entries = self.entries(order)
        return Report(
            tool_version=version("pytest-benchflow"),
            started_at=self.started_at,
            finished_at=finished_at,
            exit_status=exit_status,
            job_dir=job_dir,
            summary=group(entries),
            rollouts=entries,
        )

    def notes(self) -> list[str]:
        """Return what there is to know of the rollouts, each thing once, the most common first."""
        results = [entry.result for entry in self.entries(())]
        counts = Counter(note for result in results for note in result.notes)
        reused = (
            [f"{self.n_reused} of {len(results)} scores are of an earlier run of this job"] if self.n_reused else []
        )
        return (
            reused
            + _integrity_notes(self.entries(()))
            + [f"{note} ({count} rollouts)" if count > 1 else note for note, count in counts.most_common()]
        )

    def job_directory(self) -> str | None:
        """Return where the results are, None if there are none."""
        directories = (entry.result.rollout_dir for entry in self.entries(()))
        directory = next((each for each in directories if each is not None), None)
        return None if directory is None else str(directory.parent)

    def _judge(self, report: pytest.TestReport) -> None:
        if report.skipped:
            is_cancelled, is_skipped = self._unscored.get(report.nodeid, (False, False))
            if is_cancelled:
                self.outcomes[report.nodeid] = "cancelled"
                return
            ran = not is_skipped
            self.outcomes[report.nodeid] = "failed" if ran and hasattr(report, "wasxfail") else "skipped"
        elif report.failed and not _passed_unexpectedly(report):
            self.outcomes[report.nodeid] = "failed" if report.when == "call" else "error"


def _passed_unexpectedly(report: pytest.TestReport) -> bool:
    """Return whether a rollout passed that a strict xfail expects to fail: that fails its item, not its reward."""
    return str(report.longrepr).startswith("[XPASS(strict)]")


def _pack(raw: Mapping[str, object]) -> bytes:
    # Late: suites without a rollout need none of it.
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return to_json(raw, inf_nan_mode="constants")
    except PydanticSerializationError:  # half a character, as agents send them
        return json.dumps(raw).encode()


def _unpacked(packed: bytes) -> RolloutResult:
    from pydantic import ValidationError

    from pytest_benchflow.rollout import RolloutResult

    try:
        return RolloutResult.model_validate_json(packed)
    except ValidationError:
        return RolloutResult.model_validate(json.loads(packed))


def _integrity_notes(entries: Iterable[Entry]) -> list[str]:
    """Return a line for each rollout that tripped a defence, and one for opt-outs that were used."""
    lines: list[str] = []
    opted_out: Counter[str] = Counter()
    for entry in entries:
        texts = list(dict.fromkeys(finding.message for finding in entry.result.integrity))
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        lines += [f"integrity: {entry.id}: {text}{more}" for text in texts[:1]]
        if entry.result.hardening_off:
            opted_out[", ".join(entry.result.hardening_off)] += 1
    return lines + [f"[verifier.hardening] {keys}: off in {count} rollouts" for keys, count in opted_out.items()]


_OURS = Path(__file__).parent


def add_properties(item: pytest.Item, result: RolloutResult) -> None:
    """Put the result's facts on the item, from where JUnit and other reporters take them."""
    from pytest_benchflow.verify import listed_findings

    facts: dict[str, object] = {
        "bf_task": result.task_name,
        "bf_agent": result.agent,
        "bf_model": result.model,
        "bf_models": ", ".join(result.models) or None,
        "bf_scene": result.scene,
        "bf_trial": result.trial,
        "bf_sandbox": result.sandbox,
        "bf_reward": result.reward,
        "bf_threshold": result.threshold,
        **_other_rewards(result.rewards or {}),
        "bf_agent_outcome": result.agent_outcome and result.agent_outcome.value,
        "bf_error_category": result.error and result.error.category.value,
        "bf_error_phase": result.error and result.error.phase,
        "bf_integrity_findings": len(result.integrity) or None,
        "bf_integrity": listed_findings(result.integrity, limit=10) or None,
        "bf_hardening_off": ", ".join(result.hardening_off) or None,
        "bf_tool_calls": result.n_tool_calls,
        "bf_tokens_input": result.tokens.input,
        "bf_tokens_output": result.tokens.output,
        "bf_tokens_cached": result.tokens.cached,
        "bf_cost_usd": result.cost_usd,
        "bf_cost_partial": True if result.cost_is_partial else None,
        **{f"bf_seconds_{phase}": seconds for phase, seconds in result.timing.items()},
        "bf_task_digest": result.task_digest,
        "bf_rollout_dir": result.rollout_dir and str(result.rollout_dir),
    }
    item.user_properties += [_pair(key, value) for key, value in facts.items() if value is not None]


def _pair(key: str, value: object) -> tuple[str, object]:
    """Return a property; thousands of rollouts have the same agent, and pytest keeps all reports to the end."""
    return _same_pair(key, value) if type(value) is str else (key, value)


@lru_cache(maxsize=1024)
def _same_pair(key: str, value: str) -> tuple[str, object]:
    return key, value


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
        report.bf_reused = item.nodeid in get_session(item.config).reused  # type: ignore[attr-defined]
    if result is not None and report.failed and report.when in ("setup", "call"):
        _show(item, report, result)
    if report.failed:
        _excuse(item, report, result)


def _result_of(item: pytest.Item) -> RolloutResult | None:
    """Return the result of an item's rollout, as its own `bf_result` gave it if a conftest has one."""
    result = getattr(item, "funcargs", {}).get("bf_result")
    if result is None:
        return item.stash.get(RESULT, None)
    from pytest_benchflow.rollout import RolloutResult

    return result if isinstance(result, RolloutResult) else item.stash.get(RESULT, None)


def _without_rollout(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> RolloutResult | None:
    """Return a result that says why an item has no rollout: a mark, a hook, a fixture or its task was in the way."""
    from pytest_benchflow.plugin.items import RolloutItem

    if not isinstance(item, RolloutItem) or report.when != "setup" or call.excinfo is None:
        return None
    return no_rollout(
        get_session(item.config),
        item.cell,
        (item.summary.name, item.path.parent),
        error=_error(call.excinfo.value) if report.failed else None,
        skipped=str(call.excinfo.value) if report.skipped else None,
    )


def no_rollout(
    run: BenchSession, cell: Cell, task: tuple[str, Path], *, error: ErrorInfo | None, skipped: str | None = None
) -> RolloutResult:
    """Return the result of an item that never had a rollout; the task is given by name and directory."""
    from pytest_benchflow.jobs import not_started

    config = replace(
        run.defaults,
        task_path=task[1],
        agent=cell.agent,
        model=cell.model,
        scene=cell.scene,
        trial=cell.trial,
        sandbox=run.sandbox_name,
    )
    return not_started(config, name=task[0], error=error, skipped=skipped)


def _error(raised: BaseException) -> ErrorInfo:
    from pytest_benchflow.core.errors import BenchflowError
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


def _excuse(item: pytest.Item, report: pytest.TestReport, result: RolloutResult | None) -> None:
    """Turn a failure that must not block into an expected one."""
    run = existing_run(item.config)
    if _is_quarantined(item):
        _expected(report, "quarantined")
    elif report.when == "call" and run is not None and run.settings.report_only and _is_about_reward(item, result):
        _expected(report, "report only")


def _is_about_reward(item: pytest.Item, result: RolloutResult | None) -> bool:
    """Return whether it is a reward that fails an item; other tests, and what Python tests assert besides, may too."""
    return result is not None and (is_of_task_file(item.nodeid) or result.status == "failed")


def _expected(report: pytest.TestReport, why: str) -> None:
    if report.outcome == "failed":
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = "failed" if crash is None else crash.message.removeprefix("Failed: ").partition("\n")[0]
        report.outcome = "skipped"
        report.wasxfail = f"{why}: {reason}"
