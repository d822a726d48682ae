"""Evaluations of whole folders, in real sandboxes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from project import write_task

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.core.errors import SandboxError, UsageError
from pytest_benchflow.jobs import Evaluation, EvaluationConfig, ResumeMismatch, RetryConfig
from pytest_benchflow.rollout import RolloutResult
from pytest_benchflow.sandboxes import Backend, SandboxRegistry, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend

CONFIG = EvaluationConfig(agent="oracle", sandbox="local")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder with a task that passes, one that fails, one without reward and a broken one."""
    folder = tmp_path / "tasks"
    write_task(folder / "good")
    write_task(folder / "deeper/bad", test="echo 0.5 > /logs/verifier/reward.txt")
    write_task(folder / "mute", test="true")
    write_task(folder / "broken", toml="[agent]\ntimeout_sec = 'soon'\n")
    return folder


def evaluation(tasks: Path, config: EvaluationConfig = CONFIG, **more: object) -> Evaluation:
    return Evaluation(tasks, tasks.parent / "jobs", config, **more)  # type: ignore[arg-type]


async def test_every_task_is_run_and_counted_once(tasks: Path) -> None:
    seen: list[str] = []
    result = await evaluation(tasks, on_result=lambda name, _: seen.append(name)).run()
    assert {name: found.status for name, found in result.results.items()} == {
        "broken": "error",
        "deeper/bad": "failed",
        "good": "passed",
        "mute": "error",
    }
    counts = (result.passed, result.failed, result.errored, result.verifier_errored, result.skipped)
    assert counts == (1, 1, 1, 1, 0)
    assert sum(counts) == result.total == 4
    assert (result.score, result.score_excl_errors, result.mean_reward) == (0.25, 0.5, 0.75)
    assert sorted(seen) == sorted(result.results)
    failures = {failure.task_name: failure for failure in result.task_failures}
    assert set(failures) == {"broken", "deeper/bad", "mute"}
    assert "timeout_sec" in (failures["broken"].error or "")
    assert "no reward" in (failures["mute"].verifier_error or "")


async def test_a_summary_is_left_beside_the_results(tasks: Path) -> None:
    result = await evaluation(tasks, job_name="mine").run()
    summary = json.loads((tasks.parent / "jobs/mine/summary.json").read_text())
    assert summary["job_name"] == "mine"
    assert (summary["total"], summary["passed"], summary["score"]) == (4, 1, "25.0%")
    assert result.job_dir == tasks.parent / "jobs/mine"
    assert not (result.job_dir / ".evaluation.lock").exists()


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (["good"], [], ["good"]),
        (["deeper/*"], [], ["deeper/bad"]),
        (["bad"], [], ["deeper/bad"]),
        ([], ["m*", "bro*", "bad"], ["good"]),
        (["goo"], ["good"], None),
    ],
)
async def test_tasks_are_chosen_by_name(
    tasks: Path, include: list[str], exclude: list[str], names: list[str] | None
) -> None:
    chosen = evaluation(tasks, replace(CONFIG, include_tasks=include, exclude_tasks=exclude))
    if names is None:
        with pytest.raises(ValueError, match="none of 4 tasks is left; change include_tasks"):
            await chosen.run()
        assert not (tasks.parent / "jobs").exists()
    else:
        assert [*(await chosen.run()).results] == names


async def test_trials_are_told_apart(tasks: Path) -> None:
    result = await evaluation(tasks / "good", replace(CONFIG, trials=2)).run()
    assert [*result.results] == ["good/1", "good/2"]
    assert [found.trial for found in result.results.values()] == [1, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: Evaluation(path / "none", path), "there is no task in .*none; name a task"),
        (
            lambda path: evaluation(path / "tasks", replace(CONFIG, agent="orcle")),
            "(?i)unknown agent: .orcle.. did you mean",
        ),
    ],
)
async def test_what_cannot_run_leaves_nothing(tasks: Path, make: Callable[[Path], Evaluation], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        await make(tasks.parent).run()
    assert [path.name for path in tasks.parent.iterdir()] == ["tasks"]


class Flaky(LocalBackend):
    """A local backend whose first sandboxes do not start."""

    failures = 0

    def create(self, spec: SandboxSpec) -> object:  # type: ignore[override]
        sandbox = super().create(spec)
        if Flaky.failures > 0:
            Flaky.failures -= 1

            async def fail() -> None:
                raise SandboxError("no space left")

            sandbox.start = fail  # type: ignore[method-assign]
        return sandbox


def flaky(failures: int) -> SandboxRegistry:
    Flaky.failures = failures
    registry = SandboxRegistry()

    def make() -> Backend:
        return Flaky()

    registry.register("flaky", make)
    return registry


@pytest.mark.parametrize(("failures", "status", "attempts"), [(1, "passed", 2), (2, "passed", 3), (3, "error", 3)])
async def test_what_the_harness_could_not_do_is_tried_again(
    tasks: Path, failures: int, status: str, attempts: int
) -> None:
    config = replace(CONFIG, sandbox="flaky", retry=RetryConfig(min_wait_sec=0))
    result = await evaluation(tasks / "good", config, sandboxes=flaky(failures)).run()
    assert result.results["good"].status == status
    assert len([*result.job_dir.glob("*/result.json")]) == attempts


async def test_what_an_agent_did_is_never_tried_again(tasks: Path) -> None:
    result = await evaluation(tasks / "deeper", replace(CONFIG, retry=RetryConfig(min_wait_sec=0))).run()
    assert len([*result.job_dir.glob("*/result.json")]) == 1


async def test_a_named_job_is_continued(tasks: Path) -> None:
    first = await evaluation(tasks, job_name="mine").run()
    write_task(tasks / "mute")
    again: list[str] = []
    second = await evaluation(tasks, job_name="mine", on_result=lambda name, _: again.append(name)).run()
    assert sorted(again) == ["broken", "mute"]
    assert second.results["good"] == first.results["good"]
    assert (second.passed, second.total) == (2, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tasks: replace(CONFIG, agent="nop"), "has results of oracle; choose another job name"),
        (
            lambda tasks: (tasks / "good/instruction.md").write_text("Something else.") and CONFIG,
            "has a result of another version of the task .*good; choose another job name",
        ),
    ],
)
async def test_results_of_something_else_are_not_blended(
    tasks: Path, change: Callable[[Path], EvaluationConfig], message: str
) -> None:
    await evaluation(tasks / "good", job_name="mine").run()
    config = change(tasks)
    with pytest.raises(ResumeMismatch, match=message):
        await evaluation(tasks / "good", config, job_name="mine").run()


async def test_a_job_without_a_name_is_always_a_new_one(tasks: Path) -> None:
    jobs = {(await evaluation(tasks / "good").run()).job_name for _ in range(2)}
    assert len(jobs) == 2


async def test_two_runs_do_not_share_a_job(tasks: Path) -> None:
    async def run_the_same(name: str, result: RolloutResult) -> None:
        with pytest.raises(UsageError, match="is in use by another run; wait for it"):
            await evaluation(tasks / "good", job_name="mine").run()

    result = await evaluation(tasks / "good", job_name="mine", on_result=run_the_same).run()
    assert result.passed == 1


async def test_a_folder_that_is_no_job_is_not_touched(tasks: Path) -> None:
    (tasks / "jobs/mine").mkdir(parents=True)
    (tasks / "jobs/mine/thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="mine exists already"):
        await evaluation(tasks / "good", job_name="mine").run()


async def test_an_error_of_the_callback_is_the_callers(tasks: Path) -> None:
    def fail(name: str, result: RolloutResult) -> None:
        raise ZeroDivisionError(name)

    with pytest.raises(ZeroDivisionError, match="good"):
        await evaluation(tasks / "good", on_result=fail).run()


async def test_a_job_file_is_run(tasks: Path) -> None:
    file = tasks.parent / "job.yaml"
    file.write_text(
        "agent: oracle\nsandbox: local\ntasks: tasks\ninclude: good\ntrials: 2\njobs_dir: out\njob_name: mine"
    )
    result = await Evaluation.from_yaml(file).run()
    assert [*result.results] == ["good/1", "good/2"]
    assert result.job_dir == tasks.parent / "out/mine"
    assert (result.passed, result.config.concurrency, result.config.agent) == (2, 4, "oracle")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: tasks", r"job\.yaml does not name an agent; add agent:"),
        ("agent: oracle", r"job\.yaml names no tasks; add tasks: or source:"),
        (
            "agents: [{name: a}, {name: b}]\ndatasets: [{path: tasks}]",
            r"job\.yaml names the agents a, b; keep one of them, or run the file with pytest --bf-config",
        ),
    ],
)
def test_a_job_file_that_says_too_little_or_too_much(tasks: Path, text: str, message: str) -> None:
    file = tasks.parent / "job.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        Evaluation.from_yaml(file)


def test_older_words_are_understood() -> None:
    assert EvaluationConfig(environment="docker").sandbox == "docker"
    with pytest.raises(ValueError, match="trials is 0; give a number from 1 up"):
        EvaluationConfig(trials=0)


async def test_agents_of_the_callers_own_are_used(tasks: Path) -> None:
    registry = AgentRegistry()
    result = await evaluation(tasks / "good", replace(CONFIG, agent="nop"), agents=registry).run()
    assert result.results["good"].reward == 0.0


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Six tasks, of which four pass."""
    for number in range(6):
        write_task(tmp_path / f"tasks/t{number}", solve="true" if number > 3 else "echo done > done.txt")
    return tmp_path / "tasks"


async def test_gates_stop_an_evaluation_that_is_decided(many: Path) -> None:
    config = replace(CONFIG, concurrency=1, gates=["pass_rate >= 0.3"], stop_when_decided=True)
    result = await evaluation(many, config).run()
    assert [outcome.status for outcome in result.outcomes] == ["passed", "passed", *["skipped"] * 4]
    assert {found.held_back for found in result.results.values()} == {None, "decided"}


async def test_a_confidence_shuffles_an_evaluation(many: Path) -> None:
    config = replace(CONFIG, trials=5, gates=["pass_rate >= 0.2"], confidence=0.9)
    result = await evaluation(many, config).run()
    (verdict,) = result.early_verdicts.values()
    assert verdict.holds
    assert [*result.results] != sorted(result.results)
    assert any(found.held_back == "decided" for found in result.results.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gates": ["pas_rate > 0"]}, "did you mean pass_rate?"),
        ({"stop_when_decided": True}, "there is no gate to decide"),
        ({"confidence": 95, "gates": ["pass_rate > 0"]}, "confidence is 95"),
        ({"gates": ["regression <= 0"]}, "needs a baseline"),
    ],
)
def test_gates_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", "[?]")):
        EvaluationConfig(**settings)  # type: ignore[arg-type]


async def test_a_budget_of_an_evaluation_needs_prices(many: Path) -> None:
    with pytest.raises(UsageError, match="max_cost: the price of gemini with no-such-model is not known"):
        await evaluation(many, replace(CONFIG, agent="gemini", model="no-such-model", max_cost=1.0)).run()
