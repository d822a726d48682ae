"""The fixture chain in Python tests, and in conftests that override a link of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from project import INI, Project

HALF = "echo 0.5 > /logs/verifier/reward.txt"

PYTHON_TESTS = """
import dataclasses

import pytest

pytestmark = pytest.mark.bf_task("tasks/one")


async def test_two_turns(bf_rollout):
    first = await bf_rollout.execute("Create done.txt")
    await bf_rollout.execute("Now again")
    assert first.outcome == "completed"
    assert (await bf_rollout.verify())["reward"] == 1.0


async def test_the_sandbox(bf_sandbox):
    done = await bf_sandbox.exec("pwd; cat /instruction.md", timeout_sec=30)
    assert done.stdout == "/app\\nMake done.txt.\\n"
    assert bf_sandbox.workdir == "/app"


async def test_a_command_over_time(bf_sandbox):
    with pytest.raises(TimeoutError):
        await bf_sandbox.exec("sleep 60", timeout_sec=0.2)


async def test_the_session(bf_session, bf_sandbox):
    done = await bf_session.prompt("Go", timeout_sec=30)
    assert done.outcome == "completed"
    assert (await bf_sandbox.exec("cat done.txt")).stdout == "done\\n"


def test_the_agent(bf_agent):
    assert bf_agent.name == "oracle"


def test_the_task(bf_task, bf_config):
    assert bf_task.name == "one"
    assert (bf_config.agent, bf_config.threshold) == ("oracle", 1.0)


def test_the_result(bf_result):
    assert bf_result.passed
    assert bf_result.rewards == {"reward": 1.0}
    assert (bf_result.rollout_dir / "result.json").exists()


def test_a_run(bf_run, bf_config):
    assert bf_run(dataclasses.replace(bf_config, agent="nop")).reward == 0.0
    assert bf_run(bf_config).reward == 1.0


@pytest.mark.bf_threshold(0.25)
@pytest.mark.bf_timeout(17)
def test_markers(bf_config):
    assert (bf_config.threshold, bf_config.timeout) == (0.25, 17)


@pytest.mark.bf_trials(3)
def test_trials(bf_config, bf_trial):
    assert bf_config.trial == bf_trial
"""


@pytest.fixture(scope="module")
def python_tests(new_project: Callable[..., Project]) -> pytest.RunResult:
    project = new_project(ini=INI + "asyncio_mode = auto\n")
    project.task("tasks/one")
    project.write({"test_python.py": PYTHON_TESTS})
    return project.run("test_python.py", "-v", "-n", "2")


def test_python_tests_use_the_chain(python_tests: pytest.RunResult) -> None:
    python_tests.assert_outcomes(passed=12)
    assert python_tests.ret == 0
    assert {"test_trials[1]", "test_trials[3]"} <= {
        line.rpartition("::")[2].strip() for line in python_tests.outlines if "PASSED" in line
    }


def test_a_task_that_a_test_changes_is_read_again(project: Project) -> None:
    project.task("tasks/one")
    project.write(
        {
            "test_python.py": """
            import pytest

            pytestmark = pytest.mark.bf_task("tasks/one")

            def test_runs(bf_run, bf_config, bf_task):
                first = bf_run(bf_config)
                (bf_task.path / "instruction.md").write_text("Something else.")
                second = bf_run(bf_config)
                assert first.task_digest != second.task_digest
                assert "Something else." in (second.rollout_dir / "prompts.json").read_text()

            def test_the_next_one(bf_task):
                assert bf_task.steps[0].instruction == "Something else."
            """
        }
    )
    project.run("test_python.py").assert_outcomes(passed=2)


def test_strict_asyncio_mode_needs_nothing_but_its_own_mark(project: Project) -> None:
    project.task("tasks/one")
    project.write(
        {
            "test_python.py": """
            import pytest

            @pytest.mark.asyncio
            @pytest.mark.bf_task("tasks/one")
            async def test_it(bf_rollout):
                await bf_rollout.execute()
                assert (await bf_rollout.verify())["reward"] == 1.0
            """
        }
    )
    project.run("-o", "asyncio_mode=strict").assert_outcomes(passed=2)


def test_a_task_that_turns_out_broken_is_said_once(project: Project) -> None:
    linked = project.task("tasks/one")
    (linked / "tests/secret").symlink_to("/etc/passwd")
    done = project.run("tasks", "-n0")
    done.assert_outcomes(errors=1)
    assert done.stdout.str().count("tests/secret: is a link to /etc/passwd") == 2  # the error and its summary line
    assert "another exception" not in done.stdout.str()


def test_what_python_tests_lack_is_an_error_and_not_a_failure(project: Project) -> None:
    project.task("tasks/one")
    project.task("tasks/broken", test="exit 0")
    project.task("tasks/unsolved", solve=None)
    project.write(
        {
            "test_python.py": """
            import pytest

            @pytest.mark.bf_task("tasks/one")
            def test_sound(bf_result): pass

            def test_nameless(bf_result): pass

            @pytest.mark.bf_task("tasks/none")
            def test_missing(bf_result): pass

            @pytest.mark.bf_task("tasks/broken")
            def test_broken(bf_result): pass

            @pytest.mark.bf_task("tasks/unsolved")
            def test_skipped(bf_result): pass

            @pytest.mark.bf_task("tasks/unsolved")
            def test_skipped_too(bf_sandbox): pass
            """
        }
    )
    done = project.run("test_python.py", "-rs", "--bf-json=r.json")
    done.assert_outcomes(passed=1, errors=3, skipped=2)
    done.stdout.fnmatch_lines(['*names no task; mark it with @pytest.mark.bf_task("tasks/NAME")*'])
    done.stdout.fnmatch_lines(["*tasks/none*is missing*"])
    done.stdout.fnmatch_lines(["*reward error in verify*"])
    assert "pytest_benchflow/" not in done.stdout.str()
    report = json.loads((project.root / "r.json").read_text())
    assert ("test_python.py::test_sound", "passed") in [(entry["id"], entry["status"]) for entry in report["rollouts"]]


@pytest.fixture(scope="module")
def overridden(new_project: Callable[..., Project]) -> pytest.RunResult:
    """Run folders of which each overrides another link of the chain."""
    project = new_project()
    project.task("tasks/plain/one", test=HALF)
    project.task("tasks/config/one", test=HALF)
    project.task("tasks/task/one")
    project.task("tasks/sandbox/one", solve="cp /app/prepared /app/done.txt")
    project.task("tasks/user/one")
    project.task("tasks/agent/one", solve="cp /app/prepared /app/done.txt")
    project.task("tasks/session/one", solve="cp /app/prepared /app/done.txt")
    project.task("tasks/rollout/one", solve="cp /app/prepared /app/done.txt")
    project.task("tasks/result/one", test=HALF)
    project.task("tasks/other/one")
    for link in ("agent", "session", "rollout"):
        project.write(
            {
                f"tasks/{link}/conftest.py": f"""
                import asyncio
                import pytest

                @pytest.fixture
                def bf_{link}(bf_{link}, bf_sandbox):
                    done = asyncio.run(bf_sandbox.exec("echo prepared >> /app/prepared"))
                    assert done.return_code == 0
                    return bf_{link}
                """
            }
        )
    project.write(
        {
            "tasks/result/conftest.py": """
            import pytest

            @pytest.fixture
            def bf_result(bf_result):
                return bf_result.model_copy(update={"threshold": 0.25})
            """,
            "tasks/other/conftest.py": """
            import dataclasses
            import pytest

            @pytest.fixture
            def bf_result(bf_run, bf_config):
                return bf_run(dataclasses.replace(bf_config, agent="nop"))
            """,
            "tasks/config/conftest.py": """
            import dataclasses
            import pytest

            @pytest.fixture
            def bf_config(bf_config):
                return dataclasses.replace(bf_config, threshold=0.5)
            """,
            "tasks/task/conftest.py": """
            import dataclasses
            import pytest

            @pytest.fixture
            def bf_task(bf_task):
                step = dataclasses.replace(bf_task.steps[0], instruction="Changed.")
                return dataclasses.replace(bf_task, steps=(step,))
            """,
            "tasks/sandbox/conftest.py": """
            import asyncio
            import pytest

            @pytest.fixture
            def bf_sandbox(bf_sandbox):
                done = asyncio.run(bf_sandbox.exec("echo prepared > /app/prepared"))
                assert done.return_code == 0
                return bf_sandbox
            """,
            "tasks/user/conftest.py": """
            import pytest
            from pathlib import Path

            @pytest.fixture(autouse=True)
            def around(request):
                Path("around").write_text(request.node.nodeid)
                yield
            """,
        }
    )
    run = project.run("tasks", "-v", "--bf-json=r.json")
    project.write({"prompts": "\n".join(path.read_text() for path in project.root.glob("jobs/*/*/prompts.json"))})
    run.outlines.append((project.root / "prompts").read_text())
    run.outlines.append((project.root / "r.json").read_text())
    run.outlines.append("around " + (project.root / "around").read_text())
    return run


@pytest.mark.parametrize(
    ("folder", "outcome"),
    [
        ("agent", "PASSED"),
        ("config", "PASSED"),
        ("other", "FAILED"),
        ("plain", "FAILED"),
        ("result", "PASSED"),
        ("rollout", "PASSED"),
        ("sandbox", "PASSED"),
        ("session", "PASSED"),
        ("task", "PASSED"),
        ("user", "PASSED"),
    ],
)
def test_a_folder_changes_the_rollouts_below_it(overridden: pytest.RunResult, folder: str, outcome: str) -> None:
    overridden.stdout.fnmatch_lines([f"tasks/{folder}/one/task.toml::oracle {outcome}*"])


def test_a_changed_task_is_what_runs(overridden: pytest.RunResult) -> None:
    assert any("Changed." in line for line in overridden.outlines)


def test_the_report_has_the_results_that_the_fixtures_gave(overridden: pytest.RunResult) -> None:
    (report,) = [json.loads(line) for line in overridden.outlines if line.startswith('{\n  "schema_version"')]
    results = {entry["id"].split("/")[1]: entry["result"] for entry in report["rollouts"]}
    assert len(results) == 10
    assert (results["result"]["threshold"], results["other"]["agent"]) == (0.25, "nop")


def test_a_fixture_of_the_users_is_used_for_rollouts(overridden: pytest.RunResult) -> None:
    assert "around tasks/user/one/task.toml::oracle" in overridden.outlines
