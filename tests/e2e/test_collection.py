"""What becomes an item, what is left to pytest, and what is an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from project import Project, write_files, write_native_task

from pytest_benchflow.jobs import collect_metrics

HOST_TEST = "from pathlib import Path\nPath('ran-on-the-host').write_text('x')\ndef test_outputs(): pass\n"


@pytest.fixture(scope="module")
def mixed(new_project: Callable[..., Project]) -> Project:
    """Make a project with tasks in every shape beside ordinary tests."""
    project = new_project()
    hidden = ("tests/test_outputs.py", "tests/conftest.py", "environment/test_build.py")
    project.task("tasks/alpha", files=dict.fromkeys(hidden, HOST_TEST))
    project.task("tasks/deep/er/beta")
    project.task("tasks/with space & ünï")
    write_native_task(project.root / "tasks/native")
    project.task("tasks/own-conftest", files={"conftest.py": ""})
    project.task("elsewhere/linked")
    (project.root / "tasks/link").symlink_to(project.root / "elsewhere")
    project.write(
        {
            "tasks/test_beside.py": "def test_beside(): pass\n",
            "unit/test_plain.py": "def test_plain(): pass\n",
            "unit/notes/task.md": "# Things to do\n\n- nothing here is a task\n",
            "unit/notes/test_notes.py": "def test_notes(): pass\n",
            "unit/crate/task.toml": '[tool.something]\nname = "another tool\'s file"\n',
            "unit/crate/test_crate.py": "def test_crate(): pass\n",
            "unit/data/job.json": '{"title": "no job of ours"}',
            "unit/data/config.json": "not even JSON",
            "unit/data/test_data.py": "def test_data(): pass\n",
            "results/night/job.json": '{"run": "1a2b", "created": 0}',
            "results/night/hello__1a2b3c4d/artifacts/conftest.py": HOST_TEST,
            "results/night/hello__1a2b3c4d/artifacts/test_left.py": HOST_TEST,
            "results/by-hand/config.json": '{"rollout_name": "by-hand"}',
            "results/by-hand/agent/test_left.py": HOST_TEST,
        }
    )
    return project


@pytest.fixture(scope="module")
def collected(mixed: Project) -> list[str]:
    return mixed.ids("--bf-json=r.json")


def test_a_task_inside_of_a_task_is_collected_if_it_is_named(new_project: Callable[..., Project]) -> None:
    project = new_project()
    project.task("tasks/outer", files={"environment/suite/conftest.py": HOST_TEST, "environment/test_it.py": HOST_TEST})
    project.task("tasks/outer/environment/suite/one", files={"tests/conftest.py": HOST_TEST})
    project.task("tasks/outer/environment/suite/two")
    outer, inside = "tasks/outer/task.toml::oracle", "tasks/outer/environment/suite/{}/task.toml::oracle"
    one, two = inside.format("one"), inside.format("two")
    assert project.ids("tasks") == project.ids("tasks/outer") == [outer]
    assert project.ids("tasks/outer/environment/suite/one") == [one]
    assert project.ids(one) == [one]
    assert project.ids("tasks/outer/environment") == [one, two]
    assert project.ids("tasks", "tasks/outer/environment/suite/two") == [outer, two]
    assert "not found" in project.run("tasks/outer/tests").stderr.str()
    assert not (project.root / "ran-on-the-host").exists()
    (project.root / "tasks/borrower").mkdir()
    for part in ("task.toml", "instruction.md", "environment", "tests", "solution"):
        (project.root / "tasks/borrower" / part).symlink_to(f"../outer/{part}")
    project.run(one, "tasks/borrower").assert_outcomes(passed=2)


def test_tasks_are_found_in_directories_below_each_other_and_behind_links(collected: list[str]) -> None:
    assert [nodeid for nodeid in collected if nodeid.startswith("tasks/") and "test_" not in nodeid] == [
        "tasks/alpha/task.toml::oracle",
        "tasks/deep/er/beta/task.toml::oracle",
        "tasks/link/linked/task.toml::oracle",
        "tasks/native/task.md::oracle",
        "tasks/own-conftest/task.toml::oracle",
        "tasks/with space & ünï/task.toml::oracle",
    ]


def test_ordinary_tests_beside_tasks_and_foreign_task_files_are_untouched(collected: list[str]) -> None:
    assert [nodeid for nodeid in collected if "test_" in nodeid] == [
        "tasks/test_beside.py::test_beside",
        "unit/crate/test_crate.py::test_crate",
        "unit/data/test_data.py::test_data",
        "unit/notes/test_notes.py::test_notes",
        "unit/test_plain.py::test_plain",
    ]


def test_collecting_makes_no_jobs_directory_and_no_report(mixed: Project, collected: list[str]) -> None:
    assert collected
    assert not (mixed.root / "jobs").exists()
    assert not (mixed.root / "r.json").exists()


def test_the_verifiers_tests_and_what_agents_left_are_never_imported_on_the_host(
    mixed: Project, collected: list[str]
) -> None:
    assert collected
    assert not list(mixed.root.rglob("ran-on-the-host"))


@pytest.mark.parametrize(
    ("argument", "below", "codes"),
    [
        ("", "tasks/alpha", {0}),
        ("", "tasks/alpha/tests", {4}),
        ("tasks/alpha/environment/test_build.py", ".", {4}),
        ("results/night/hello__1a2b3c4d/artifacts", ".", {4}),
    ],
)
def test_code_of_verifiers_and_agents_does_not_run_even_when_named(
    mixed: Project, argument: str, below: str, codes: set[int]
) -> None:
    done = mixed.run("--collect-only", *filter(None, [argument]), cwd=mixed.root / below)
    assert done.ret in codes
    assert not list(mixed.root.rglob("ran-on-the-host"))


def test_the_first_conftest_files_of_other_directories_are_loaded_as_ever(project: Project) -> None:
    project.write(
        {
            "crate/task.toml": '[tool.something]\nname = "another tool\'s file"\n',
            "crate/test_all/conftest.py": "def pytest_addoption(parser): parser.addoption('--mine')\n",
            "crate/test_all/test_it.py": "def test_it(pytestconfig): assert pytestconfig.getoption('mine') == 'x'\n",
        }
    )
    project.run("crate", "--mine=x").assert_outcomes(passed=1)
    project.run("--mine=x", cwd=project.root / "crate").assert_outcomes(passed=1)


def test_every_id_can_be_passed_back_and_selects_itself(mixed: Project, collected: list[str]) -> None:
    tasks = [nodeid for nodeid in collected if "task." in nodeid]
    assert sorted(mixed.ids(*tasks)) == sorted(tasks)
    linked = "tasks/link/linked/task.toml::oracle"
    assert mixed.ids(linked) == [linked]


def test_ids_are_the_same_from_a_directory_below_the_root(mixed: Project, collected: list[str]) -> None:
    done = mixed.run("--collect-only", "-q", "alpha", cwd=mixed.root / "tasks")
    assert [line for line in done.outlines if "::" in line] == ["tasks/alpha/task.toml::oracle"]


def test_several_paths_and_one_task_directory(mixed: Project) -> None:
    assert mixed.ids("tasks/native", "unit/test_plain.py", "tasks/alpha/task.toml") == [
        "tasks/native/task.md::oracle",
        "unit/test_plain.py::test_plain",
        "tasks/alpha/task.toml::oracle",
    ]


@pytest.fixture(scope="module")
def outside(mixed: Project, new_project: Callable[..., Project]) -> Project:
    """Make two folders outside the root directory, with tasks of the same name of which one passes."""
    project = new_project("outside", ini="")
    project.task("one/same")
    project.task("two/same", solve="exit 0")
    return project


def test_tasks_outside_the_root_directory_have_ids_and_results_of_their_own(mixed: Project, outside: Project) -> None:
    paths = [str(outside.root / argument) for argument in ("one", "two/same/task.toml")]
    done = mixed.run("-c", "pytest.ini", "--rootdir", str(mixed.root), "-v", "--bf-json=r.json", *paths)
    done.assert_outcomes(passed=1, failed=1)
    rollouts = json.loads((mixed.root / "r.json").read_text())["rollouts"]
    found = {rollout["result"]["task_path"]: rollout["status"] for rollout in rollouts}
    assert found == {str(outside.root / "one/same"): "passed", str(outside.root / "two/same"): "failed"}
    assert len({rollout["id"] for rollout in rollouts}) == 2


def test_ignore_options_keep_their_meaning(mixed: Project) -> None:
    ids = mixed.ids("tasks", "--ignore=tasks/alpha", "--ignore-glob=*nat*", "--ignore=tasks/deep")
    assert not [nodeid for nodeid in ids if "alpha" in nodeid or "native" in nodeid or "beta" in nodeid]
    assert "tasks/own-conftest/task.toml::oracle" in ids


def test_an_empty_folder_of_no_tasks_collects_nothing(project: Project) -> None:
    project.write({"tasks/readme.txt": "none yet"})
    assert project.run("tasks").ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.fixture(scope="module")
def broken(new_project: Callable[..., Project]) -> Project:
    """Make a project in which tasks are broken in different ways, beside a whole one."""
    project = new_project()
    project.task("tasks/whole")
    project.task("tasks/bad-value", toml='[agent]\ntimeout_sec = "10m"\n')
    project.task("tasks/bad-toml", toml="[agent\n")
    project.task("tasks/no-instruction")
    (project.root / "tasks/no-instruction/instruction.md").unlink()
    project.task("tasks/misspelt", toml="[environment]\nmemory_bm = 512\n")
    return project


@pytest.fixture(scope="module")
def broken_run(broken: Project) -> pytest.RunResult:
    return broken.run("tasks", "-W", "default")


def test_a_broken_task_is_a_collection_error(broken_run: pytest.RunResult, broken: Project) -> None:
    assert broken_run.ret == pytest.ExitCode.INTERRUPTED
    broken_run.stdout.fnmatch_lines(["*3 errors during collection*"])
    assert not (broken.root / "jobs").exists()


def test_a_bad_value_is_named_with_file_line_key_and_fix(broken_run: pytest.RunResult) -> None:
    text = 'tasks/bad-value/task.toml:3: [agent] timeout_sec is "10m"; give seconds as a number, for example 600'
    assert text in broken_run.stdout.str()


def test_a_file_that_is_no_toml_is_named_with_its_line(broken_run: pytest.RunResult) -> None:
    broken_run.stdout.re_match_lines([r"(E +)?tasks/bad-toml/task\.toml:\d+: "])


def test_a_missing_file_is_named(broken_run: pytest.RunResult) -> None:
    broken_run.stdout.re_match_lines([r"(E +)?tasks/no-instruction/instruction\.md.*missing"])


def test_a_broken_task_shows_no_traceback_of_ours(broken_run: pytest.RunResult) -> None:
    assert "pytest_benchflow/" not in broken_run.stdout.str()
    assert "Traceback" not in broken_run.stdout.str()


def test_the_whole_tasks_run_when_asked_to_go_on(broken: Project) -> None:
    done = broken.run("tasks", "--continue-on-collection-errors", "-W", "default")
    done.assert_outcomes(passed=2, errors=3, warnings=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED


def test_an_unknown_key_is_a_warning_with_a_hint(broken_run: pytest.RunResult) -> None:
    broken_run.stdout.re_match_lines([r".*tasks/misspelt/task\.toml:3: .*memory_bm.*did you mean memory_mb\?"])


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_equal_warnings_are_told_once_with_the_first_place_and_a_count(
    new_project: Callable[..., Project], workers: tuple[str, ...]
) -> None:
    project = new_project(ini="")
    for name in ("a", "b"):
        project.task(f"tasks/{name}", toml='[[artifacts]]\nsource = "/x"\nkeep = 1\n' * 2)
    project.task("tasks/c", toml='artifacts = [{source = "/x", keep = 1}]\n[environment]\nmemory_bm = 1\n')
    project.task("tasks/d", toml="[environment]\nmemory_bm = 1\n")
    done = project.run("tasks", "--bf-agent=nop", *workers)
    done.stdout.fnmatch_lines(
        [
            "tasks/a/task.toml:4",
            "*TaskFileWarning: ??artifacts?? keep is not a known key; known: * (the first of 5 in 3 tasks)",
            "*keep = 1",
            "tasks/c/task.toml:4",
            "*TaskFileWarning: ?environment? memory_bm is *; did you mean memory_mb? (the same in 1 more task)",
        ]
    )
    assert done.stdout.str().count("TaskFileWarning") == 2


def test_a_warning_that_is_made_an_error_is_one_of_its_task_only(project: Project) -> None:
    project.task("tasks/misspelt", toml="[environment]\nmemory_bm = 1\n")
    project.task("tasks/whole")
    done = project.run("tasks", "--collect-only", "-q", "-W", "error")
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines(["tasks/whole/task.toml::oracle", "*ERROR collecting tasks/misspelt/task.toml*"])
    assert "pytest_benchflow/" not in done.stdout.str()


def test_tasks_of_one_name_are_told_apart_in_headings_directories_and_metrics(project: Project) -> None:
    for path in ("tasks/a/same", "tasks/b/same", "tasks/other"):
        project.task(path)
    job = ("--bf-agent=nop", "--bf-job-name=night", "--bf-resume")
    done = project.run("tasks", "--bf-agent=nop", "--bf-job-name=night", "--junitxml=r.xml", "-n", "2")
    text = done.stdout.str()
    for heading in ("same (a/same) nop", "same (b/same) nop", "other nop"):
        assert f"_ {heading} _" in text
    names = sorted(path.name.rpartition("__")[0] for path in (project.root / "jobs/night").iterdir() if path.is_dir())
    assert names == ["other", "same-tasks-a-same", "same-tasks-b-same"]
    cases = [*ET.parse(project.root / "r.xml").iter("testcase")]
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == 3
    metrics = collect_metrics(project.root / "jobs/night").summary()
    assert metrics["failed_tasks"] == ["other", "same (a/same)", "same (b/same)"]
    assert isinstance(metrics["by_task"], dict)
    assert sorted(metrics["by_task"]) == metrics["failed_tasks"]
    assert "1 of 1 scores are of an earlier run" in project.run("tasks/a", *job).stdout.str()
    project.task("tasks/c/other")
    assert "3 of 4 scores are of an earlier run" in project.run("tasks", *job).stdout.str()
    trials = project.run("tasks/a", "tasks/b", "--bf-agent=nop", "--bf-trials=2").stdout.str()
    assert "_ same (a/same) nop/2 _" in trials


def test_a_name_that_nothing_can_show_is_an_error_of_that_task_only(project: Project) -> None:
    path = os.fsencode(project.task("tasks/one"))
    os.rename(path, path[:-3] + b"bad\xff")
    project.task("tasks/red\x1b[31m")
    project.task("tasks/two\nlines")
    project.task("tasks/ünï e\u0301")
    project.task("tasks/a[b]")  # pytest itself takes no path with brackets back, so such a task runs by its folder
    done = project.run("tasks", "--junitxml=r.xml", "--continue-on-collection-errors", "-n", "2")
    done.assert_outcomes(passed=2, errors=3)
    reason = "the name of the task is not UTF-8 or has control characters; give its directory another one"
    for name in ("bad\\udcff", "red\\x1b?31m", "two\\nlines"):
        done.stdout.fnmatch_lines([f"tasks/{name}: {reason}"])
    names = [case.get("name") for case in ET.parse(project.root / "r.xml").iter("testcase")]
    assert len(names) == 5
    assert {"ünï e\u0301/oracle", "a[b]/oracle"} <= {*names}


def test_a_task_that_pytest_passes_over_for_its_name_is_told(new_project: Callable[..., Project]) -> None:
    project = new_project(ini="")
    for name in ("build", "dist", ".hidden", "plain"):
        project.task(f"tasks/{name}")
    write_native_task(project.root / "tasks/venv")
    told = "*TaskFileWarning: pytest passes over directories called {}; give the task another name*"
    done = project.run("tasks", "--collect-only")
    for file in ("build/task.toml", "dist/task.toml", "venv/task.md"):
        done.stdout.fnmatch_lines([f"tasks/{file}:1", told.format(file.partition("/")[0])])
    assert done.stdout.str().count("TaskFileWarning") == 3
    assert project.run("tasks", "--collect-only", "--ignore=tasks/build").stdout.str().count("Warning") == 0
    wanted = project.ids("tasks", "-o", "norecursedirs=dist")
    assert [nodeid.split("/")[1] for nodeid in wanted] == [".hidden", "build", "plain", "venv"]


def test_an_unknown_key_is_an_error_when_strict(broken: Project) -> None:
    done = broken.run("tasks/misspelt", "--bf-strict")
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.re_match_lines([r".*tasks/misspelt/task\.toml:3: .*memory_bm.*did you mean memory_mb\?"])


def test_a_link_to_a_folder_that_contains_it_is_an_error_and_one_that_leads_nowhere_is_left_alone(
    project: Project,
) -> None:
    project.task("tasks/one")
    (project.root / "tasks/loop").symlink_to(project.root / "tasks")
    (project.root / "tasks/gone").symlink_to(project.root / "nowhere")
    done = project.run("tasks", "--collect-only", "-q")
    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert [line for line in done.outlines if "::" in line] == ["tasks/one/task.toml::oracle"]
    done.stdout.fnmatch_lines(["*loop links to *, which contains it; remove the link*", "*1 error*"])


def test_a_directory_that_cannot_be_read_is_an_error(project: Project) -> None:
    project.task("tasks/one")
    modes = {"entered": 0o111, "closed": 0o000, "listed": 0o444}
    for name in modes:
        project.task(f"tasks/{name}/two")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", "tasks"]
    if os.geteuid() == 0:
        # Root without its powers is held to permissions like anybody else.
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    try:
        for name, mode in modes.items():
            (project.root / "tasks" / name).chmod(mode)
        done = subprocess.run(command, cwd=project.root, env=project.environment(), capture_output=True, text=True)
    finally:
        for name in modes:
            (project.root / "tasks" / name).chmod(0o755)
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout + done.stderr
    for name in modes:
        assert f"tasks/{name} cannot be read: Permission denied; check its permissions" in done.stdout
    assert "tasks/one/task.toml::oracle" in done.stdout
    assert "PermissionError" not in done.stdout


def test_a_cache_that_cannot_be_made_is_done_without(new_project: Callable[..., Project]) -> None:
    project = new_project(ini="").write({"file": ""})
    project.task("tasks/one")
    assert project.ids("tasks", "-o", "cache_dir=file/cache") == ["tasks/one/task.toml::oracle"]


def test_changing_a_task_file_is_noticed_by_the_next_collection(project: Project) -> None:
    path = project.task("tasks/one", toml='[metadata]\ndifficulty = "easy"\n')
    assert project.ids("-m", "bf(difficulty='easy')") == ["tasks/one/task.toml::oracle"]
    write_files(path, {"task.toml": '[metadata]\ndifficulty = "hard"\n'})
    assert project.ids("-m", "bf(difficulty='hard')") == ["tasks/one/task.toml::oracle"]


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_equal_errors_are_shown_once_with_a_count_and_every_one_is_listed(
    project: Project, workers: tuple[str, ...]
) -> None:
    for name in ("a", "b", "c"):
        project.task(f"tasks/{name}", toml='[agent]\ntimeout_sec = "10m"\n')
    project.task("tasks/d", toml='[verifier]\ntimeout_sec = "10m"\n')
    done = project.run("tasks", *workers)
    shown = done.stdout.str().partition("short test summary")[0]
    assert shown.count("[agent] timeout_sec is") == 1
    done.stdout.fnmatch_lines(
        [
            "*ERROR collecting tasks/a/task.toml*",
            "tasks/a/task.toml:3: [[]agent] timeout_sec is *",
            "(the same 2 more times: tasks/b/task.toml, tasks/c/task.toml)",
            "*ERROR collecting tasks/d/task.toml*",
            "tasks/d/task.toml:3: [[]verifier] timeout_sec is *",
            *(f"ERROR tasks/{name}/task.toml*" for name in "abcd"),
            "*4 errors*",
        ]
    )
    assert done.ret != pytest.ExitCode.OK
    assert "(the same" not in project.run("tasks", "-vv", *workers).stdout.str()


def test_tasks_that_the_sandbox_cannot_run_for_one_reason_are_one_text(project: Project) -> None:
    for name in ("a", "b", "c"):
        project.task(f"tasks/{name}", dockerfile="FROM nowhere.example/thing:1\n")
    project.task("tasks/fine")
    done = project.run("tasks", "--bf-sandbox=local")
    done.assert_outcomes(passed=1, errors=3)
    assert done.stdout.str().partition("short test summary")[0].count("nothing on this host stands in") == 1
    done.stdout.fnmatch_lines(
        ["(the same 2 more times: tasks/b/task.toml::oracle, tasks/c/task.toml::oracle)"]
        + [f"ERROR tasks/{name}/task.toml::oracle*" for name in "abc"]
    )
