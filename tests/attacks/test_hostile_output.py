"""What an agent and a verifier print, name and leave is text on the terminal and in reports, and nothing obeys it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project, properties

CONFTEST = """
from pytest_benchflow.agents import parse_manifest


def pytest_bf_register_agents(registry):
    launch = ["python3", "-I", "-S", "/opt/attacker/agent.py"]
    registry.register(parse_manifest({"name": "attacker", "launch": launch}, "attacker.toml"))
"""
DOCKERFILE = "FROM debian:bookworm-slim\nCOPY attacker.py /opt/attacker/agent.py\nWORKDIR /app\n"

AGENT = r"""#!acp
import os, subprocess
evil = "\x1b[2J\x1b]0;owned\x07::error file=x::pwned\n::set-output name=a::b\n  ::stop-commands::t\n"
evil += "##[group]x\n##vso[task.complete]y\r\u202e\ud800"
update("tool_call", toolCallId=evil, title=evil, kind="execute", status="completed", rawInput={"command": evil})
update("tool_call", toolCallId="look", title="look", kind="execute", status="completed", rawInput="ls /sol" "ution")
update("plan", entries=[{"content": evil, "status": "pending", "priority": evil}])
say(evil)
usage = {"inputTokens": float("inf"), "outputTokens": -3}
stop.update({"stopReason": "end_turn", "usage": usage, "_meta": {"model": evil}})
logs = "/logs/agent/"
for name in (b"attacker.txt", b"a\nb.log", b"\xff\xfe.log", b"\x1b[31m.log", "\u202e.log".encode(), b"::error::.log"):
    with open(logs.encode() + name, "w") as file:
        file.write("forged\n")
os.makedirs(logs + "exit-code.txt/x")
os.mkfifo(logs + "fifo")
os.symlink("/etc/passwd", logs + "passwd")
os.symlink("../../../result.json", logs + "up")
os.makedirs("/logs/artifacts", exist_ok=True)
with open("/logs/artifacts/sparse", "wb") as file:
    file.truncate(1 << 40)
"""
SAYS = r"""
import json, os
evil = "\x1b[2J::error::verifier\n::add-mask::1\n##[warning]x\x00\x08"
print(evil)
tests = [{"name": name, "status": "failed"} for name in (evil, "\ud800 ::x", "x" * 5000)]
with open("/logs/verifier/ctrf.json", "w") as file:
    json.dump({"results": {"tests": tests}}, file)
with open("/logs/verifier/reward.json", "w") as file:
    json.dump({"reward": 0.25, evil: 0.5, "\ud800": 0.5, "y" * 3000: 0.5}, file)
open(b"/logs/verifier/\xff\n::error::", "w").close()
"""
DEEP = """
open("/logs/verifier/reward.json", "w").write('{"reward":' * 100000)
open("/logs/verifier/ctrf.json", "w").write("[" * 100000)
open(b"/logs/verifier/\\xff\\n::error::", "w").close()
"""
NAMELESS = """
import os
open(b"/logs/verifier/\\xff\\n::error::\\x1b[2J", "w").close()
print("\\n::error::last")
"""


@pytest.fixture(scope="module", params=[(), ("-n", "2")], ids=["one process", "xdist"])
def run(request: pytest.FixtureRequest, new_project: Callable[..., Project]) -> tuple[Project, pytest.RunResult]:
    project = new_project()
    project.write({"conftest.py": CONFTEST})
    attacker = Path(__file__).with_name("attacker.py").read_text()
    for name, script in {"says": SAYS, "deep": DEEP, "nameless": NAMELESS}.items():
        files = {"environment/attacker.py": attacker, "tests/run.py": script}
        project.task(
            f"tasks/{name}",
            dockerfile=DOCKERFILE,
            test="python3 /tests/run.py",
            instruction=f"Go.\n\n{AGENT}",
            files=files,
        )
    options = ["--bf-agent=attacker", "--bf-json=r.json", "--bf-markdown=r.md", "--bf-html=r.html", "-rA", "-v"]
    return project, project.run("tasks", *options, "--junitxml=r.xml", *request.param)


Run = tuple[Project, pytest.RunResult]


def test_every_rollout_ends_as_it_should(run: Run) -> None:
    project, _ = run
    results = {str(each["task_name"]): each for each in project.results().values()}
    assert results["says"]["reward"] == 0.25
    messages = {name: str(each["error"]["message"]) for name, each in results.items() if each["error"]}  # type: ignore[index]
    assert messages["deep"].startswith("reward.json is not JSON")
    assert messages["nameless"].startswith("the verifier left no reward.txt or reward.json")
    assert results.keys() == {"says", "deep", "nameless"}


def test_no_line_on_the_terminal_is_obeyed(run: Run) -> None:
    _, done = run
    text = "\n".join([*done.outlines, *done.errlines])
    assert "pwned" in text  # it is shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert not re.search(r"^\s*::|##\[|##vso\[", text, re.MULTILINE)


def test_reports_can_be_read(run: Run) -> None:
    project, _ = run
    cases = {case.attrib["name"]: case for case in ET.parse(project.root / "r.xml").iter("testcase")}
    assert len(cases) == 3
    facts = next(properties(case) for name, case in cases.items() if "says" in name)
    assert facts["bf_reward"] == "0.25"
    text = (project.root / "r.xml").read_text("utf-8")
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text)
    json.loads((project.root / "r.json").read_bytes().decode("utf-8"), parse_constant=pytest.fail)
    for file in ("r.md", "r.html"):
        assert "\x1b" not in (project.root / file).read_text("utf-8")


def test_files_of_the_rollout_are_the_harness_s(run: Run) -> None:
    project, _ = run
    for directory in project.rollout_dirs():
        for line in (directory / "trajectory/acp_trajectory.jsonl").read_bytes().decode("utf-8").splitlines():
            json.loads(line, parse_constant=pytest.fail)
        result = json.loads((directory / "result.json").read_bytes().decode("utf-8"), parse_constant=pytest.fail)
        logs = directory / "agent"
        assert (logs / "attacker.txt").read_text() == ""
        assert not (logs / "exit-code.txt").is_dir()
        assert not any(path.is_symlink() for path in directory.rglob("*"))
        assert not (directory / "artifacts/logs/artifacts/sparse").exists()
        assert any("sent more than 2048 MB" in note for note in result["notes"])
        assert {"log_file", "tests_sought"} <= {finding["kind"] for finding in result["integrity"]}
        assert result["tokens"] == {"input": None, "output": None, "cached": None}
