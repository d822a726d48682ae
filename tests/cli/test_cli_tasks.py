"""`bf tasks init` and `bf tasks check --run`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from project import NO_DAEMON, wait_for, write_files, write_task

from pytest_benchflow.cli.main import main
from pytest_benchflow.cli.task_template import find_kind
from pytest_benchflow.tasks import load_task


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", NO_DAEMON)
    monkeypatch.chdir(tmp_path)


def test_new_tasks_are_sound_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    project = {"main.sh": "echo hi\n", "CHANGES.md": "# Changes\n\n- One.\n", "docs/a b.txt": "x\n"}
    write_files(Path("shop"), project)
    write_files(Path("lib"), {"pyproject.toml": '[project]\nname = "lib"\n', "lib.py": "ANSWER = 42\n"})
    assert main(["tasks", "init", "tasks/lib", "--from", "lib"]) == 0
    assert main(["tasks", "init", "tasks/plain"]) == 0
    assert main(["tasks", "init", "tasks/shop", "--from", "shop"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines()[1] == (
        "tasks/plain is a task that works; see that with: bf tasks check --run tasks/plain"
    )
    assert main(["tasks", "check", "--strict", "--run", "tasks"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert [line.split() for line in shown.out.splitlines()[:-1]] == [
        ["3", "tasks,", "0", "broken"],
        ["task", "nop", "oracle"],
        ["tasks/lib", "0.00", "1.00", "ok"],
        ["tasks/plain", "0.00", "1.00", "ok"],
        ["tasks/shop", "0.00", "1.00", "ok"],
    ]
    assert shown.out.splitlines()[-1].startswith("3 tasks, none unsound, results in jobs/")
    task = load_task(Path("tasks/shop"))
    assert task.warnings == ()
    assert "The project shop is in `/app`" in task.steps[0].instruction
    assert "/app/CHANGES-2.md" in task.steps[0].instruction


def test_unsound_tasks_are_told_apart_and_nothing_is_built_twice(capsys: pytest.CaptureFixture[str]) -> None:
    once = "FROM debian:12\nWORKDIR /app\nRUN cat /proc/sys/kernel/random/uuid >/built\n"
    looks = "cp /built /logs/verifier/built; cat /app/done.txt && echo 1 >/logs/verifier/reward.txt ||"
    looks += " echo 0.5 >/logs/verifier/reward.txt"
    write_task(Path("tasks/good"), dockerfile=once, test=looks)
    write_task(Path("tasks/easy"), test="echo 1 >/logs/verifier/reward.txt")
    write_task(Path("tasks/hard"), test="echo 0.5 >/logs/verifier/reward.txt")
    write_task(Path("tasks/half"), test="echo 0.5 >/logs/verifier/reward.txt", toml="[benchflow]\nthreshold = 0.5\n")
    write_task(Path("tasks/mute"), test="true")
    write_task(Path("tasks/open"), solve=None)
    write_task(Path("tasks/idle"), toml='[benchflow]\nskip = "later"\n')
    write_task(Path("tasks/sick"), test="true", toml="[benchflow]\nquarantine = true\n")
    write_task(Path("tasks/wrong"), toml="[agnet]\n[agent]\ntimeout_sec = 'x'\n")
    assert main(["tasks", "check", "tasks", "--run", "--sandbox", "local", "--jobs-dir", "out"]) == 1
    shown = capsys.readouterr()
    assert "tasks/wrong/task.toml" in shown.err
    table = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert table[:2] == ["9 tasks, 1 broken", "task nop oracle"]
    for line in (
        "tasks/good 0.50 1.00 ok",
        "tasks/easy 1.00 1.00 UNSOUND",
        "nop passes: the verifier gives 1 to an agent that did nothing",
        "tasks/hard 0.50 0.50 UNSOUND",
        "tasks/half 0.50 0.50 UNSOUND",
        "nop passes: the verifier gives 0.5 to an agent that did nothing",
        "tasks/mute error error UNSOUND",
        "tasks/idle skipped skipped later",
        "tasks/sick error error unsound, quarantined",
        "tasks/open 0.00 skipped no oracle solution for open",
    ):
        assert line in table
    assert any(line.startswith("oracle fails: reward 0.5 is below 1 · ") for line in table)
    assert sum(line.startswith(("nop: reward in verify", "oracle: reward in verify")) for line in table) == 4
    assert table[-1].startswith("8 tasks, 4 unsound, results in out/")
    built = {path.read_text() for path in Path("out").glob("*/good__*/verifier/built")}
    assert len([*Path("out").glob("*/good__*/verifier/built")]) == 2
    assert len(built) == 1


def test_a_task_that_cannot_start_for_want_of_an_image_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    write_task(Path("tasks/fine"))
    task = write_task(Path("tasks/files"), files={"environment/setup.sh": "true\n"})
    (task / "environment/Dockerfile").unlink()
    assert main(["tasks", "check", "tasks"]) == 1
    shown = capsys.readouterr()
    assert shown.err.strip() == (
        "tasks/files/task.toml: environment/ has no Dockerfile and no docker-compose.yaml; "
        "write one, or name an image with [environment] docker_image"
    )
    assert shown.out == "2 tasks, 1 broken\n"


def test_nothing_starts_where_no_task_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    write_task(Path("tasks/good"))
    assert main(["tasks", "check", "tasks", "--run", "--sandbox", "lokal"]) == 2
    assert "unknown sandbox 'lokal'; did you mean local?" in capsys.readouterr().err
    assert not Path("jobs").exists()
    assert main(["tasks", "check", "nowhere", "--run"]) == 2
    assert "no task in nowhere" in capsys.readouterr().err


def test_interrupt_ends_what_runs(tmp_path: Path) -> None:
    write_task(Path("tasks/slow"), solve="touch /app/asleep; sleep 600")
    script = "import sys; from pytest_benchflow.cli.main import main; sys.exit(main())"
    argv = [sys.executable, "-c", script, "tasks", "check", "--run", "tasks"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: [*Path("jobs").glob("*/slow__*/result.json")], "nop's result", 30)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "interrupted\n"


def test_project_is_copied_without_what_does_not_belong_into_it(capsys: pytest.CaptureFixture[str]) -> None:
    write_files(
        Path("web"),
        {
            "package.json": json.dumps({"dependencies": {"left-pad": "1"}}),
            ".gitignore": "*.log\n/dist/\n!keep.log\n",
            ".env": "KEY=secret\n",
            ".env.example": "KEY=\n",
            "a.log": "",
            "keep.log": "",
            "dist/x.js": "",
            "src/dist/y.js": "",
            "src/.gitignore": "local.*\n",
            "src/local.txt": "",
            "node_modules/left-pad/index.js": "",
            ".git/HEAD": "",
            "run.sh": "true\n",
            "jobs/today/job.json": "{}",
        },
    )
    write_task(Path("web/tasks/old"))
    Path("web/link").symlink_to("run.sh")
    os.mkfifo("web/pipe")
    assert main(["tasks", "init", "web/tasks/new", "--from", "web"]) == 0
    copy = Path("web/tasks/new/environment/project")
    files = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir())
    kept = [".env.example", ".gitignore", "keep.log", "link", "package.json", "run.sh"]
    assert files == [*kept, "src/.gitignore", "src/dist/y.js"]
    assert os.readlink(copy / "link") == "run.sh"
    assert os.access(copy / "run.sh", os.X_OK)
    out = capsys.readouterr().out
    names = ".env, .git, a.log, dist, jobs, node_modules, pipe, src/local.txt, tasks/old"
    assert sorted(out.splitlines()[0].removeprefix("not copied: ").split(", ")) == names.split(", ")
    assert (copy.parent / "Dockerfile").read_text() == (
        "FROM node:22-slim\nWORKDIR /app\nCOPY project/ ./\nRUN npm install\n"
    )


@pytest.mark.parametrize(
    ("files", "image", "lines"),
    [
        ({"a.c": ""}, "debian:bookworm-slim", ()),
        ({"pyproject.toml": '[project]\nname = "x"\n'}, "python:3.13-slim", ()),
        (
            {"pyproject.toml": '[project]\ndependencies = ["y"]\n', "src/x/__init__.py": ""},
            "python:3.13-slim",
            ("RUN pip install --no-cache-dir -e .", "ENV PYTHONPATH=/app/src"),
        ),
        (
            {"requirements.txt": "y\n", "setup.py": ""},
            "python:3.13-slim",
            ("RUN pip install --no-cache-dir -r requirements.txt",),
        ),
        ({"package.json": "{}"}, "node:22-slim", ()),
        (
            {"package.json": '{"devDependencies": {"y": "1"}}', "package-lock.json": "{}"},
            "node:22-slim",
            ("RUN npm ci",),
        ),
        ({"go.mod": "module x\n\ngo 1.22.1\n"}, "golang:1.22", ()),
        ({"go.mod": "module x\n\nrequire y v1.0.0\n"}, "golang:1", ("RUN go mod download",)),
    ],
)
def test_image_fits_the_project(files: dict[str, str], image: str, lines: tuple[str, ...], tmp_path: Path) -> None:
    kind = find_kind(write_files(tmp_path / "project", files))
    assert (kind.image, kind.lines) == (image, lines)


def test_nothing_is_overwritten_or_half_written(capsys: pytest.CaptureFixture[str]) -> None:
    write_task(Path("tasks/old"))
    Path("empty").mkdir()
    write_files(Path("broken"), {"package.json": "{"})
    for words, message in [
        (["tasks/old"], "tasks/old exists already; choose another name"),
        (["empty"], "empty exists already"),
        (["tasks/a b"], "'a b' cannot name a task; use letters"),
        (["tasks/.new"], "'.new' cannot name a task; use letters"),
        (["tasks/new", "--from", "nowhere"], "--from nowhere: there is no such folder"),
        (["tasks/new", "--from", "tasks/old"], "--from tasks/old: this is a task itself"),
        (["tasks/new", "--from", "empty"], "--from empty: there is no file in it to work on"),
        (["tasks/new", "--from", "broken"], "broken/package.json: "),
        (["tasks/old/task.toml/new"], "tasks/old/task.toml/new cannot be made: "),
    ]:
        assert main(["tasks", "init", *words]) == 2
        assert capsys.readouterr().err.startswith(message)
    assert os.listdir("tasks") == ["old"]


def test_draft_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    script = "import os, signal, sys, shutil; from pytest_benchflow.cli import main\n"
    script += "shutil.copytree = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
    script += "main.main(['tasks', 'init', 'tasks/new', '--from', 'project'])"
    write_files(Path("project"), {"a.txt": "a"})
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert [name.startswith(".bf-init-") for name in os.listdir("tasks")] == [True]
    assert main(["tasks", "init", "tasks/new", "--from", "project"]) == 0
    assert os.listdir("tasks") == ["new"]


def test_tasks_are_brought_from_one_layout_into_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_task(tmp_path / "tasks/one")
    write_task(tmp_path / "tasks/two", instruction="Do it.\n## role:x\nnow\n")
    assert main(["tasks", "migrate", str(tmp_path / "tasks"), "--remove-legacy", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [each["losses"] for each in json.loads(out)] == [[]]
    assert f"bf: {tmp_path}/tasks/two would lose the instruction" in err
    assert main(["tasks", "export", str(tmp_path / "tasks/one"), "-o", str(tmp_path / "harbor")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/harbor/one\n"
    assert main(["tasks", "digest", str(tmp_path / "harbor"), "--json"]) == 0
    (digest,) = json.loads(capsys.readouterr().out).values()
    assert len(digest) == 64
    assert main(["tasks", "digest", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err == f"bf: no task in {tmp_path}/nothing; a task has a task.toml or a task.md\n"


def test_problems_are_listed_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_task(tmp_path / "one", toml="[agent]\ntimeout_sec = 'soon'\n")
    write_task(tmp_path / "two")
    assert main(["tasks", "check", str(tmp_path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["tasks"], told["broken"]) == (2, 1)
    (problem,) = told["problems"]
    assert (problem["line"], problem["severity"]) == (3, "error")
    assert problem["file"] == str(tmp_path / "one/task.toml")
    assert "timeout_sec" in problem["key"]
