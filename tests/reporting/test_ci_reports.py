"""What CI systems and code hosts are given: JUnit files, Markdown, workflow commands."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from jobs.results import result
from junitparser import JUnitXml

from pytest_benchflow.core.errors import Category
from pytest_benchflow.jobs import GateVerdict
from pytest_benchflow.reporting import (
    Entry,
    Report,
    add_step_summary,
    annotation_lines,
    group,
    junit_xml,
    markdown_text,
    write_markdown,
)

HOSTILE = "\x1b[31m<script>|`@you` **b** _i_ [x](http://evil) #7\n::error::pwned\x00 $a$ \ufffe\uffff"
CHECKS = {"passed": 1, "failed": 1, "failing": [HOSTILE]}
#: What Ant's schema requires of each element and Jenkins' allows: attributes, and children as a pattern.
SCHEMA = {
    "testsuites": ("", "testsuite"),
    "testsuite": (
        "name tests failures errors skipped time timestamp hostname id package",
        "properties( testcase)* system-out system-err",
    ),
    "properties": ("", "property( property)*"),
    "property": ("name value", ""),
    "testcase": ("name classname time", "|failure|error|skipped"),
    "failure": ("type message", ""),
    "error": ("type message", ""),
    "skipped": ("message", ""),
    "system-out": ("", ""),
    "system-err": ("", ""),
}


def _report(*entries: Entry) -> Report:
    return Report(
        tool_version="0",
        started_at="2026-01-01T12:00:00.000+00:00",
        finished_at="2026-01-01T13:00:00.000+00:00",
        exit_status=1,
        job_dir=None,
        summary=group(entries),
        rollouts=[*entries],
    )


def _entry(status: str, task: str = "hello", reward: float | None = 1.0, **fields: object) -> Entry:
    given = result(task, reward, **fields)  # type: ignore[arg-type]
    return Entry.model_validate({"id": f"tasks/{task}/task.toml::gemini/flash", "status": status, "result": given})


@pytest.fixture
def report() -> Report:
    """One rollout of each kind, with names and texts that nobody should trust."""
    return _report(
        _entry("passed", timing={"total": 1.5}),
        _entry("failed", "poor", 0.25, checks=CHECKS, verifier_tail=HOSTILE),
        _entry("error", "broken", category=Category.SANDBOX),
        _entry("skipped", "windows", None, skipped="needs Windows"),
        _entry("quarantined", "flaky", 0.0),
        _entry("cancelled", "late", None, cancelled=True),
    )


def test_junit_files_keep_to_what_all_schemas_allow(report: Report) -> None:
    root = ET.fromstring(junit_xml(report))
    for element in root.iter():
        attributes, children = SCHEMA[element.tag]
        assert {*element.attrib} == {*attributes.split()}
        assert re.fullmatch(children, " ".join(child.tag for child in element)), element.tag
    (suite,) = root
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    assert re.fullmatch(r"\d+\.\d+", suite.attrib["time"])


def test_junit_files_are_read_by_others(report: Report) -> None:
    read = JUnitXml.fromstring(junit_xml(report).encode())
    (suite,) = read
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 1, 1, 3)
    cases = {case.name: case for case in suite}
    poor = cases["poor/gemini/flash"]
    assert poor.classname == "tasks.poor.task.toml"
    assert poor.result[0].message.startswith("reward 0.25 is below 1.00 · 1 of 2 checks passed · failing: <script>")
    assert "\x1b" not in junit_xml(report)
    assert "reward: 0.25" in poor.result[0].text
    output = ET.fromstring(junit_xml(report)).findtext("testsuite/system-out", "")
    assert "poor/gemini/flash\nagent: gemini\n" in output
    assert cases["broken/gemini/flash"].result[0].type == "sandbox"
    assert cases["windows/gemini/flash"].result[0].message == "skipped: needs Windows"


def test_nothing_foreign_is_markup_in_a_comment(report: Report) -> None:
    text = markdown_text(report)
    first, heading, *_ = text.splitlines()
    assert first == "<!-- pytest-benchflow -->"
    assert heading == "### 💥 1 of 2 rollouts passed, 1 error"
    (row,) = [line for line in text.splitlines() if line.startswith("| poor |")]
    assert row.count("|") == 5
    for markup in ("<script", "`", "@you", "**", "[x]", "http://", "#7", "$a", "_i_", "\x1b", "\n::error"):
        assert markup not in row
    assert "<details><summary>❌ 1 failed</summary>" in text


@pytest.mark.parametrize(("outcome", "sign"), [("passed", "✅"), ("failed", "❌")])
def test_gates_decide_the_heading_and_come_first(report: Report, outcome: str, sign: str) -> None:
    gate = GateVerdict(gate="pass_rate >= 0.4", outcome=outcome, message="0.5 (1 of 2)")  # type: ignore[arg-type]
    _, heading, _, line, *_ = markdown_text(report.model_copy(update={"gates": [gate]})).splitlines()
    assert heading == f"### {sign} 1 of 2 rollouts passed, 1 error"
    assert line.startswith(f"- {sign} pass&#95;rate ")


def test_rollouts_that_tripped_a_defence_are_told_apart() -> None:
    finding = {"kind": "foreign_process", "message": "a process outlived the agent"}
    text = markdown_text(_report(_entry("passed", integrity=[finding])))
    assert "<details><summary>🛡️ 1 tripped a defence</summary>" in text
    assert "a process outlived the agent" in text


def test_a_comment_stays_below_the_limit_of_code_hosts(tmp_path: Path) -> None:
    entries = [_entry("failed", f"task-{number}", 0.0, agent_detail="why " * 60) for number in range(1000)]
    write_markdown(_report(*entries), tmp_path / "new/r.md")
    text = (tmp_path / "new/r.md").read_text()
    assert 20_000 < len(text) < 65_536
    shown = text.count("| task-")
    assert f"{1000 - shown} more are in the report." in text


def test_workflow_commands_are_one_line_each_and_name_the_task_file(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    error, failure, warning = annotation_lines(report, tmp_path / "bench")
    assert error.startswith(
        "::error file=bench/tasks/broken/task.toml,line=1,title=broken · gemini/flash::sandbox error"
    )
    assert failure.startswith("::error file=bench/tasks/poor/task.toml,line=1,title=")
    assert "\n" not in failure
    assert warning.startswith("::warning file=bench/tasks/flaky/")
    assert [line.split(" ")[0] for line in annotation_lines(report, tmp_path, advisory=True)] == [
        "::error",
        "::warning",
        "::warning",
    ]


def test_a_gate_that_blocks_is_an_error_and_rollouts_are_warnings(report: Report, tmp_path: Path) -> None:
    gate = GateVerdict(gate="pass_rate >= 0.9", outcome="failed", message="0.5\nof 2")
    first, *others = annotation_lines(report.model_copy(update={"gates": [gate]}), tmp_path)
    assert first == "::error title=gate pass_rate >= 0.9::failed: 0.5 of 2"
    assert [line.split(" ")[0] for line in others] == ["::error", "::warning", "::warning"]


def test_a_percent_sign_and_commas_are_escaped(tmp_path: Path) -> None:
    odd = _entry("failed", "a,b:c", 0.0, agent_detail="100% done")
    (line,) = annotation_lines(_report(odd), tmp_path)
    assert "title=a%2Cb%3Ac" in line
    assert line.endswith("100%25 done")


def test_github_shows_ten_of_a_kind(tmp_path: Path) -> None:
    entries = [_entry("failed", f"t{number}", 0.0) for number in range(30)]
    assert len([*annotation_lines(_report(*entries), tmp_path)]) == 10


def test_the_summary_is_added_to_what_other_steps_wrote(report: Report, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("# before\n")
    add_step_summary(report, {"GITHUB_STEP_SUMMARY": str(file)})
    add_step_summary(report, {})
    assert file.read_text().startswith("# before\n<!-- pytest-benchflow -->\n### 💥")
