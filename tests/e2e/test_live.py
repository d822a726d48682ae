"""What a user sees while a job runs: on a terminal, in a log, and from another terminal."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from on_terminal import OnTerminal
from project import OPTIONS, PYTEST, Project, wait_for, write_task
from screen import Screen

BF = [sys.executable, "-c", "import sys; from pytest_benchflow.cli.main import main; sys.exit(main())"]
SIZE = (12, 100)
AUTHOR = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
OFTEN = "import pytest_benchflow.plugin.live as live\n\nlive.LINE_SEC = live.FRAME_SEC = 0.1\n"


@pytest.fixture
def slow(project: Project) -> Project:
    """Five tasks that take a moment, shown more often than usual."""
    for number in range(5):
        project.task(f"tasks/t{number}", solve="sleep 0.3\necho done > /app/done.txt")
    return project.write({"conftest.py": OFTEN})


def on_terminal(project: Project, *args: str, size: tuple[int, int] = SIZE) -> OnTerminal:
    variables = {"CI": "", "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", "PY_COLORS": "1"}
    command = ["env", "-u", "CI", "-u", "COLUMNS", "-u", "LINES", "-C", str(project.root), *PYTEST, *OPTIONS]
    words = [*command, "tasks", "--bf-sandbox=local", *args]
    return OnTerminal(words, env=project.environment(variables), size=size)


def watch_to_the_end(
    terminal: OnTerminal, size: tuple[int, int] = SIZE, *, until: str | None = None
) -> tuple[Screen, list[str]]:
    """Return the last screen, and all that were seen on the way; the one with some text, if that comes, is the last."""
    screen, seen = Screen(*size), []
    os.set_blocking(terminal.keyboard, False)
    while True:
        ended = terminal.process.poll() is not None
        try:
            while data := os.read(terminal.keyboard, 65536):
                for part in re.split(rb"(?<=\x1b8)", data):  # the end of a frame
                    seen.append(screen.feed(part).text)
                    if until is not None and until in seen[-1]:
                        return screen, seen
        except BlockingIOError:
            pass
        if ended:
            return screen, seen
        time.sleep(0.02)


@pytest.mark.parametrize("args", [(), ("-v",), ("-n2",)], ids=["dots", "verbose", "xdist"])
def test_a_block_below_pytests_lines_tells_how_far_the_job_is_and_leaves_nothing(
    slow: Project, args: tuple[str, ...]
) -> None:
    with on_terminal(slow, "--bf-concurrency=2", *args) as terminal:
        screen, seen = watch_to_the_end(terminal)
        assert terminal.process.returncode == 0
        assert terminal.is_as_before
    frames = [text for text in seen if re.search(r"^benchflow \d of 5 done", text, re.MULTILINE)]
    assert frames
    block = re.compile(r"^benchflow [1-4] of 5 done · \d running · \d passed · pass rate 100% \(\d+%–100%\) · ", re.M)
    assert any(block.search(text) for text in frames)
    assert any(re.search(r"^  t\d +oracle +(?:execute|verify|start) +\d\.\d s", text, re.M) for text in frames)
    # Each of pytest's own lines is whole, and of the block nothing is left.
    end = screen.everything
    assert "of 5 done" not in end
    marks = {"-v": r"^tasks/t\d/task.toml::oracle PASSED +\[ *\d+%\]$", "-n2": r"^\.\.\.\.\. +\[100%\]$"}
    wanted = marks.get(args[0] if args else "", r"^tasks/t\d/task.toml \. +\[ *\d+%\]$")
    assert len(re.findall(wanted, end, re.M)) == (1 if "-n2" in args else 5), end
    assert "\nbenchflow: 5 rollouts" in end  # a line of its own, also after xdist's count of workers


def test_the_block_fits_the_window_whatever_its_size(slow: Project) -> None:
    with on_terminal(slow, "--bf-concurrency=3", size=(7, 40)) as terminal:
        _, small = watch_to_the_end(terminal, (7, 40), until="3 running")
        terminal.resize(9, 60)
        screen, large = watch_to_the_end(terminal, (9, 60))
    seen = [*small, *large]
    assert any("…" in text and "of 5 done" in text for text in large)
    assert all(text.count("done ·") <= 1 for text in seen)
    assert "of 5 done" not in screen.text


def test_a_debugger_has_the_terminal_for_itself(slow: Project) -> None:
    slow.task("tasks/t0", solve="true")
    with on_terminal(slow, "--pdb", "--bf-concurrency=1") as terminal:
        terminal.expect("(Pdb)")
        time.sleep(0.5)
        terminal.type("40 + 2\n")
        terminal.expect("42")
        assert b"done" not in terminal.seen
        terminal.type("c\n")
        screen, seen = watch_to_the_end(terminal)
    assert any(" of 5 done" in text for text in seen)
    assert "of 5 done" not in screen.text


def test_with_s_there_are_lines_instead_since_tests_print_too(slow: Project) -> None:
    with on_terminal(slow, "-s") as terminal:
        screen, _ = watch_to_the_end(terminal)
    assert re.search(r"^benchflow: \d of 5 done · ", screen.everything, re.M)
    assert not re.search(r"^benchflow \d of 5 done", screen.everything, re.M)


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["engine", "xdist"])
def test_a_log_has_a_line_now_and_then_and_no_escape_codes(slow: Project, workers: tuple[str, ...]) -> None:
    done = slow.run("tasks", "--bf-sandbox=local", "--bf-concurrency=2", *workers)
    done.assert_outcomes(passed=5)
    lines = [line for line in done.outlines if "of 5 done" in line]
    assert any(
        re.fullmatch(
            r"benchflow: \d of 5 done · \d running · \d passed · pass rate 100% \(\d+%–100%\) · reward 1\.00"
            r" · \d+\.\d s · longest: t\d \(\w+, \d+\.\d s\)",
            line,
        )
        for line in lines
    ), lines
    assert "\x1b" not in str(done.stdout)
    quiet = slow.run("tasks", "--bf-sandbox=local", "-q", *workers)
    assert not [line for line in quiet.outlines if "of 5 done" in line]
    off = slow.run("tasks/t0", "--bf-sandbox=local", "--bf-progress=off", *workers)
    assert not [line for line in off.outlines if "of 1 done" in line]


def test_a_job_is_watched_from_another_terminal_until_it_ends(slow: Project) -> None:
    slow.task("tasks/t4", solve="sleep 3\necho done > /app/done.txt")
    running = slow.start("tasks", "--bf-sandbox=local", "--bf-job-name=mine")
    wait_for((slow.root / "jobs/mine/ledger.jsonl").exists, "the ledger")
    with OnTerminal(
        ["env", "-u", "CI", "-C", str(slow.root), *BF, "watch"],
        env=slow.environment({"TERM": "xterm"}),
        size=SIZE,
    ) as terminal:
        screen, seen = watch_to_the_end(terminal)
        assert terminal.process.returncode == 0
    assert running.wait(60) == 0
    assert any(re.search(r"^  t4 +oracle +execute +\d", text, re.M) for text in seen)
    assert screen.text.splitlines()[0] == "jobs/mine: Ctrl-C ends the view, not the job"
    assert re.match(r"5 of 5 done · 5 passed · pass rate 100% \(57%–100%\) · ", screen.text.splitlines()[-1])


def test_a_job_whose_run_was_killed_is_told_as_killed(slow: Project) -> None:
    slow.task("tasks/t4", solve="sleep 30")
    running = slow.start("tasks", "--bf-sandbox=local", "--bf-job-name=mine")
    ledger: Path = slow.root / "jobs/mine/ledger.jsonl"
    wait_for(lambda: ledger.exists() and '"kind": "end"' in ledger.read_text(), "the first result")
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    for words in (["watch", "mine"], ["watch", "jobs/mine/", "--once"], ["watch"]):
        done = subprocess.run([*BF, *words], cwd=slow.root, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert re.search(r"^\d of 5 done · \d running", done.stdout, re.M)
    nothing = subprocess.run([*BF, "watch", "mime"], cwd=slow.root, capture_output=True, text=True, check=False)
    assert nothing.returncode == 2
    assert nothing.stderr == "bf: there is no job mime in jobs; did you mean mine?\n"


def test_a_build_that_rollouts_wait_for_is_shown(slow: Project) -> None:
    for number in range(5):
        slow.task(f"tasks/t{number}", dockerfile="FROM debian:bookworm-slim\nWORKDIR /app\nRUN sleep 3\n")
    with on_terminal(slow, "--bf-concurrency=2") as terminal:
        _, seen = watch_to_the_end(terminal)
    assert any(re.search(r"^  building environment/Dockerfile:3 +\d\.\d s$", text, re.M) for text in seen)
    assert "building" not in seen[-1]


def test_a_clone_that_everything_waits_for_is_shown_and_leaves_nothing(slow: Project) -> None:
    origin = slow.root / "origin"
    write_task(origin / "bench/one")
    for words in (["init", "-qb", "main"], ["add", "."], [*AUTHOR, "commit", "-qm", "tasks"]):
        subprocess.run(["git", *words], cwd=origin, check=True)
    slowly = 'case "$*" in *"checkout --quiet"*) sleep 1.3 ;; esac'
    git = f'#!/bin/sh\n{slowly}\nexec {shutil.which("git")} "$@"\n'
    slow.write({"bin/git": git})
    (slow.root / "bin/git").chmod(0o755)
    path = f"{slow.root / 'bin'}:{os.environ['PATH']}"
    variables = {"CI": "", "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", "PATH": path}
    command = ["env", "-u", "CI", "-C", str(slow.root), *PYTEST, *OPTIONS, "--collect-only"]
    with OnTerminal(
        [*command, f"--bf-source=file://{origin}@main:bench"], env=slow.environment(variables), size=SIZE
    ) as terminal:
        screen, seen = watch_to_the_end(terminal)
        assert terminal.process.returncode == 0
    assert any(re.search(r"^━+ cloning file:///\S+ 1\.\d s$", text, re.M) for text in seen)
    assert "cloning" not in screen.everything
    assert "1 test collected" in screen.everything
