"""Hooks of a conftest, and an agent that a conftest brings along."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project, properties

FAKE_AGENT = """
from dataclasses import dataclass

from pytest_benchflow.agents import ModelAccess, AgentOutcome, PromptResult


@dataclass
class FakeSession:
    context: object
    closed: bool = False

    async def prompt(self, text, *, timeout_sec):
        self.context.emit({"type": "user_message", "text": text})
        done = await self.context.sandbox.exec(f"echo {self.model} > done.txt; cat /instruction.md > asked.txt")
        assert done.return_code == 0
        self.context.emit({"type": "tool_call", "command": "echo"})
        return PromptResult(AgentOutcome.COMPLETED, n_tool_calls=1)

    async def close(self):
        self.closed = True

    model = "none"


class FakeAgent:
    name = "fake"
    takes_model = True
    calls_model = False
    runs_as_task_user = True

    def skip_reason(self, task):
        return None

    def access(self, task, request):
        return ModelAccess(env=request.env)

    async def prepare_on_host(self, log_dir):
        return ()

    async def install(self, context):
        done = await context.sandbox.exec("echo installed > /tmp/installed", user=0)
        assert done.return_code == 0

    async def connect(self, context):
        return FakeSession(context)


def pytest_bf_register_agents(registry):
    registry.register(FakeAgent())
"""


@pytest.fixture(scope="module")
def hooked(new_project: Callable[..., Project]) -> tuple[Project, pytest.RunResult]:
    """Run two tasks by two workers, below a folder whose root conftest implements every hook and notes each call."""
    project = new_project()
    project.task("tasks/one")
    project.task("tasks/two", test="echo 0.5 > /logs/verifier/reward.txt")
    project.write(
        {
            "conftest.py": """
            import dataclasses, os
            from pathlib import Path

            NOTES = Path(__file__).parent / "notes"

            def note(*words):
                with NOTES.open("a") as file:
                    print(*words, file=file)

            def pytest_bf_modify_config(config, task):
                note("config", task.name)
                return dataclasses.replace(config, threshold=0.5) if task.name == "two" else None

            def pytest_bf_rollout_phase(rollout, phase):
                note("phase", rollout.task.name, phase)

            def pytest_bf_rollout_result(result):
                note("result", result.task_name, result.status)

            def pytest_bf_summary(report):
                note("summary", len(report.rollouts), "worker" if "PYTEST_XDIST_WORKER" in os.environ else "here")

            def pytest_runtest_setup(item):
                note("setup", item.nodeid)
            """
        }
    )
    return project, project.run("tasks", "-n", "2")


def notes(project: Project) -> list[str]:
    return (project.root / "notes").read_text().splitlines()


Hooked = tuple[Project, pytest.RunResult]


def test_the_hook_changes_the_configuration_of_one_rollout(hooked: Hooked) -> None:
    hooked[1].assert_outcomes(passed=2)
    configs = [json.loads((path / "config.json").read_text()) for path in hooked[0].rollout_dirs()]
    assert {config["task_name"]: config["threshold"] for config in configs} == {"one": 1.0, "two": 0.5}


def test_every_phase_is_announced_in_order(hooked: Hooked) -> None:
    phases = [line.split()[2] for line in notes(hooked[0]) if line.startswith("phase one ")]
    assert phases == ["setup", "start", "install_agent", "connect", "execute", "verify"]


def test_every_result_is_announced_once(hooked: Hooked) -> None:
    assert sorted(line for line in notes(hooked[0]) if line.startswith("result ")) == [
        "result one passed",
        "result two passed",
    ]


def test_the_summary_is_given_once_where_pytest_was_started(hooked: Hooked) -> None:
    assert [line for line in notes(hooked[0]) if line.startswith("summary ")] == ["summary 2 here"]


def test_pytests_own_hooks_of_a_conftest_are_called_for_rollouts(hooked: Hooked) -> None:
    assert sorted(line for line in notes(hooked[0]) if line.startswith("setup ")) == [
        "setup tasks/one/task.toml::oracle",
        "setup tasks/two/task.toml::oracle",
    ]


def test_a_hook_in_a_folder_is_for_the_tasks_below_it_only(project: Project) -> None:
    project.task("tasks/strict/one", test="echo 0.5 > /logs/verifier/reward.txt")
    project.task("tasks/mild/one", test="echo 0.5 > /logs/verifier/reward.txt")
    project.write(
        {
            "tasks/mild/conftest.py": """
            import dataclasses

            def pytest_bf_modify_config(config, task):
                return dataclasses.replace(config, threshold=0.4)
            """
        }
    )
    done = project.run("tasks", "-v")
    done.stdout.fnmatch_lines(
        ["tasks/mild/one/task.toml::oracle PASSED*", "tasks/strict/one/task.toml::oracle FAILED*"]
    )


def test_a_hook_changes_the_task(project: Project) -> None:
    project.task("tasks/one")
    project.write(
        {
            "conftest.py": """
            import dataclasses

            def pytest_bf_modify_task(task):
                hints = dataclasses.replace(task.run, trials=2, threshold=0.1)
                step = dataclasses.replace(task.steps[0], instruction="Something else.")
                return dataclasses.replace(task, run=hints, steps=(step,))
            """
        }
    )
    done = project.run("tasks", "-v")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["tasks/one/task.toml::oracle/1 PASSED*", "tasks/one/task.toml::oracle/2 PASSED*"])
    assert {json.loads((path / "prompts.json").read_text())[0] for path in project.rollout_dirs()} == {
        "Something else."
    }
    assert {json.loads((path / "config.json").read_text())["threshold"] for path in project.rollout_dirs()} == {0.1}


def test_a_hook_that_raises_is_an_error_of_that_task_only(project: Project) -> None:
    for name in ("one", "two", "four"):
        project.task(f"tasks/{name}")
    linked = project.task("tasks/three")
    (linked / "tests/secret").symlink_to("/etc/passwd")
    project.write(
        {
            "conftest.py": """
            def pytest_bf_modify_task(task):
                if task.name == "one":
                    raise ValueError("my own mistake")

            def pytest_bf_modify_config(config, task):
                if task.name == "four":
                    raise ValueError("another mistake")
            """
        }
    )
    done = project.run("tasks", "--continue-on-collection-errors")
    done.assert_outcomes(passed=1, errors=3)
    done.stdout.fnmatch_lines(
        [
            "*ERROR collecting tasks/one/task.toml*",
            "*ERROR collecting tasks/three/task.toml*",
            "tasks/three/tests/secret: is a link to /etc/passwd, outside the task; *",
            "ERROR tasks/one/task.toml - ValueError: my own mistake",
            "ERROR tasks/four/task.toml::oracle - ValueError: another mistake",
        ]
    )
    assert "TaskError" not in done.stdout.str()


@pytest.fixture(scope="module")
def with_agent(new_project: Callable[..., Project]) -> Project:
    """Make a project whose conftest registers an agent that takes models."""
    project = new_project()
    project.task("tasks/one")
    return project.write({"conftest.py": FAKE_AGENT})


def test_an_agent_of_the_conftest_runs_once_per_model(with_agent: Project) -> None:
    done = with_agent.run("-v", "--bf-agent=fake,nop", "--bf-model=m/one", "--bf-model=m two", "--bf-job-name=a")
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(
        [
            "tasks/one/task.toml::fake/m/one PASSED*",
            "tasks/one/task.toml::fake/m-two PASSED*",
            "tasks/one/task.toml::nop FAILED*",
        ]
    )
    configs = [json.loads((path / "config.json").read_text()) for path in with_agent.rollout_dirs("a")]
    assert sorted(str(config["model"]) for config in configs) == ["None", "m two", "m/one"]
    assert [line.split()[0] for line in done.outlines if line.startswith(("fake", "nop "))][:3] == [
        "fake/m/one",
        "fake/m",
        "nop",
    ]
    (result,) = (result for result in with_agent.results("a").values() if result["model"] == "m/one")
    assert result["n_tool_calls"] == 1
    lines = (with_agent.root / str(result["rollout_dir"]) / "trajectory/acp_trajectory.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [(event["seq"], event["type"]) for event in events] == [(1, "user_message"), (2, "tool_call")]
    assert events[0]["text"] == "Make done.txt.\n"


def test_models_meant_for_other_agents_are_left_to_them(with_agent: Project) -> None:
    options = ("--bf-agent=fake", "--bf-model=fake=own", "--bf-model=gemini=other", "--bf-model=odd=name")
    assert with_agent.ids("tasks", *options) == [
        "tasks/one/task.toml::fake/own",
        "tasks/one/task.toml::fake/odd-name",
    ]


def test_models_are_selected_by_mark(with_agent: Project) -> None:
    options = ("--bf-agent=fake", "--bf-model=a", "--bf-model=b", "--bf-trials=2")
    assert with_agent.ids(*options, "-m", "bf(model='b')") == [
        "tasks/one/task.toml::fake/b/1",
        "tasks/one/task.toml::fake/b/2",
    ]


@pytest.fixture(scope="module")
def bad_agents(new_project: Callable[..., Project]) -> tuple[Project, pytest.RunResult]:
    """Run agents that break at different times, in one run."""
    project = new_project()
    project.task("tasks/one", toml='artifacts = ["/app/work.txt"]\n')
    answer = "        return PromptResult(AgentOutcome.COMPLETED, n_tool_calls=1)"
    broken = {
        "installs": (
            '        done = await context.sandbox.exec("echo installed > /tmp/installed", user=0)',
            '        raise RuntimeError("no space left")',
        ),
        "works": (
            answer,
            "        await self.context.sandbox.exec("
            '"echo log > /logs/agent/own.log; echo work > /app/work.txt", user=0)\n'
            '        raise RuntimeError("no answer")',
        ),
        "ends": (answer, '        return PromptResult(AgentOutcome.CRASHED, "lost its head")'),
    }
    for name, (sound, changed) in broken.items():
        assert sound in FAKE_AGENT
        text = FAKE_AGENT.replace(sound, changed).replace('name = "fake"', f'name = "{name}"')
        project.write({f"{name}.py": text})
    plugins = ", ".join(f'"{name}"' for name in broken)
    project.write({"conftest.py": f"pytest_plugins = [{plugins}]\n"})
    return project, project.run("tasks", "--bf-agent=installs,works,ends", "--junitxml=r.xml")


def directory_of(project: Project, agent: str) -> Path:
    """Return the directory of the only rollout of an agent."""
    (name,) = (name for name, result in project.results().items() if result["agent"] == agent)
    (found,) = (path for path in project.rollout_dirs() if path.name == name)
    return found


def test_an_agent_that_breaks_in_install_is_an_error(bad_agents: tuple[Project, pytest.RunResult]) -> None:
    project, done = bad_agents
    done.assert_outcomes(errors=2, passed=1)
    done.stdout.fnmatch_lines(["*internal error in install_agent: RuntimeError: no space left;*see exception.txt*"])
    assert "Traceback" in (directory_of(project, "installs") / "exception.txt").read_text()
    assert "Traceback" not in done.stdout.str()


def test_what_an_agent_left_is_kept_although_its_rollout_broke(bad_agents: tuple[Project, pytest.RunResult]) -> None:
    directory = directory_of(bad_agents[0], "works")
    assert (directory / "agent/own.log").read_text() == "log\n"
    assert (directory / "artifacts/app/work.txt").read_text() == "work\n"


def test_an_agent_that_crashed_after_its_work_is_decided_by_the_reward(
    bad_agents: tuple[Project, pytest.RunResult],
) -> None:
    (case,) = (
        case
        for case in ET.parse(bad_agents[0].root / "r.xml").iter("testcase")
        if str(case.get("name")).endswith("/ends")
    )
    assert properties(case)["bf_agent_outcome"] == "crashed"
    assert properties(case)["bf_reward"] == "1.0"


def test_a_name_that_is_registered_twice_is_a_usage_error(project: Project) -> None:
    project.task("tasks/one")
    done = project.write({"conftest.py": FAKE_AGENT.replace('name = "fake"', 'name = "nop"')}).run()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: agent 'nop' is registered twice; give one of them another name"])


def test_a_sandbox_of_the_conftest_is_used_when_it_is_chosen(project: Project) -> None:
    project.task("tasks/one")
    project.write(
        {
            "conftest.py": """
            from pytest_benchflow.sandboxes.local import LocalBackend

            class Mine(LocalBackend):
                name = "mine"

            def pytest_bf_register_sandboxes(registry):
                registry.register("mine", Mine)
            """
        }
    )
    done = project.run("tasks", "--bf-sandbox=mine")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["benchflow: 1 rollout*sandbox mine (chosen)*"])
    assert [result["sandbox"] for result in project.results().values()] == ["mine"]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one-process", "two-workers"])
def test_a_sandbox_that_cannot_start_is_one_error_and_not_one_per_item(
    project: Project, workers: tuple[str, ...]
) -> None:
    project.task("tasks/one")
    project.task("tasks/two")
    project.write(
        {
            "conftest.py": """
            from pytest_benchflow.core.errors import SandboxError
            from pytest_benchflow.sandboxes.local import LocalBackend

            class Mine(LocalBackend):
                name = "mine"

                async def preflight(self):
                    raise SandboxError("no daemon answers", advice="start it")

            def pytest_bf_register_sandboxes(registry):
                registry.register("mine", Mine)
            """
        }
    )
    done = project.run("tasks", "--bf-sandbox=mine", *workers)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    text = done.stdout.str() + done.stderr.str()
    assert text.count("no daemon answers; start it") == 1
    assert not project.rollout_dirs()


def test_hooks_and_fixtures_that_go_wrong_are_named(project: Project) -> None:
    for name in ("task", "config", "phase", "fixture/one", "result/one", "sound"):
        project.task(f"tasks/{name}")
    project.write(
        {
            "conftest.py": """
            def pytest_bf_modify_task(task):
                return {} if task.name == "task" else None

            def pytest_bf_modify_config(config, task):
                return {} if task.name == "config" else None

            def pytest_bf_rollout_phase(rollout, phase):
                assert rollout.task.name != "phase", "no such phase"

            def pytest_bf_summary(report):
                raise ConnectionError("no dashboard")
            """,
            "tasks/fixture/conftest.py": "import pytest\n@pytest.fixture\ndef bf_config(bf_config): pass\n",
            "tasks/result/conftest.py": "import pytest\n@pytest.fixture\ndef bf_result(): return 1.0\n",
        }
    )
    done = project.run("tasks", "--continue-on-collection-errors")
    done.assert_outcomes(passed=1, failed=1, errors=4)
    for line in (
        "pytest_bf_modify_task returned dict; give a Task",
        "config error: pytest_bf_modify_config returned dict; give a RolloutConfig",
        f"*pytest_bf_rollout_phase raised AssertionError: no such phase ({project.root}/conftest.py:9)*",
        "config error: the configuration is NoneType; give a RolloutConfig",
        "config error: bf_result is float; give a RolloutResult",
        f"pytest_bf_summary raised ConnectionError: no dashboard ({project.root}/conftest.py:12)",
    ):
        done.stdout.fnmatch_lines([line])
    assert "pytest_benchflow/" not in done.stdout.str()
    assert project.run("tasks/sound", "-p", "no:cacheprovider").ret == pytest.ExitCode.INTERNAL_ERROR
