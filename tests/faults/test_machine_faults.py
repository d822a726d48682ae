"""A full disk, a clock that jumps, no memory left, an agent that floods: told as it is, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from project import OPTIONS, Project

from conftest import LONG, FaultyJob

FLOOD = """
import json
import sys

MEGABYTES = int(sys.argv[1])


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def say(text):
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": "s", "update": update})


for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        send(id=request["id"], result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})
    elif request.get("method") == "session/new":
        send(id=request["id"], result={"sessionId": "s"})
    elif request.get("method") == "session/prompt":
        open("done.txt", "w").write("done")
        for _ in range(MEGABYTES):
            say("x" * 1_000_000)
        say("The end.")
        send(id=request["id"], result={"stopReason": "end_turn"})
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is full after a few files."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("mode", ["one", "workers"] if LONG else ["one"])
def test_a_full_disk_is_told_and_the_job_goes_on_once_there_is_room(
    mode: str, small_disk: Path, faulty_job: Callable[[str], FaultyJob]
) -> None:
    job = faulty_job(mode)
    (job.project.root / "jobs").symlink_to(small_disk)
    ended = job.run()
    assert ended.status == 1, ended.output
    assert not ended.left
    assert "No space left on device; make room, or choose another --bf-jobs-dir" in ended.output
    assert "Traceback" not in ended.output
    job.remember_scores()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    job.check_complete(job.run())


JUMPING_CLOCK = """
from pathlib import Path


def pytest_bf_rollout_phase(rollout, phase):
    if phase == "execute" and rollout.task.short_name == "t2":
        Path("clock").write_text("{jump}")
"""


@pytest.fixture(scope="module")
def clock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that moves the wall clock of the processes that load it."""
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@pytest.mark.compiler
@pytest.mark.parametrize("jump", [-3 * 86400, 400 * 86400] if LONG else [-3 * 86400])
def test_a_clock_that_jumps_changes_no_outcome(
    jump: int, clock_library: Path, faulty_job: Callable[[str], FaultyJob]
) -> None:
    job = faulty_job("one")
    clock = job.project.root / "clock"
    clock.write_text("0")
    job.project.write({"conftest.py": JUMPING_CLOCK.format(jump=jump)})
    job.variables = {"LD_PRELOAD": str(clock_library), "BF_TEST_CLOCK": str(clock)}
    ended = job.run()
    job.check_complete(ended)
    assert clock.read_text() == str(jump)
    report = json.loads((job.project.root / "report.json").read_text())
    assert all(0 <= entry["result"]["timing"]["total"] < 60 for entry in report["rollouts"])
    (row,) = report["summary"]
    assert 0 <= row["seconds"] < 360
    # What the first run has scored, at whichever time, is kept.
    before = job.scores
    job.check_complete(job.run())
    assert job.scores == before


def test_a_sandbox_without_memory_fails_alone(project: Project) -> None:
    if os.geteuid() != 0:
        pytest.skip("limits need root here")
    hog = "python3 -c 'x = b\"x\" * 2**30' || echo killed\necho done > /app/done.txt"
    for number in range(3):
        limit = "[environment]\nmemory_mb = 96\n" if number == 1 else ""
        project.task(f"tasks/t{number}", toml=limit, solve=hog if number == 1 else "echo done > /app/done.txt")
    done = project.run("tasks", "--bf-sandbox=local", "--bf-json=r.json")
    done.assert_outcomes(passed=3)
    (hogged,) = project.root.glob("jobs/*/t1__*/trajectory/acp_trajectory.jsonl")
    assert "killed" in hogged.read_text()


def test_an_agent_that_floods_fills_neither_memory_nor_disk(project: Project) -> None:
    project.task(
        "tasks/a",
        dockerfile="FROM debian:bookworm-slim\nWORKDIR /app\nCOPY flood.py /flood.py\n",
        files={"environment/flood.py": FLOOD},
    )
    megabytes = os.environ.get("BF_FAULT_FLOOD_MB", "150")
    agent = f"cmd: python3 /flood.py {megabytes}"
    args = [*OPTIONS, "tasks", "--bf-sandbox=local", f"--bf-agent={agent}", "--bf-json=r.json"]
    script = (
        "import resource, subprocess, sys\n"
        "status = subprocess.run([sys.executable, '-m', 'pytest', *sys.argv[1:]]).returncode\n"
        "print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)\n"
        "raise SystemExit(status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=project.root,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "the trajectory is cut at 128 MB" in done.stdout
    peak = int(done.stdout.splitlines()[-1].split()[1]) * 1024
    assert peak < 200 << 20
    (entry,) = json.loads((project.root / "r.json").read_text())["rollouts"]
    assert entry["result"]["last_message"].endswith("The end.")
    size = sum(path.stat().st_size for path in project.root.glob("jobs/**/*") if path.is_file())
    assert size < 170 << 20
