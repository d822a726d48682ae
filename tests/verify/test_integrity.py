"""What a user sees of a rollout that tripped a defence."""

from __future__ import annotations

import pytest

from pytest_benchflow.core.text import printable
from pytest_benchflow.core.types import Event, Json
from pytest_benchflow.plugin.outcome import judge
from pytest_benchflow.rollout import RolloutResult
from pytest_benchflow.verify import Finding, hidden_files_sought, listed_findings

FINDING = Finding(kind="planted_file", message="conftest.py writes the reward; removed", paths=["/app/conftest.py"])


def scored(**more: object) -> RolloutResult:
    base = {"task_name": "t", "task_path": "/t", "rollout_name": "t__1", "agent": "a", "sandbox": "local"}
    times = {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:01Z"}
    return RolloutResult.model_validate({**base, **times, "threshold": 1.0, "reward": 1.0, **more})


@pytest.mark.parametrize(
    ("policy", "status"), [("report", "passed"), ("fail", "failed")], ids=["reported only", "failing"]
)
def test_a_tripped_defence_fails_a_rollout_only_if_asked(policy: str, status: str) -> None:
    result = scored(integrity=[FINDING], integrity_policy=policy)
    assert result.status == status
    assert judge(result).kind == status


def test_the_failure_says_which_defence() -> None:
    text = judge(scored(integrity=[FINDING], integrity_policy="fail")).text
    assert "reward 1.00, but a defence was tripped" in text
    assert "conftest.py writes the reward" in text
    assert "is below" in judge(scored(reward=0.0, integrity=[FINDING])).text


def test_only_the_first_findings_are_listed() -> None:
    findings = [FINDING.model_copy(update={"message": f"number {n}"}) for n in range(5)]
    assert listed_findings(findings) == "number 0; number 1; number 2; and 2 more"


def call(raw_input: Json, kind: str = "execute", **more: Json) -> Event:
    return {"type": "tool_call", "title": "ls /tests", "kind": kind, "raw_input": raw_input, **more}


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (call({"command": "cd /app && ls -la /tests"}), "/tests"),
        (call({"command": ["bash", "-lc", "cat '/tests/test_outputs.py'; true"]}), "/tests/test_outputs.py"),
        (call({"command": "cp /solution/solve.sh /app"}), "/solution/solve.sh"),
        (call({"cmd": "find / -name test_outputs.py"}), "test_outputs.py"),
        (call("ls /logs/verifier/"), "/logs/verifier/"),
        (call({"file_path": "/oracle/solve.sh"}, "read"), "/oracle/solve.sh"),
        (call({"path": "/verifier"}, "other"), "/verifier"),
        (call({}, "read", locations=[{"path": "/tests/a.txt"}]), "/tests/a.txt"),
        (call(None), "/tests"),
        (call({"command": "ls /app/tests tests/ ./tests && cat my/solution"}), None),
        (call({"command": "cat <<EOF >README\nsee /tests\nEOF"}), None),
        (call({"file_path": "/app/Dockerfile", "content": "COPY . /tests"}, "edit"), None),
        (call({"command": "curl http://host/tests"}), None),
        (call({"command": "ls /testsuite /verifier.old"}), None),
        (call(None, "edit"), None),
        (call({"command": 5, "path": {"a": 1}}, locations="/tests"), None),
        ({"type": "agent_message", "text": "ls /tests"}, None),
    ],
)
def test_who_looks_for_hidden_files_is_told(event: Event, path: str | None) -> None:
    finding = hidden_files_sought([event], "Make done.txt.", "/app")
    assert (finding.paths if finding else None) == (None if path is None else [path])


def test_what_the_task_speaks_of_is_no_secret() -> None:
    looks = [call({"command": f"ls /tests/{n}"}) for n in range(5)]
    finding = hidden_files_sought(looks, "Make done.txt.", "/app")
    assert finding is not None
    assert finding.message == (
        "the agent looked for what is hidden from it: ls /tests/0; ls /tests/1; ls /tests/2; and 2 more"
    )
    assert hidden_files_sought(looks, "It is tested by /tests/test.sh.", "/app") is None
    assert hidden_files_sought(looks, "Make done.txt.", "/tests/project") is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::set-output name=a::b", ": :set-output name=a::b"),
        ("ok\n  ::add-mask::x", "ok\n  : :add-mask::x"),
        ("x ##[error]y", "x # #[error]y"),
        ("tests/a.py::test_b", "tests/a.py::test_b"),
    ],
)
def test_foreign_lines_are_no_workflow_commands(text: str, shown: str) -> None:
    assert printable(text) == shown
