"""`bf merge`: shards become one report, and the gates are applied to the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project

from pytest_benchflow.cli.main import main
from pytest_benchflow.reporting import Report


@pytest.fixture(scope="module")
def shards(new_project: Callable[..., Project]) -> Path:
    """Two shards of four tasks, three of which pass."""
    project = new_project()
    for name in ("a", "b", "c"):
        project.task(f"tasks/{name}")
    project.task("tasks/low", test="echo 0 > /logs/verifier/reward.txt")
    project.write({"test_plain.py": "def test_it():\n    assert 0\n"})
    for number in (1, 2):
        project.run("tasks", f"--bf-shard={number}/2", f"--bf-json={number}.json")
    project.run("tasks", "test_plain.py", "--bf-json=plain.json")
    return project.root


@pytest.fixture(autouse=True)
def here(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shards)


def change(name: str, **fields: object) -> str:
    """Write a changed copy of a report, and return its name."""
    report = Report.model_validate_json(Path(f"{name}.json").read_text())
    Path("changed.json").write_text(report.model_copy(update=fields).model_dump_json())
    return "changed.json"


@pytest.mark.parametrize(
    ("gates", "status", "last"),
    [
        ([], 1, None),
        (["pass_rate >= 0.75"], 0, "gates: passed"),
        (["pass_rate > 0.75", "errors == 0"], 1, "gates: not passed (1 of 2)"),
        (["pass_rate[agent='codex'] >= 0"], 1, "gates: not passed (1 of 1)"),
    ],
)
def test_gates_are_applied_to_the_whole(
    gates: list[str], status: int, last: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for gate in gates for word in ("--gate", gate)]
    assert main(["merge", "1.json", "2.json", *words, "-o", "out/whole.json"]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("oracle  3 of 4")
    assert last is None or lines[-1] == last
    whole = Report.model_validate_json(Path("out/whole.json").read_text())
    assert (whole.exit_status, len(whole.rollouts), len(whole.gates)) == (status, 4, len(gates))


def test_a_missing_shard_is_named_and_nothing_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "2.json", "--gate", "pass_rate >= 0"]) == 3
    out, err = capsys.readouterr()
    assert err == "1 slice missing: 1/2\n"
    assert "gate undecided  pass_rate >= 0: " in out
    assert "so far, but 1 slice missing: 1/2\n" in out
    assert out.endswith("gates: not passed (1 of 1)\n")


def test_a_shard_that_was_stopped_makes_the_whole_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    file = change("1", exit_status=2, missing=["tasks/x/task.toml::oracle"])
    assert main(["merge", file, "2.json"]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "tasks/x/task.toml::oracle never reported",
        "changed.json is of a run that ended with exit status 2",
    ]


def test_failures_of_ordinary_tests_stay_failures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "plain.json", "--gate", "pass_rate >= 0"]) == 1
    assert capsys.readouterr().out.endswith("gates: passed, but 1 failure is not of a rollout\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["1.json", "1.json"], "is in 1.json twice; give the report of each shard once"),
        (["1.json", "plain.json"], "is in 1.json and plain.json; give the report of each shard once"),
        (["no.json"], "no.json cannot be read"),
        (["pytest.ini"], "pytest.ini is not JSON"),
        (["jobs"], "jobs is a directory; name the files that --bf-json wrote"),
        (["1.json", "--gate", "pass_rte > 0"], "did you mean pass_rate?"),
        (["1.json", "--max-regression", "0.1"], "give --baseline FILE"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tool_version": "0.0.1"}, "changed.json is written by another version: 0.0.1, not "),
        ({"schema_version": "9"}, "changed.json is of another format: 9, not "),
        ({"shard": (1, 3)}, "changed.json is a slice of another number: 3, not 2"),
        ({"shard": None}, "changed.json is not a slice, and 2.json is; give slices of one run"),
    ],
)
def test_reports_of_other_kinds_are_refused(
    fields: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", "2.json", change("1", **fields)]) == 2
    assert message in capsys.readouterr().err


def test_the_whole_is_compared_with_a_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "1.json", "2.json", "-o", "base.json"]) == 1
    assert main(["merge", "1.json", "2.json", "--baseline", "base.json", "--max-regression", "0"]) == 0
    assert "gate passed  regression <= 0: 0 (0.75 → 0.75, no evidence, p = 1)" in capsys.readouterr().out
