"""Other plugins and pytest's own modes see ordinary tests."""

from __future__ import annotations

import json

import pytest
from project import Project


def test_a_rerun_is_a_new_rollout_with_its_own_directory(project: Project) -> None:
    """The second rollout of one task passes, because the first left a file on the host; the other fails again."""
    project.task("tasks/one", solve="exit 0")
    project.task("tasks/two", solve="exit 0")
    project.write(
        {
            "conftest.py": """
            from pathlib import Path

            def pytest_runtest_logreport(report):
                if report.outcome == "rerun":
                    Path("tasks/one/solution/solve.sh").write_text("#!/bin/bash\\necho done > /app/done.txt\\n")
            """
        }
    )
    done = project.run("tasks", "--reruns=1", "--bf-json=r.json")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["*1 failed, 1 passed, 2 rerun*"])
    assert len(project.rollout_dirs()) == 4
    assert sorted(result["reward"] for result in project.results().values()) == [0.0, 0.0, 0.0, 1.0]
    entries = json.loads((project.root / "r.json").read_text())["rollouts"]
    assert [(entry["status"], entry["result"]["reward"]) for entry in entries] == [("passed", 1.0), ("failed", 0.0)]


def test_the_clock_of_pytest_timeout_does_not_run_while_a_rollout_works_but_that_of_durations_does(
    project: Project,
) -> None:
    project.task("tasks/one", solve="sleep 1.2; echo done > /app/done.txt")
    done = project.run("tasks", "--timeout=1", "--durations=1", "--durations-min=1.2")
    done.assert_outcomes(passed=1)
    done.stdout.re_match_lines([r"\d+\.\d+s setup +tasks/one/task\.toml::oracle"])
    note = "note: the timeout of 1 s is not for rollouts, which have their tasks' limits; --bf-agent-timeout and *"
    done.stdout.fnmatch_lines([note])


def test_warnings_as_errors_and_strict_settings(project: Project) -> None:
    project.task("tasks/one", toml='[metadata]\ntags = ["io"]\n')
    done = project.run("tasks", "-W", "error", "--strict-markers", "--strict-config")
    done.assert_outcomes(passed=1)
    assert done.ret == 0


def test_warnings_as_errors_without_any_setting(project: Project) -> None:
    (project.root / "pytest.ini").unlink()
    project.write({"test_plain.py": "def test_plain(): pass\n"})
    done = project.run("-W", "error", "test_plain.py")
    done.assert_outcomes(passed=1)
    assert not done.errlines


def test_without_xdist_and_asyncio_and_the_cache(project: Project) -> None:
    project.task("tasks/one")
    off = ("xdist", "asyncio", "cacheprovider", "rerunfailures", "timeout")
    done = project.run("tasks", *(part for name in off for part in ("-p", f"no:{name}")))
    done.assert_outcomes(passed=1)


def test_without_a_terminal_reporter(project: Project) -> None:
    project.task("tasks/one")
    done = project.run("tasks", "-p", "no:terminalreporter", "--bf-json=r.json")
    assert done.ret == 0
    assert json.loads((project.root / "r.json").read_text())["rollouts"][0]["status"] == "passed"


def test_captured_output_of_other_tests_does_not_show_up_in_a_failure(project: Project) -> None:
    project.task("tasks/one", solve="exit 0")
    project.write({"test_a.py": "def test_a(): print('printed by another test')\n"})
    done = project.run("-rA", "test_a.py", "tasks")
    done.assert_outcomes(passed=1, failed=1)
    failures = done.stdout.str().partition("FAILURES")[2].partition("PASSES")[0]
    assert "reward 0.00 is below 1.00" in failures
    assert "printed by another test" not in failures


def test_a_quiet_run_says_in_a_line_what_failed(project: Project) -> None:
    project.task("tasks/one", solve="exit 0")
    quiet = project.run("tasks", "-qq", "--tb=line")
    quiet.stdout.fnmatch_lines([f"{project.root}/tasks/one/task.toml:1: Failed: reward 0.00 is below 1.00*"])


def test_no_capture_prints_nothing_of_the_sandbox(project: Project) -> None:
    project.task("tasks/one", solve="echo from-the-agent; echo done > /app/done.txt")
    done = project.run("tasks", "-s")
    done.assert_outcomes(passed=1)
    assert "from-the-agent" not in done.stdout.str()


@pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="pytest 9 was the first to read it")
def test_settings_live_in_the_native_table_of_pytest_too(project: Project) -> None:
    (project.root / "pytest.ini").unlink()
    project.task("tasks/one")
    project.write({"pyproject.toml": "[tool.pytest]\nbf_agent = ['nop']\nbf_threshold = 0.0\n"})
    done = project.run("tasks", "-v")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["tasks/one/task.toml::nop PASSED*"])


def test_overrides_change_what_they_say_of_the_tasks_they_name(project: Project) -> None:
    (project.root / "pytest.ini").unlink()
    project.task("tasks/one")
    project.task("tasks/two")
    table = """
        [tool.pytest.ini_options]
        [tool.benchflow]
        agent = "nop"
        agent_timeout = 5
        [[tool.benchflow.overrides]]
        tasks = "two"
        trials = 2
        [[tool.benchflow.overrides]]
        tasks = "tasks/tw*"
        timeout = 7
        trials = 3
        [[tool.benchflow.overrides]]
        tasks = "*"
        threshold = 0
    """
    project.write({"pyproject.toml": table})
    done = project.run("tasks", "-v")
    done.stdout.fnmatch_lines(
        ["tasks/one/task.toml::nop *", "tasks/two/task.toml::nop/1 *", "tasks/two/task.toml::nop/2 *"]
    )
    done.assert_outcomes(passed=3)
    said = [json.loads((path / "config.json").read_text()) for path in project.rollout_dirs()]
    assert [(config["timeout"], config["threshold"]) for config in said] == [(5, 0), (7, 0), (7, 0)]


def test_a_bad_table_ends_the_run_with_one_line(project: Project) -> None:
    (project.root / "pytest.ini").unlink()
    project.task("tasks/one")
    project.write({"pyproject.toml": "[tool.pytest.ini_options]\n[[tool.benchflow.agents]]\nname = 'nopp'\n"})
    done = project.run("tasks")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in done.errlines if line] == ["ERROR: Unknown agent: 'nopp'. Did you mean: 'nop'?"]


def test_what_other_tests_leave_unfinished_is_still_found(project: Project) -> None:
    project.task("tasks/one")
    project.write(
        {
            "test_leak.py": """
            async def forgotten(): pass

            def test_leak():
                ring = [forgotten()]
                ring.append(ring)
            """
        }
    )
    done = project.run("tasks", "test_leak.py")
    assert "Exception ignored in: <coroutine object forgotten" in done.stdout.str() + done.stderr.str()
