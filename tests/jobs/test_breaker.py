"""The circuit breaker: what it takes to stop an agent or a sandbox, and what it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from project import Project
from results import result

from pytest_benchflow.core.errors import Category
from pytest_benchflow.jobs import CircuitBreaker, JobEvent
from pytest_benchflow.rollout import ErrorInfo, RolloutConfig


def config(task: str = "new", **more: object) -> RolloutConfig:
    fields: dict[str, object] = {"task_path": Path(f"/tasks/{task}"), "agent": "gemini", "model": "flash"}
    return RolloutConfig(**{**fields, "sandbox": "local", "key": f"{task}/{more}", **more})


def run(breaker: CircuitBreaker, task: str, ending: Category | float, message: str = "broke", **more: object) -> None:
    """Let a rollout start and end: with a reward, or with an error."""
    given = config(task, **more)
    breaker.learn(JobEvent.of_config("start", given, task, 1))
    error = ErrorInfo(category=ending, phase="start", message=message) if isinstance(ending, Category) else None
    reward = None if isinstance(ending, Category) else ending
    scored = result(
        task,
        reward,
        error=error,
        key=given.key,
        agent=given.agent,
        model=given.model,
        scene=given.scene,
        sandbox=given.sandbox,
    )
    breaker.learn(JobEvent.of_result("end", scored, attempt=1))


def test_an_agent_that_dies_of_one_cause_on_several_tasks_is_stopped_and_others_are_not() -> None:
    breaker = CircuitBreaker(3)
    for task in ("a", "b", "c"):
        assert breaker.refusal(config()) is None
        run(breaker, task, Category.HANDSHAKE, f"/x/{task}__0123abcd exited with status 3 after 1{len(task)} s")
    error = breaker.refusal(config())
    assert error is not None
    assert error.category is Category.HANDSHAKE
    assert not error.retryable
    assert str(error).startswith(
        "not started: the first rollouts of 3 tasks with agent gemini/flash all died of the same handshake error in "
        "start: /x/c__0123abcd exited with status 3"
    )
    assert "--bf-resume" in str(error)
    for other in ({"agent": "codex"}, {"model": "pro"}, {"scene": "review"}):
        assert breaker.refusal(config(**other)) is None


@pytest.mark.parametrize("category", [Category.JUDGE, Category.INTERNAL, Category.PROVIDER])
def test_what_is_paid_for_nothing_is_stopped(category: Category) -> None:
    breaker = CircuitBreaker(2)
    for task in ("a", "b"):
        run(breaker, task, category)
    assert breaker.refusal(config()) is not None
    assert breaker.refusal(config(agent="codex")) is None


def test_a_rate_limit_that_ends_many_at_once_is_one_death() -> None:
    breaker, now = CircuitBreaker(3), 100.0

    def burst(number: int) -> None:
        configs = [config(f"t{number}{each}") for each in range(8)]
        for begins in (True, False):
            for each in configs:
                error = ErrorInfo(category=Category.PROVIDER, phase="execute", message="HTTP 429")
                ended = result(each.key, None, error=error, key=each.key, agent="gemini", model="flash")
                of = JobEvent.of_config("start", each, each.key, 1) if begins else JobEvent.of_result("end", ended)
                breaker.learn(replace(of, ts=now + 20 * number + 5 * (not begins)))

    burst(0)
    burst(1)
    assert breaker.refusal(config()) is None
    burst(2)
    assert breaker.refusal(config()) is not None


def test_a_sandbox_that_never_starts_is_stopped_for_all_agents() -> None:
    breaker = CircuitBreaker(2)
    run(breaker, "a", Category.SANDBOX, "no route to host", agent="codex")
    run(breaker, "b", Category.SANDBOX, "no route to host", agent="gemini")
    assert breaker.refusal(config(agent="opencode")) is not None
    assert breaker.refusal(config(sandbox="docker")) is None


@pytest.mark.parametrize(
    "endings",
    [
        [1.0, Category.INSTALL, Category.INSTALL, Category.INSTALL],
        [Category.INSTALL, Category.INSTALL, 0.0, Category.INSTALL],
        [Category.INSTALL, Category.HANDSHAKE, Category.INSTALL, Category.HANDSHAKE],
        [Category.VERIFIER] * 9,
        [Category.TASK] * 9,
    ],
    ids=["worked once", "works now", "two causes", "not the agent's", "the tasks'"],
)
def test_what_works_or_dies_of_this_and_that_goes_on(endings: list[Category | float]) -> None:
    breaker = CircuitBreaker(3)
    for number, ending in enumerate(endings):
        run(breaker, f"t{number}", ending)
    assert breaker.refusal(config()) is None


def test_one_broken_task_stops_only_itself() -> None:
    breaker = CircuitBreaker(3)
    for trial in range(1, 8):
        run(breaker, "alpine", Category.INSTALL, trial=trial)
    assert breaker.refusal(config("alpine", trial=9)) is not None
    assert breaker.refusal(config("debian")) is None


def test_different_messages_are_different_causes() -> None:
    breaker = CircuitBreaker(2)
    run(breaker, "a", Category.BUILD, "COPY app.py: no such file")
    run(breaker, "b", Category.BUILD, "gcc is missing")
    assert breaker.refusal(config()) is None


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["engine", "xdist"])
def test_a_run_stops_starting_what_cannot_work_and_says_so(project: Project, workers: tuple[str, ...]) -> None:
    for number in range(9):
        project.task(f"tasks/t{number}")
    project.write({"conftest.py": BROKEN})
    args = ["tasks", "--bf-sandbox=broken", "--bf-breaker=3", "--bf-retries=0", "--bf-json=r.json"]
    done = project.run(*args, *workers, "--bf-concurrency=1")
    done.assert_outcomes(errors=9)
    assert done.ret == 1
    n_started = len(project.rollout_dirs())
    assert 3 <= n_started <= 5  # a worker may have begun another before it could know
    note = "note: not started: the first rollouts of 3 tasks with sandbox broken all died of the same sandbox error in"
    done.stdout.fnmatch_lines([f"{note} start: the rack is on fire; *({9 - n_started} rollouts)"])
    report = json.loads((project.root / "r.json").read_text())
    errors = [entry["result"]["error"] for entry in report["rollouts"]]
    assert sum(error["message"].startswith("not started") for error in errors) == 9 - n_started
    assert {error["category"] for error in errors} == {"sandbox"}


def test_the_breaker_can_be_switched_off(project: Project) -> None:
    for number in range(4):
        project.task(f"tasks/t{number}")
    project.write({"conftest.py": BROKEN})
    args = ["tasks", "--bf-sandbox=broken", "--bf-retries=0", "--bf-concurrency=1"]
    project.run(*args, "--bf-breaker=off").assert_outcomes(errors=4)
    assert len(project.rollout_dirs()) == 4
    refused = project.run(*args, "--bf-breaker=many")
    refused.stderr.fnmatch_lines(["*--bf-breaker is 'many'; give a whole number from 1 up, or off*"])


BROKEN = """
from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.local import LocalBackend


class Broken(LocalBackend):
    def create(self, spec):
        sandbox = super().create(spec)

        async def fail():
            raise SandboxError("the rack is on fire")

        sandbox.start = fail
        return sandbox


def pytest_bf_register_sandboxes(registry):
    registry.register("broken", Broken)
"""
