"""`bf shell`, as somebody at a terminal and as a script uses it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from on_terminal import OnTerminal
from project import NO_DAEMON

Make = Callable[..., Path]
# Whoever started the tests may have them ignore a signal, and the shell too.
BF = [
    "env",
    "--default-signal",
    sys.executable,
    "-c",
    "import sys; from pytest_benchflow.cli.main import main; sys.exit(main())",
]
NOBODY = 65534
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", NO_DAEMON)
    return tmp_path / "cache"


def shell(*words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    argv = [*BF, "shell", *map(str, words)]
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def sleepers(seconds: int) -> list[str]:
    """List the processes of this machine, sandboxes included, that sleep for so long."""
    wanted = f"sleep\0{seconds}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_interactive_shell_is_a_real_terminal(make_task: Make) -> None:
    argv = [*BF, "shell", "--sandbox", "local", str(make_task()), "--verify"]
    with OnTerminal(argv, env={"TERM": "xterm"}) as screen:
        screen.expect("bf-verify runs the verifier; exit ends the sandbox")
        screen.expect("$ " if os.geteuid() == 0 else "# ")
        screen.type("tty; stty size; echo $TERM-$PWD; cat /instruction.md\n")
        screen.expect("/dev/pts/")
        screen.expect("33 99")
        screen.expect("xterm-/app")
        screen.expect("Make done.txt.")
        screen.type("echo by-$((1 + 1)) >$(tty)\n")
        screen.expect("by-2")
        screen.resize(20, 70)
        screen.type("sleep 0.2; stty size\n")
        screen.expect("20 70")
        screen.type("bash -c 'echo front-$((1 + 1)); sleep 600'\n")
        screen.expect("front-2")
        screen.type("\x03")
        screen.type("sleep 600\n")
        screen.expect("sleep 600")
        time.sleep(0.2)
        screen.type("\x1a")
        screen.expect("Stopped")
        screen.type("kill %1; fg\n")
        screen.type("stty raw -echo; printf '\\033[?1049hkey: '; head -c 3 | od -An -c; stty sane\n")
        screen.expect("\x1b[?1049hkey: ")
        screen.type("\x1b[A")
        screen.expect("033   [   A")
        screen.type("touch done.txt; bf-verify\n")
        screen.expect("reward 1")
        screen.type("exit 5\n")
        assert screen.wait() == 5
        assert screen.is_as_before


@pytest.mark.skipif(os.geteuid() != 0, reason="runs as an ordinary user already")
def test_ordinary_user_has_the_same() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        os.chmod(scratch, 0o755)
        suite = "tests/cli/test_cli_shell.py::test_interactive_shell_is_a_real_terminal"
        argv = [sys.executable, str(TESTS / "sandboxes/run_as_user.py"), str(NOBODY), scratch]
        argv += ["-q", suite]
        run = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, run.stdout[-4000:]
        assert "1 passed" in run.stdout


def test_command_has_pipes_arguments_and_the_last_word(make_task: Make, cache: Path) -> None:
    task = make_task(toml='[environment.env]\nCOLOUR = "blue"\n[agent]\ntimeout_sec = 1\n')
    script = 'read line; echo "$line $COLOUR $1 $PWD"; echo problem >&2; exit 4'
    run = shell(task / "task.toml", "--", "bash", "-c", script, "bash", "two  words", stdin="one\n")
    assert (run.stdout, run.stderr, run.returncode) == ("one blue two  words /app\n", "problem\n", 4)
    run = shell(task, stdin="echo $((40 + 2))\nexit 3\n")
    assert (run.stdout, run.stderr, run.returncode) == ("42\n", "", 3)
    assert [*(cache / "shells").iterdir()] == []


def test_agent_user_owns_the_workspace_and_another_can_be_chosen(make_task: Make) -> None:
    task = make_task()
    script = "id -un; stat -c %U /app; echo $HOME"
    root = os.geteuid() == 0
    agent = "agent\nagent\n/home/agent\n" if root else "root\nroot\n/root\n"
    assert shell(task, "--", "bash", "-c", script).stdout == agent
    assert shell(task, "--user", "root", "--", "id", "-un").stdout == "root\n"


def test_background_program_does_not_keep_the_shell(make_task: Make) -> None:
    started = time.monotonic()
    run = shell(make_task(), "--", "bash", "-c", "sleep 54321 & echo up")
    assert (run.stdout, run.returncode) == ("up\n", 0)
    assert time.monotonic() - started < 20
    assert not sleepers(54321)


def test_reader_that_leaves_ends_the_shell_quietly(make_task: Make) -> None:
    argv = [*BF, "shell", str(make_task()), "--", "yes"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(2) == b"y\n"
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def test_verifier_can_be_run_from_inside_again_and_again(make_task: Make) -> None:
    test = """
        echo looking for done.txt
        [ -e /app/done.txt ] && reward=0.8 || reward=0.5
        [ -e /app/mute ] || echo $reward >/logs/verifier/reward.txt
    """
    task = make_task(test=test, toml="[benchflow]\nthreshold = 0.75\n")
    script = "bf-verify; echo $?; touch done.txt; bf-verify; echo $?; touch mute; bf-verify 2>&1; echo $?"
    run = shell(task, "--verify", "--", "bash", "-c", script)
    first, second, third = run.stdout.split("looking for done.txt\n")[1:]
    assert first == "reward 0.5\n1\n"
    assert second == "reward 0.8\n0\n"
    assert third.startswith("no reward: the verifier left no reward.txt")
    assert third.endswith("\n2\n")
    assert shell(task, "--", "bash", "-c", "command -v bf-verify; ls -d /tests").stdout == ""


def test_verifier_sees_the_tests_as_they_are_now(make_task: Make) -> None:
    task = make_task()
    file = task / "tests/test.sh"
    argv = [*BF, "shell", str(task), "--verify"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("bf-verify\n")
        process.stdin.flush()
        assert process.stdout.readline() == "reward 0\n"
        file.write_text("#!/bin/bash\necho 0.25 >/logs/verifier/reward.txt\n")
        process.stdin.write("bf-verify\n")
        process.stdin.close()
        assert process.stdout.readline() == "reward 0.25\n"


def test_interrupt_takes_a_verification_back(make_task: Make) -> None:
    task = make_task(test="echo 1 >/logs/verifier/reward.txt; [ -e /app/quick ] || sleep 65432")
    with OnTerminal([*BF, "shell", "--verify", str(task)]) as screen:
        screen.expect("bf-verify runs the verifier")
        screen.type("bf-verify\n")
        eventually(lambda: sleepers(65432))
        screen.type("\x03")
        eventually(lambda: not sleepers(65432))
        screen.type("touch quick; bf-verify\n")
        screen.expect("reward 1")
        screen.type("exit\n")
        assert screen.wait() == 0


def test_separate_verifier_gets_the_artifacts_and_the_shell_stays(make_task: Make) -> None:
    test = "cat /app/out.txt; [ -e /app/other ] && echo other; echo 1 >/logs/verifier/reward.txt"
    toml = 'artifacts = ["/app/out.txt"]\n[verifier]\nenvironment_mode = "separate"\n'
    task = make_task(toml=toml, test=test)
    script = "touch other; echo one >out.txt; bf-verify; echo two >out.txt; bf-verify; ls"
    run = shell(task, "--verify", "--", "bash", "-c", script)
    assert run.stdout == "one\nreward 1\ntwo\nreward 1\nother\nout.txt\n", run.stderr


def test_solution_runs_first_and_its_files_are_the_agents(make_task: Make) -> None:
    run = shell(make_task(), "--solve", "--verify", "--", "bash", "-c", "cat done.txt; echo x >>done.txt; bf-verify")
    assert (run.stdout, run.stderr, run.returncode) == ("done\nreward 1\n", "", 0)
    run = shell(make_task("bad", solve="echo no; exit 9"), "--solve", "--", "cat", "/logs/agent/oracle.txt")
    assert run.stdout == "no\n"
    assert run.stderr.startswith("bf shell: solve.sh exited with 9")


def test_what_cannot_be_had_is_said_in_one_line(make_task: Make, tmp_path: Path) -> None:
    for words, message in [
        ([tmp_path / "nowhere"], "nowhere"),
        ([make_task("unsolved", solve=None), "--solve"], "no oracle solution for unsolved"),
        ([make_task("fine"), "--sandbox", "lokal"], "unknown sandbox 'lokal'; did you mean local?"),
        ([make_task("broken", dockerfile="FROM debian:12\nRUN exit 3\n")], "Dockerfile:2"),
        ([make_task("fine2"), "--", "/no/such/program"], "/no/such/program"),
    ]:
        run = shell(*words)
        assert run.returncode == 125
        assert run.stderr.startswith("bf shell: ")
        assert message in run.stderr
        assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("end", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_signal_ends_the_sandbox(end: signal.Signals, status: int, make_task: Make, cache: Path) -> None:
    seconds = 76000 + end
    argv = [*BF, "shell", str(make_task()), "--", "bash", "-c", f"trap '' TERM HUP INT; sleep {seconds}"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        eventually(lambda: sleepers(seconds))
        process.send_signal(end)
        assert process.wait(30) == status
        assert process.stderr is not None
        assert process.stderr.read() == b""
    eventually(lambda: not sleepers(seconds))
    left = [*(cache / "shells").iterdir()]
    assert len(left) == (1 if end is signal.SIGKILL else 0)
    if left:
        assert shell(make_task("next"), "--", "true").returncode == 0
        assert [*(cache / "shells").iterdir()] == []


def test_interrupt_during_the_build_leaves_nothing(make_task: Make, cache: Path) -> None:
    task = make_task(dockerfile="FROM debian:12\nRUN echo building; sleep 43210\n")
    with OnTerminal([*BF, "shell", "--sandbox", "local", str(task)]) as screen:
        eventually(lambda: sleepers(43210))
        screen.type("\x03")
        assert screen.wait() == 130
    eventually(lambda: not sleepers(43210))
    assert [*(cache / "shells").iterdir()] == []


def test_all_output_arrives_before_the_end(make_task: Make) -> None:
    with OnTerminal([*BF, "shell", str(make_task()), "--", "seq", "100000"]) as screen:
        screen.expect("\n100000\r\n")
        assert screen.wait() == 0


def test_first_step_is_the_one_that_is_shown(make_task: Make) -> None:
    toml = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
    files = {f"steps/{name}/instruction.md": f"Step {name}.\n" for name in ("one", "two")}
    files |= {f"steps/{name}/tests/test.sh": "echo 1 >/logs/verifier/reward.txt\n" for name in ("one", "two")}
    files |= {f"steps/{name}/solution/solve.sh": f"#!/bin/bash\ntouch {name}\n" for name in ("one", "two")}
    task = make_task(toml=toml, files=files)
    run = shell(task, "--solve", "--", "bash", "-c", "cat /instruction.md; ls")
    assert (run.stdout, run.stderr) == ("Step one.\none\n", "")


def test_closed_window_ends_the_sandbox(make_task: Make) -> None:
    with OnTerminal([*BF, "shell", str(make_task())]) as screen:
        screen.expect("exit ends the sandbox")
        screen.type("sleep 77777\n")
        eventually(lambda: sleepers(77777))
        screen.hang_up()
        assert screen.wait() == 129
    eventually(lambda: not sleepers(77777))


@pytest.mark.skipif(shutil.which("less") is None, reason="no less here")
def test_pager_works(make_task: Make) -> None:
    task = make_task(files={"environment/long.txt": "".join(f"line {number}\n" for number in range(200))})
    (task / "environment/Dockerfile").write_text("FROM debian:12\nWORKDIR /app\nCOPY long.txt .\n")
    with OnTerminal([*BF, "shell", str(task), "--", "less", "long.txt"], env={"TERM": "xterm"}) as screen:
        screen.expect("line 20")
        screen.type("G")
        screen.expect("line 199")
        screen.type("q")
        assert screen.wait() == 0
        assert screen.is_as_before
