"""The `bf` command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from project import NO_DAEMON

from pytest_benchflow.cli.main import main
from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Leftovers, registry
from pytest_benchflow.sandboxes.local.backend import LocalBackend

Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", NO_DAEMON)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("pytest_benchflow.sandboxes.local.cleanup.spare_layers", lambda: tmp_path / "spare")


def half_built(tmp_path: Path, owner: str) -> Path:
    path = tmp_path / "cache" / "layers" / f"tmp-{owner}-1"
    (path / "usr" / "closed").mkdir(parents=True)
    (path / "usr" / "closed" / "file").write_text("x")
    (path / "usr" / "closed").chmod(0o000)
    return path


def of_the_dead() -> str:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"{process.pid}-12345"


def of_the_living() -> str:
    return f"{os.getpid()}-{Path('/proc/self/stat').read_text().rpartition(')')[2].split()[19]}"


def test_cleanup_without_a_daemon_says_so_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cleanup", "--images"]) == 0
    shown = capsys.readouterr()
    assert "docker: no Docker daemon answers at unix:///nowhere/docker.sock" in shown.err
    assert "docker images: no Docker daemon" in shown.err
    assert shown.out == "local: nothing\nlocal layers: nothing\n"


@pytest.mark.parametrize("address", ["ssh://somewhere", "tcp://127.0.0.1:1"])
def test_cleanup_goes_on_whatever_is_wrong_with_the_daemon(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    assert main(["cleanup"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("docker: ")
    assert shown.out == "local: nothing\n"


def test_cleanup_lists_and_removes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = half_built(tmp_path, of_the_dead())
    assert main(["cleanup"]) == 0
    out = capsys.readouterr().out
    assert f"half-built layer {path.name}  of process {path.name.split('-')[1]}, which is gone" in out
    assert out.endswith("nothing was removed; --yes removes what is listed\n")
    assert path.exists()


def test_cleanup_removes_what_the_dead_have_left_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead, living = half_built(tmp_path, of_the_dead()), half_built(tmp_path, of_the_living())
    layer = tmp_path / "cache" / "layers" / "0123456789abcdef"
    layer.mkdir()
    assert main(["cleanup", "--yes"]) == 0
    assert [dead.exists(), living.exists(), layer.exists()] == [False, True, True]
    out = capsys.readouterr().out
    assert f"{dead.name}  of process" in out
    assert "removed" in out
    assert "1 kept on purpose or in use; --all includes them" in out


def test_cleanup_removes_what_lies_in_the_spare_place(tmp_path: Path) -> None:
    left = tmp_path / "spare" / f"tmp-{of_the_dead()}-1"
    left.mkdir(parents=True)
    assert main(["cleanup", "--yes"]) == 0
    assert not left.exists()


@pytest.mark.parametrize("name", ["spare", "bf-context-{pid}-x"])
def test_cleanup_goes_through_no_link_that_others_may_have_made(tmp_path: Path, name: str) -> None:
    owner = of_the_dead()
    precious = tmp_path / "precious" / f"tmp-{owner}-1"
    precious.mkdir(parents=True, mode=0o755)
    (tmp_path / name.format(pid=owner.partition("-")[0])).symlink_to(precious.parent)
    assert main(["cleanup", "--yes"]) == 0
    assert precious.stat().st_mode & 0o777 == 0o755


def test_cleanup_removes_build_contexts_of_the_dead(tmp_path: Path) -> None:
    dead = tmp_path / f"bf-context-{of_the_dead().partition('-')[0]}-x_1"
    living = tmp_path / f"bf-context-{os.getpid()}-y"
    for path in (dead, living):
        (path / "0").mkdir(parents=True)
    assert main(["cleanup", "--yes"]) == 0
    assert [dead.exists(), living.exists()] == [False, True]


def test_cleanup_removes_agents_that_the_dead_have_half_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agents = tmp_path / "cache" / "agents"
    dead, living = (agents / f"tmp-{owner}-1" for owner in (of_the_dead(), of_the_living()))
    for path in (dead, living):
        (path / "bundle").mkdir(parents=True)
    assert main(["cleanup", "--yes"]) == 0
    assert f"half-installed agent {dead.name}" in capsys.readouterr().out
    assert [dead.exists(), living.exists()] == [False, True]


def test_cleanup_of_all_takes_what_is_in_use_too(tmp_path: Path) -> None:
    living = half_built(tmp_path, of_the_living())
    assert main(["cleanup", "--all", "--yes"]) == 0
    assert not living.exists()


def test_cleanup_follows_no_link_out_of_what_it_removes(tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.mkdir(mode=0o500)
    path = half_built(tmp_path, of_the_dead())
    (path / "link").symlink_to(outside)
    assert main(["cleanup", "--yes"]) == 0
    assert not path.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_cleanup_lists_layers_with_their_age_and_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (tmp_path / "cache" / "layers" / name for name in ("0123456789abcdef", "fedcba9876543210"))
    for path in (old, new):
        (path / "root" / "closed").mkdir(parents=True)
        (path / "root" / "file").write_bytes(b"x" * 3_000_000)
        (path / "root" / "closed").chmod(0o000)
    os.utime(old, (0, time.time() - 10 * 86400))
    assert main(["cleanup", "--images", "--max-age=7"]) == 0
    out = capsys.readouterr().out
    assert f"local layers: 1\n  layer {old.name}  3 MB, 10 days old\n" in out
    assert old.exists()
    assert main(["cleanup", "--images", "--max-age=7", "--yes"]) == 0
    assert [path.name for path in old.parent.iterdir()] == [new.name]


def test_cleanup_of_one_run_leaves_what_belongs_to_none(tmp_path: Path) -> None:
    path = half_built(tmp_path, of_the_dead())
    assert main(["cleanup", "--yes", "--run", "0123"]) == 0
    assert path.exists()


class _Unreachable(LocalBackend):
    def leftovers(self, *, unused_for_sec: float | None = None) -> list[Leftovers]:
        raise SandboxError("no server answers at cloud.test", advice="log in with `cloud login`")


def test_cleanup_shows_the_advice_of_a_backend_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point = EntryPoint("cloud", f"{__name__}:_Unreachable", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    assert main(["cleanup"]) == 0
    shown = capsys.readouterr()
    assert "cloud: no server answers at cloud.test; log in with `cloud login`\n" in shown.err
    assert "local: nothing\n" in shown.out


def test_cleanup_asks_backends_of_other_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples" / "custom_sandbox"))
    names = {"company": "company_sandbox:CompanyBackend", "broken": "no_such_package:Backend"}
    points = [EntryPoint(name, value, registry.ENTRY_POINTS) for name, value in names.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints(points).select(group=group))
    dead, living = (
        tmp_path / f"company-sandbox-{owner.partition('-')[0]}-x" for owner in (of_the_dead(), of_the_living())
    )
    for path in (dead, living):
        path.mkdir()
    assert main(["cleanup", "--yes"]) == 0
    shown = capsys.readouterr()
    assert f"company: 1\n  settings {dead.name}  of process " in shown.out
    assert shown.out.endswith("  1 kept on purpose or in use; --all includes them\nlocal: nothing\n")
    assert [dead.exists(), living.exists()] == [False, True]
    assert "broken: the sandbox 'broken' cannot be loaded from no_such_package:Backend: " in shown.err


@pytest.mark.parametrize("age", ["-1", "week", "nan", "inf"])
def test_a_bad_age_is_one_line(age: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cleanup", "--images", f"--max-age={age}"])
    assert ended.value.code == 2
    assert f"--max-age: {age!r} is not a number of days; expected 0 or more" in capsys.readouterr().err


def test_checking_tasks_counts_the_broken(make_task: Make, capsys: pytest.CaptureFixture[str]) -> None:
    good = make_task("tasks/good")
    make_task("tasks/bad", toml='[agent]\ntimeout_sec = "10m"\n')
    assert main(["tasks", "check", str(good), str(good / "task.toml")]) == 0
    assert capsys.readouterr().out == "1 task, 0 broken\n"
    assert main(["tasks", "check", str(good), str(good / "nowhere")]) == 2
    assert capsys.readouterr().err.startswith(f"no task in {good}/nowhere; ")
    assert main(["tasks", "check", str(good.parent)]) == 1
    shown = capsys.readouterr()
    assert shown.out == "2 tasks, 1 broken\n"
    assert "timeout_sec" in shown.err


def test_checking_tasks_tells_equal_problems_once(
    tmp_path: Path, make_task: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(13):
        make_task(f"tasks/t{number:02}", toml=f"[agent]\ntimeot_sec = 1\n[environment]\ncpus = 'x{number}'\n")
    for name in "uv":
        (make_task(f"tasks/{name}") / "instruction.md").unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["tasks", "check", "tasks"]) == 1
    places = [f"tasks/t{number:02}/task.toml" for number in range(1, 13)]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(
        "tasks/t00/task.toml:3: [agent] timeot_sec is not a known key; did you mean timeout_sec?"
    )
    assert lines[1] == f"  and 12 more: {', '.join(f'{place}:3' for place in places[:10])}, …"
    assert lines[2].startswith("tasks/t00/task.toml:5: [environment] cpus is ")
    assert lines[3] == f"  and 12 more: {', '.join(f'{place}:5' for place in places)}"
    assert lines[4:] == [
        "tasks/u/instruction.md: is missing; write there what the agent has to do",
        "  and 1 more: tasks/v/instruction.md",
    ]


def test_checking_a_folder_without_tasks_says_what_a_task_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", "check", str(tmp_path)]) == 2
    assert "a task has a task.toml or a task.md" in capsys.readouterr().err


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Report"


def test_the_schema_of_rollout_files_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "rollout"]) == 0
    assert "scenes" in json.loads(capsys.readouterr().out)["properties"]


def test_check_names_everything_that_nobody_may_read(tmp_path: Path, make_task: Make) -> None:
    closed = {
        "environment": make_task("a") / "environment",
        "tests": make_task("b") / "tests",
        "solve.sh": make_task("c") / "solution/solve.sh",
        "entered": make_task("entered"),
        "listed": make_task("listed"),
    }
    for name, path in closed.items():
        path.chmod(0o444 if name == "listed" else 0)
    command = [sys.executable, "-c", "from pytest_benchflow.cli.main import main; main(['tasks', 'check', '.'])"]
    if os.geteuid() == 0:
        # Root without its powers is held to permissions like anybody else.
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    try:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    finally:
        for path in closed.values():
            path.chmod(0o755)
    assert done.stderr.splitlines() == [
        "a/environment: cannot be read (Permission denied); check its permissions",
        "b/tests: cannot be read (Permission denied); check its permissions",
        "b/tests/test.sh: cannot be read (Permission denied); check its permissions",
        "c/solution/solve.sh: cannot be read (Permission denied); check its permissions",
        "entered: cannot be read (Permission denied); check its permissions",
        "  and 1 more: listed",
    ]
    assert done.stdout == "5 tasks, 5 broken\n"


def test_a_reader_that_stops_reading_ends_a_command_quietly() -> None:
    command = f"{shlex.quote(sys.executable)} -c 'from pytest_benchflow.cli.main import main; exit(main())' schema"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (141, "")
