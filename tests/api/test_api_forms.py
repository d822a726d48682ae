"""Every way in which the library is called, as its users write it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_agent import FakeAgent
from project import INI, NO_DAEMON, Project, write_task

import pytest_benchflow
from pytest_benchflow import (
    BaseUser,
    Evaluation,
    EvaluationConfig,
    EvaluationResult,
    Job,
    JobConfig,
    JobResult,
    RetryConfig,
    RewardEvent,
    Role,
    Rollout,
    RolloutConfig,
    RolloutResult,
    RoundResult,
    Rubric,
    RunResult,
    Scene,
    TestRewardFunc,
    Trial,
    TrialConfig,
    Turn,
    VerifyResult,
    collect_metrics,
    compile_scenes_to_steps,
    rollout_config_from_dict,
    rollout_config_from_yaml,
    to_inspect_task,
    to_ors_reward,
    trial_config_from_dict,
    trial_config_from_yaml,
)
from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.api.environment import Environment
from pytest_benchflow.api.run import Agent, Runtime, RuntimeConfig, run
from pytest_benchflow.api.sdk import SDK
from pytest_benchflow.core import errors
from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.rollout import make_config

DO_IT = "$ echo done > /app/done.txt"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("DOCKER_HOST", NO_DAEMON)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task that an agent solves by doing what it is told."""
    dockerfile = "FROM debian:bookworm-slim\nWORKDIR /app\nRUN chmod 777 /app\n"
    return write_task(tmp_path / "tasks/hello", instruction=DO_IT, dockerfile=dockerfile)


@pytest.fixture
def coder(monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    """An agent that every registry knows as an installed package's."""
    agent, other = FakeAgent("coder-bot"), FakeAgent("other-bot")

    def load(registry: AgentRegistry) -> None:
        for each in (agent, other):
            registry.register(each)

    monkeypatch.setattr(AgentRegistry, "load_entry_points", load)
    return agent


def test_names_of_older_releases_are_the_same_objects() -> None:
    assert (Trial, TrialConfig, RunResult) == (Rollout, RolloutConfig, RolloutResult)
    assert (Job, JobConfig, JobResult) == (Evaluation, EvaluationConfig, EvaluationResult)
    assert trial_config_from_yaml is rollout_config_from_yaml
    assert trial_config_from_dict is rollout_config_from_dict


def test_scenes_and_rewards_in_the_shapes_of_other_frameworks() -> None:
    rubric = Rubric(reward_funcs=[TestRewardFunc()], weights=[1.0])
    scene = Scene("pair", [Role("coder", "oracle")], [Turn("coder"), Turn("coder", "Again.")])
    dataset = [{"input": "", "role": "coder"}, {"input": "Again.", "role": "coder"}]
    assert to_inspect_task(scene) == {"name": "pair", "dataset": dataset}
    scorer = {"type": "benchflow_rubric", "reward_funcs": 1, "weights": [1.0]}
    assert to_inspect_task(scene, rubric=rubric) == {"name": "pair", "dataset": dataset, "scorer": scorer}
    event = RewardEvent("dense", 0.5, "criterion:a", 0, "action", "step", ts="now")
    record = to_ors_reward(VerifyResult(0.5, {"a": 0.5}, [event]))
    assert (record["reward"], record["is_valid"]) == (0.5, True)
    told = {"type": "dense", "reward": 0.5, "source": "criterion:a", "step": 0, "space": "action", "timestamp": "now"}
    assert record["metadata"] == {
        "items": {"a": 0.5},
        "events": [{**told, "granularity": "step"}],
        "error": None,
        "space": "output",
        "granularity": "terminal",
    }
    for result in (VerifyResult(None, error="a: boom"), VerifyResult(float("nan")), VerifyResult(2.0)):
        record = to_ors_reward(result)
        assert (record["reward"], record["is_valid"]) == (None, False)
        assert record["metadata"]["error"]


@pytest.mark.parametrize("name", pytest_benchflow.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pytest_benchflow, name) is not None
    assert name in dir(pytest_benchflow)


def test_every_error_that_a_caller_can_catch_is_public() -> None:
    named = {name: value for name, value in vars(errors).items() if getattr(value, "__module__", "") == errors.__name__}
    raised = {name for name, value in named.items() if isinstance(value, type) and issubclass(value, Exception)}
    # The first two are told apart by nobody, the last one never leaves a job.
    assert raised - {"BadValue", "BadType", "HeldBack"} <= {*pytest_benchflow.__all__}
    assert issubclass(pytest_benchflow.HandshakeError, pytest_benchflow.ACPError)
    assert issubclass(pytest_benchflow.AgentError, pytest_benchflow.ACPError)
    assert pytest_benchflow.AgentInstallError is pytest_benchflow.InstallError
    assert pytest_benchflow.SandboxExecResult is pytest_benchflow.ExecResult


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Trail'"):
        pytest_benchflow.Trail  # noqa: B018


SCRIPT = """
import asyncio, json
import pytest_benchflow as bf

async def main():
    by_name = await bf.run("oracle", task_path="tasks/hello")
    by_config = await bf.run(bf.TrialConfig(task_path="tasks/hello", agent="oracle", environment="local"))
    agent = bf.Agent("oracle")
    env = bf.Environment.from_task("tasks/hello", backend="local")
    by_agent = await bf.run(agent, env)
    print(json.dumps([by_name.rewards, by_config.reward, by_agent.passed, by_agent.n_tool_calls]))

asyncio.run(main())
"""


def test_run_has_three_forms(task: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"reward": 1.0}, 1.0, True, 0]


async def test_an_agent_by_name_takes_a_sandbox_and_a_configuration(task: Path, coder: FakeAgent) -> None:
    hooked: list[str] = []

    async def hook(env: object) -> None:
        hooked.append(type(env).__name__)

    config = RuntimeConfig(jobs_dir="out", rollout_name="mine", pre_agent_hooks=[hook], timeout=60)
    result = await run("coder-bot", "local", config, task_path="tasks/hello", model="flash")
    assert (result.reward, result.sandbox, result.rollout_name) == (1.0, "local", "mine")
    assert hooked
    assert coder.models == ["flash"]
    assert result.rollout_dir is not None
    assert result.rollout_dir.is_relative_to("out")


async def test_an_agent_runs_in_an_environment(task: Path, coder: FakeAgent) -> None:
    agent = Agent("coder-bot", model="flash", env={"A": "1"})
    result = await Runtime(Environment.from_task(task, sandbox="local"), agent).execute()
    assert (result.reward, result.passed, result.verified, result.error) == (1.0, True, True, None)
    assert (result.task_name, result.n_tool_calls) == ("hello", 1)
    assert [event["type"] for event in result.trajectory][:2] == ["user_message", "tool_call"]
    assert coder.sessions[0].context.request.env == {"A": "1"}
    assert agent.config is coder


def test_an_agent_knows_its_command() -> None:
    assert Agent("gemini").config.name == "gemini"
    assert "gemini" in Agent("gemini").launch_cmd
    with pytest.raises(UsageError, match="agent 'oracle' has no manifest"):
        Agent("oracle").launch_cmd  # noqa: B018


async def test_a_started_environment_is_used_and_left_running(task: Path, coder: FakeAgent) -> None:
    async with Environment.from_task(task, backend="local") as env:
        await env.exec("echo before > /app/before.txt")
        result = await run(Agent("coder-bot"), env)
        assert result.reward == 1.0
        assert (await env.exec("cat /app/before.txt /app/done.txt")).stdout == "before\ndone\n"
        assert env.is_started
    with pytest.raises(UsageError, match=r"the environment is not started; await start\(\) first"):
        await env.exec("true")


async def test_an_environment_is_used_by_hand(task: Path, tmp_path: Path) -> None:
    env = Environment.from_task(task, "local")
    assert env.task.name == "hello"
    await env.start()
    inner = env.inner
    await env.start()
    assert env.inner is inner
    try:
        (tmp_path / "up").mkdir()
        (tmp_path / "up/file").write_text("x")
        await env.upload_file(tmp_path / "up/file", "/app/one")
        await env.upload_dir(tmp_path / "up", "/app/two")
        assert (await env.exec_in_service("main", "cat one two/file")).stdout == "xx"
        await env.download_file("/app/one", tmp_path / "one")
        await env.download_dir("/app/two", tmp_path / "two")
        assert (tmp_path / "one").read_text() + (tmp_path / "two/file").read_text() == "xx"
        with pytest.raises(UsageError.__base__, match="has no service 'db'; use main"):
            await env.exec_in_service("db", "true")
    finally:
        await env.stop()
        await env.stop()


@pytest.mark.parametrize(
    ("args", "named", "kind", "message"),
    [
        ((Agent("oracle"),), {}, TypeError, r"run(Agent) needs an Environment; pass Environment.from_task(...)"),
        ((Agent("oracle"), "docker"), {}, TypeError, "run(Agent) needs an Environment"),
        (("oracle",), {}, ValueError, "run('oracle') names no task; pass task_path="),
        ((7,), {}, TypeError, "run() cannot run int; pass a RolloutConfig, an Agent, or the name of an agent"),
        ((RolloutConfig(task_path=Path("x")), "local"), {}, TypeError, "run(RolloutConfig) takes nothing else; put it"),
        (("oracle", "local"), {"task_path": "x", "sandbox": "docker"}, TypeError, "run() got env and sandbox, which"),
    ],
)
async def test_run_says_what_it_takes(
    args: tuple[object, ...], named: dict[str, str], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        await run(*args, **named)  # type: ignore[call-overload]
    assert isinstance(caught.value, UsageError)
    assert str(caught.value).startswith(message)


async def test_an_agents_name_and_an_environment_do_not_go_together(task: Path) -> None:
    with pytest.raises(TypeError, match="run\\(\\) got an agent's name and an Environment; pass Agent\\(name\\)"):
        await run("oracle", Environment.from_task(task), task_path=task)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="takes no model; agent and environment bring"):
        await run(Agent("oracle"), Environment.from_task(task), model="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="got sandbox and backend, which are the same"):
        Environment.from_task(task, "local", backend="docker")


def test_a_snapshot_policy_is_not_ignored() -> None:
    with pytest.raises(ValueError, match="snapshot_policy is 'each-turn'; no other than 'none' is supported"):
        RuntimeConfig(snapshot_policy="each-turn")


async def test_the_sdk_takes_prompts_where_none_is_the_tasks_own(task: Path, coder: FakeAgent) -> None:
    result = await SDK().run(
        task_path=str(task),
        agent="coder-bot",
        prompts=[None, "$ echo checked >> /app/done.txt"],
        model="flash",
        environment="local",
        trial_name="mine",
        jobs_dir="out",
        sandbox_user=None,
    )
    assert result.success
    assert (result.rewards, result.n_tool_calls, result.n_prompts) == ({"reward": 1.0}, 2, 2)
    assert (result.trial_name, result.agent) == ("mine", "coder-bot")
    assert coder.heard == [[DO_IT, "$ echo checked >> /app/done.txt"]]
    with pytest.raises(TypeError, match="run\\(\\) got rollout_name and trial_name, which are the same; keep"):
        await SDK().run(task, rollout_name="a", trial_name="b")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("agent", "no-skill", None)),
        ({"sandbox_user": None}, (None, "no-skill", None)),
        ({"skills_dir": "skills"}, ("agent", "with-skill", Path("skills"))),
        ({"timeout": None, "agent_env": None}, ("agent", "no-skill", None)),
    ],
)
def test_what_is_left_out_is_as_usual(given: dict[str, object], expected: tuple[object, ...]) -> None:
    config = make_config({"task_path": "x", **given})
    assert (config.sandbox_user, config.skill_mode, config.skills_dir) == expected
    assert (config.timeout, config.agent_env) == (None, {})


async def test_scenes_are_written_as_the_documentation_does(task: Path, coder: FakeAgent) -> None:
    config = TrialConfig(
        task_path=task,
        scenes=[
            Scene(
                name="prep",
                roles=[Role("gen", "coder-bot", "flash")],
                turns=[Turn("gen", "$ echo skill > /app/generated-skill.md")],
            ),
            Scene(name="solve", roles=[Role("solver", "coder-bot", "pro")], turns=[Turn("solver")]),
        ],
        environment="local",
    )
    assert [step.id for step in compile_scenes_to_steps(config.scenes, "Do it.")] == [
        "scene-0-turn-0-gen",
        "scene-1-turn-0-solver",
    ]
    result = await run(config)
    assert result.reward == 1.0
    assert coder.heard == [["$ echo skill > /app/generated-skill.md"], [DO_IT]]
    assert coder.models == ["flash", "pro"]


async def test_a_user_talks_in_rounds(task: Path, coder: FakeAgent) -> None:
    seen: list[RoundResult | None] = []

    class Careful(BaseUser):
        async def setup(self, instruction: str, solution: str | None = None) -> None:
            self.solution = solution

        async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:
            seen.append(round_result)
            if round_result and round_result.rewards == {"reward": 1.0}:
                return None
            return "$ true" if round == 0 else instruction

    user = Careful()
    config = RolloutConfig(task_path=task, agent="coder-bot", sandbox="local", user=user, oracle_access=True)
    result = await run(config)
    assert result.reward == 1.0
    assert user.solution is not None
    assert "echo done" in user.solution
    assert coder.heard == [["$ true"], [DO_IT]]
    assert [None if one is None else one.rewards for one in seen] == [None, {"reward": 0.0}, {"reward": 1.0}]
    assert seen[1] is not None
    assert seen[1].n_tool_calls == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"user": BaseUser(), "loop_strategy": "self-review"}, "user and loop_strategy are both given; choose one"),
        ({"oracle_access": True}, "oracle_access is given without a user; pass user="),
        ({"prompts": ["x"], "scenes": [Scene.single(agent="a")]}, "prompts and scenes are both given; put the prompts"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        RolloutConfig(task_path=Path("x"), **given)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


async def test_a_file_gives_a_configuration(task: Path, coder: FakeAgent) -> None:
    Path("trial.yaml").write_text(
        """
task_dir: tasks/hello
environment: local
scenes:
  - name: solve
    roles: [{name: solver, agent: coder-bot, model: flash}]
    turns: [{role: solver}, {role: solver, prompt: "$ true"}]
"""
    )
    result = await run(trial_config_from_yaml("trial.yaml"))
    assert (result.reward, result.scene) == (1.0, "trial")
    assert coder.heard == [[DO_IT, "$ true"]]
    by_data = rollout_config_from_dict({"agent": "coder-bot", "prompts": [None, "x"], "environment": "local"}, task)
    assert (by_data.prompts, by_data.sandbox, by_data.task_path) == ((None, "x"), "local", task)


async def test_a_job_runs_a_folder(task: Path, coder: FakeAgent) -> None:
    seen: list[str] = []
    job = Job(
        tasks_dir="tasks",
        jobs_dir="out",
        config=JobConfig(
            agent="coder-bot",
            model="flash",
            environment="local",
            concurrency=2,
            retry=RetryConfig(max_retries=2, wait_multiplier=2.0, min_wait_sec=1.0, max_wait_sec=30.0),
        ),
        on_result=lambda name, result: seen.append(name),
    )
    result = await job.run()
    assert (result.passed, result.total, result.score) == (1, 1, 1.0)
    assert seen == ["hello"]
    metrics = collect_metrics("out", benchmark="demo", agent="coder-bot", model="flash")
    assert metrics.summary()["score"] == "100.0%"


async def test_a_job_file_is_a_job(task: Path, coder: FakeAgent) -> None:
    Path("job.yaml").write_text("tasks_dir: tasks\nagent: coder-bot\nenvironment: local\nmax_retries: 0\n")
    result = await Evaluation.from_yaml("job.yaml").run()
    assert f"{result.passed}/{result.total} ({result.score:.1%})" == "1/1 (100.0%)"


async def test_a_rollout_is_driven_phase_by_phase(task: Path, coder: FakeAgent) -> None:
    config = TrialConfig(
        task_path=task,
        scenes=[Scene.single(agent="coder-bot", model="flash")],
        environment="local",
        trial_name="by-hand",
    )
    trial = await Trial.create(config)
    try:
        await trial.setup()
        await trial.start()
        await trial.install_agent()
        await trial.connect()
        trajectory, n_tool_calls = await trial.execute(prompts=["$ true", "$ false"])
        assert n_tool_calls == 2
        assert trajectory[0]["type"] == "user_message"
        await trial.execute()
        await trial.disconnect()
        rewards, _, error = await trial.soft_verify()
        assert (rewards, error) == ({"reward": 1.0}, None)
        assert (await trial.verify())["reward"] == 1.0
        assert trial.env is trial.sandbox
    finally:
        await trial.cleanup()
        await trial.cleanup()
    assert trial.result.reward == 1.0
    directory = trial.result.rollout_dir
    assert directory is not None
    assert (directory.parents[1], directory.name) == (Path("jobs"), "by-hand")
    timing = json.loads((directory / "timing.json").read_text())
    assert timing["environment_setup"] == pytest.approx(timing["setup"] + timing["start"])
    assert timing["agent_setup"] == pytest.approx(timing["install_agent"] + timing["connect"])
    assert (timing["agent_execution"], timing["total"] > 0) == (timing["execute"], True)
    assert timing["verifier"] == pytest.approx(timing["verify"] + timing["soft_verify"])
    assert coder.heard == [["$ true", "$ false", DO_IT]]


async def test_roles_are_connected_by_hand(task: Path, coder: FakeAgent) -> None:
    first, second = Role("coder", "coder-bot", "flash"), Role("reviewer", "coder-bot", "pro")
    rollout = await Rollout.create(RolloutConfig(task_path=task, scenes=[Scene("s", [first, second])], sandbox="local"))
    try:
        await rollout.setup()
        await rollout.start()
        await rollout.install_agent()
        await rollout.connect_as(first)
        await rollout.execute(["$ true"])
        await rollout.connect_as(second)
        await rollout.execute(["$ false"])
    finally:
        await rollout.cleanup()
    assert coder.heard == [["$ true"], ["$ false"]]
    assert coder.models == ["flash", "pro"]


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        (["start"], "the rollout has no sandbox yet; await setup() first"),
        (["setup", "install_agent"], "the sandbox is not up yet; await start() first"),
        (["setup", "start", "connect"], "the agent is not installed yet; await install_agent() first"),
        (["setup", "start", "execute"], "the agent is not installed yet; await install_agent() first"),
        (["setup", "start", "verify"], "the agent is not installed yet; await install_agent() first"),
        (["setup", "setup"], "the rollout is set up already; make a new one for another run"),
        (["run", "setup"], "the rollout is set up already; make a new one for another run"),
        (["run", "run"], "the rollout has run already; make a new one for another run"),
        (["run", "execute"], "the rollout has ended; make a new one"),
        (["cleanup", "setup"], "the rollout has ended; make a new one"),
    ],
)
async def test_phases_out_of_order_say_what_to_call_first(
    task: Path, coder: FakeAgent, phases: list[str], message: str
) -> None:
    rollout = await Rollout.create(RolloutConfig(task_path=task, agent="coder-bot", sandbox="local"))
    try:
        for phase in phases[:-1]:
            await getattr(rollout, phase)()
        with pytest.raises(UsageError) as caught:
            await getattr(rollout, phases[-1])()
        assert str(caught.value) == message
    finally:
        await rollout.cleanup()


def test_run_is_a_function_beside_items_too(project: Project) -> None:
    project.task("tasks/hello")
    code = """
    import pytest_benchflow as bf

    async def test_run():
        assert (await bf.run("oracle", task_path="tasks/hello", sandbox="local")).reward == 1.0
    """
    project.write({"test_run.py": code, "pytest.ini": INI + "asyncio_mode = auto\n"})
    project.run("tasks", "test_run.py").assert_outcomes(passed=2)
