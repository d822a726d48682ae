"""Gates, baselines and the exit status that follows from them, in runs of pytest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project

from pytest_benchflow.reporting import Report

FAILED, OK, NO_TESTS = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.fixture(scope="module")
def mixed(new_project: Callable[..., Project]) -> Project:
    """Two tasks that pass, one that fails, one whose verifier breaks, and an ordinary test that fails."""
    project = new_project()
    for name in ("a", "b"):
        project.task(f"tasks/{name}", toml='[metadata]\ntags = ["io"]\n')
    project.task("tasks/low", test="echo 0.5 > /logs/verifier/reward.txt")
    project.task("broken/c", test="exit 0")
    project.write({"test_plain.py": "def test_it():\n    assert 0\n"})
    return project


def gate_lines(run: pytest.RunResult) -> list[str]:
    return [line for line in run.outlines if line.startswith(("gate ", "gates:", "baseline:", "budget:"))]


def report_of(project: Project, name: str = "r.json") -> Report:
    return Report.model_validate_json((project.root / name).read_text())


@pytest.mark.parametrize(
    ("options", "arguments", "status", "last"),
    [
        (["pass_rate >= 0.6"], "tasks", OK, "gates: passed"),
        (["pass_rate >= 0.7", "failed <= 1"], "tasks -n2", FAILED, "gates: not passed (1 of 2)"),
        (["pass_rate[tag='io'] >= 1"], "tasks broken", FAILED, "gates: not passed (1 of 2)"),
        (["pass_rate[tag='io'] >= 1", "errors <= 1"], "tasks broken -n2", OK, "gates: passed"),
        (["pass_rate >= 0.6"], "tasks test_plain.py", FAILED, "gates: passed, but 1 failure is not of a rollout"),
    ],
)
def test_gates_decide_and_what_is_printed_agrees(
    mixed: Project, options: list[str], arguments: str, status: int, last: str
) -> None:
    gates = [f"--bf-gate={gate}" for gate in options]
    run = mixed.run(*arguments.split(), *gates, "--bf-json=r.json")
    assert run.ret == status
    assert gate_lines(run)[-1] == last
    assert any("FAILED tasks/low" in line for line in run.outlines)  # single items stay what they are
    report = report_of(mixed)
    assert report.exit_status == status
    assert all(verdict.outcome == "passed" for verdict in report.gates) == last.startswith("gates: passed")
    assert report.failed_tests == ("test_plain" in arguments)


def test_a_gate_over_no_rollouts_is_an_error(mixed: Project) -> None:
    run = mixed.run("tasks", "-k", "nothing", "--bf-gate=pass_rate >= 0")
    assert run.ret == NO_TESTS
    assert gate_lines(run) == ["gate error  pass_rate >= 0: no rollout has an outcome", "gates: not passed (1 of 1)"]
    run = mixed.run("tasks/a", "--bf-gate=pass_rate[agent='codex'] >= 0")
    assert run.ret == FAILED
    assert "gate error  pass_rate[agent='codex'] >= 0: no rollout has agent='codex'; known: oracle" in run.outlines


def test_gates_of_a_project_are_for_runs_that_have_rollouts(new_project: Callable[..., Project]) -> None:
    project = new_project(ini="[pytest]\nbf_gate =\n    pass_rate >= 0.5\n    errors == 0\n")
    project.task("tasks/a")
    project.task("tasks/b", test="echo 0 > /logs/verifier/reward.txt")
    project.write({"test_plain.py": "def test_it():\n    pass\n"})
    assert project.run("test_plain.py").ret == OK
    run = project.run("tasks")
    assert run.ret == OK
    assert len(gate_lines(run)) == 3


def test_a_wrong_gate_is_refused_before_anything_starts(mixed: Project) -> None:
    run = mixed.run("tasks", "--bf-gate=pas_rate >= 1")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in run.errlines if line] == [
        "ERROR: --bf-gate: pas_rate is not a metric; did you mean pass_rate?",
        "  pas_rate >= 1",
        "  ^",
    ]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--bf-max-regression=0.1"], "give --bf-baseline FILE"),
        (["--bf-update-baseline"], "give --bf-baseline FILE"),
        (["--bf-gate=regression <= 0"], "give --bf-baseline FILE"),
        (["--bf-baseline=pytest.ini", "--bf-max-regression=5"], "--bf-max-regression is 5; give a part of 1"),
        (["--bf-baseline=no.json"], "no.json cannot be read"),
        (["--bf-baseline=pytest.ini"], "pytest.ini is not JSON"),
    ],
)
def test_what_a_baseline_lacks_is_told_before_anything_starts(mixed: Project, options: list[str], advice: str) -> None:
    run = mixed.run("tasks", *options)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert advice in run.stderr.str()


def test_stopping_early_leaves_gates_undecided(mixed: Project) -> None:
    run = mixed.run("tasks/low", "tasks/a", "-x", "--bf-gate=pass_rate >= 0", "--bf-json=r.json", "--bf-concurrency=1")
    assert run.ret == FAILED
    first, last = gate_lines(run)
    assert first.startswith("gate undecided  pass_rate >= 0: ")
    assert first.endswith(" so far, but 1 rollout never reported")
    assert last == "gates: not passed (1 of 1)"
    assert [one.rpartition("tasks/")[2] for one in report_of(mixed).missing] == ["a/task.toml::oracle"]


def test_report_only_reports(mixed: Project) -> None:
    run = mixed.run("tasks", "--bf-gate=pass_rate >= 1", "--bf-report-only")
    assert run.ret == OK
    assert gate_lines(run)[0].endswith("; only reported")
    assert gate_lines(run)[-1] == "gates: passed, 1 only reported"
    assert mixed.run("broken", "--bf-gate=rollouts >= 1", "--bf-report-only").ret == FAILED


QUARANTINE = (
    "import pytest\ndef pytest_itemcollected(item):\n    if 'low' in item.nodeid: item.add_marker('bf_quarantine')\n"
)


@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_quarantined_rollouts_run_and_never_block(
    new_project: Callable[..., Project], workers: tuple[str, ...]
) -> None:
    project = new_project()
    project.task("tasks/a")
    project.task("tasks/low", test="echo 0.5 > /logs/verifier/reward.txt")
    project.write({"conftest.py": QUARANTINE})
    run = project.run("tasks", "--bf-gate=pass_rate >= 1", "--bf-gate=failed == 0", "--bf-json=r.json", *workers)
    assert run.ret == OK
    assert sorted(entry.status for entry in report_of(project).rollouts) == ["passed", "quarantined"]


HOOK = """\
def pytest_bf_gate(results):
    total = sum(result.reward or 0 for result in results)
    return {answer}
"""


@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        ("f'{total} is not enough'", FAILED, "gate failed  pytest_bf_gate: 1.5 is not enough"),
        ("total > 1", OK, "gate passed  pytest_bf_gate: as the hook wants it"),
        ("None", FAILED, None),
        ("1 / 0", FAILED, "gate error  pytest_bf_gate: pytest_bf_gate raised ZeroDivisionError"),
        ("total", FAILED, "gate error  pytest_bf_gate: returned 1.5"),
    ],
)
def test_a_hook_is_a_gate(new_project: Callable[..., Project], answer: str, status: int, line: str | None) -> None:
    project = new_project()
    project.task("tasks/a")
    project.task("tasks/low", test="echo 0.5 > /logs/verifier/reward.txt")
    project.write({"conftest.py": HOOK.format(answer=answer)})
    run = project.run("tasks")
    assert run.ret == status
    shown = gate_lines(run)
    assert shown[0].startswith(line) if line else not shown


def test_a_baseline_is_made_compared_with_and_moved(new_project: Callable[..., Project]) -> None:
    project = new_project()
    names = [f"t{n}" for n in range(6)]
    for name in names:
        project.task(
            f"tasks/{name}", test=f"cat /app/{name} > /logs/verifier/reward.txt", solve=f"echo 1 > /app/{name}"
        )
    baseline = ["--bf-baseline=base.json", "--bf-max-regression=0.5"]
    first = project.run("tasks", *baseline, "--bf-update-baseline")
    assert first.ret == OK
    assert "baseline: base.json is this run now" in first.outlines
    same = project.run("tasks", *baseline)
    assert same.ret == OK
    assert gate_lines(same)[0].startswith("gate passed  regression <= 0.5: 0 (1.00 → 1.00, no evidence, p = 1)")
    for name in names:
        project.task(f"tasks/{name}", test="echo 0 > /logs/verifier/reward.txt")
    worse = project.run("tasks", *baseline, "--bf-json=r.json")
    assert worse.ret == FAILED
    assert gate_lines(worse)[0] == "gate failed  regression <= 0.5: 1 (1.00 → 0.00, regressed, p = 0.031)"
    assert any(line.startswith("baseline: regressed: pass rate 1.00 → 0.00, -1.00") for line in worse.outlines)
    assert "  6 tasks changed since the earlier run: t0, t1, t2, t3, t4, t5" in worse.outlines
    found = report_of(project).baseline
    assert found is not None
    assert found.verdict == "regressed"
    assert project.run("tasks", "--bf-baseline=base.json").ret == FAILED  # the items, as ever
    project.task("tasks/t0", test="exit 0")
    broken = project.run("tasks", *baseline, "--bf-update-baseline")
    assert "baseline: base.json is not updated, because the run is not complete" in broken.outlines
    assert report_of(project, "base.json").exit_status == OK
    moved = project.run("tasks", *baseline, "--bf-update-baseline", "--deselect", str(Path("tasks/t0")))
    assert moved.ret == FAILED
    assert report_of(project, "base.json").summary[0].passed == 0


FLAKY = """
import pytest


def pytest_collection_modifyitems(items):
    items[0].add_marker(pytest.mark.flaky(reruns=1))
"""


@pytest.fixture(scope="module")
def many(new_project: Callable[..., Project]) -> Project:
    """Twelve tasks, of which the first nine pass."""
    project = new_project()
    for number in range(12):
        project.task(f"tasks/t{number:02}", solve="true" if number > 8 else "echo done > done.txt")
    return project


@pytest.mark.parametrize("how", [("--bf-concurrency=1",), ("-n2",)])
def test_nothing_more_starts_once_all_is_decided(many: Project, how: tuple[str, ...]) -> None:
    run = many.run("tasks", "--bf-gate=pass_rate >= 0.25", "--bf-stop-when-decided", "--bf-json=r.json", "-rs", *how)
    assert run.ret == OK
    report = report_of(many)
    held = [entry for entry in report.rollouts if entry.result.held_back == "decided"]
    assert 12 - len(held) >= 3
    assert len(held) >= 5  # a few were under way in workers
    assert {entry.status for entry in held} == {"skipped"}
    assert report.saved is not None
    assert report.saved.rollouts == len(held)
    assert f"decided early: {len(held)} of 12 rollouts did not have to start" in run.stdout.str()
    assert "decided: pass_rate >= 0.25 passes, whatever the rest would give" in run.stdout.str()
    assert gate_lines(run)[-1] == "gates: passed"


def test_a_task_that_is_marked_to_run_again_decides_nothing_before_it_passes(
    new_project: Callable[..., Project],
) -> None:
    project = new_project()
    for number in range(3):
        project.task(f"tasks/t{number}", solve="echo done > done.txt" if number else "true")
    project.write({"conftest.py": FLAKY})
    options = ["--bf-gate=pass_rate >= 1", "--bf-stop-when-decided", "--bf-concurrency=1", "--bf-order=given"]
    project.run("tasks", *options).assert_outcomes(failed=1, passed=2)


def test_a_failed_gate_ends_the_run_early_and_red(many: Project) -> None:
    gates = ["--bf-gate=rollouts <= 2", "--bf-gate=pass_rate >= 0"]
    run = many.run("tasks", *gates, "--bf-stop-when-decided", "--bf-concurrency=1")
    assert run.ret == FAILED
    first, second, last = gate_lines(run)
    assert first.startswith("gate failed")
    assert second.startswith("gate passed")
    assert last == "gates: not passed (1 of 2)"
    assert "9 of 12 rollouts did not have to start" in run.stdout.str()


@pytest.mark.parametrize("how", [("--bf-concurrency=1",), ("-n2",)])
def test_a_confidence_shuffles_and_decides_earlier(many: Project, how: tuple[str, ...]) -> None:
    options = ["--bf-gate=pass_rate >= 0.4", "--bf-trials=5", "--bf-confidence=0.9", "--bf-json=r.json", "-v"]
    run = many.run("tasks", *options, *how)
    assert run.ret == OK
    report = report_of(many)
    ran = [entry for entry in report.rollouts if entry.result.held_back is None]
    assert 4 <= len(ran) < 58
    assert len({entry.result.task_name for entry in ran}) > 1  # in the order of collection, t00 comes five times first
    assert report.gates[0].outcome == "passed"


def test_the_shuffled_order_holds_in_workers_too_however_long_rollouts_take(project: Project) -> None:
    for number in range(8):
        project.task(
            f"tasks/t{number}", solve="sleep 1.5\necho done > done.txt" if number < 2 else "echo done > done.txt"
        )
    project.run("tasks", "--bf-concurrency=8")  # now it is known that two take long
    tested = ["--bf-gate=pass_rate >= 0.4", "--bf-confidence=0.99", "--bf-json=r.json"]
    assert project.run("tasks", "-n1", "--bf-concurrency=2", "--bf-job-name=job", *tested).ret == OK
    events = [json.loads(line) for line in (project.root / "jobs/job/ledger.jsonl").read_text().splitlines()]
    starts = [event["key"] for event in events if event["kind"] == "start"]
    assert {*starts[:2]} == {entry.id for entry in report_of(project).rollouts[:2]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bf-stop-when-decided"], "--bf-stop-when-decided has no gate to decide; give --bf-gate"),
        (["--bf-confidence=0.9", "--bf-gate=errors == 0"], "--bf-confidence has no gate on pass_rate or mean_reward"),
        (["--bf-stop-when-decided", "--bf-gate=errors == 0", "--reruns=1"], "and --reruns do not go together"),
        (
            ["--bf-stop-when-decided", "--bf-gate=errors == 0", "-oreruns=1"],
            "and the setting reruns do not go together",
        ),
        (["--bf-confidence=95", "--bf-gate=errors == 0"], "give a number above 0 and below 1"),
    ],
)
def test_stopping_early_needs_something_to_decide(many: Project, options: list[str], message: str) -> None:
    run = many.run("tasks", *options)
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    assert message in run.stderr.str()
