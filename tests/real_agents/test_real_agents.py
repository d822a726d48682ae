"""Real agents against the scripted model server: what has to hold for each of them, in each sandbox.

All agents meet all tasks in one run per sandbox, one sandbox after the other; every test looks at these runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from host_watch import containers, files_with
from model_server import Say
from project import Project, properties, wait_for
from real_agents import (
    AGENTS,
    FOREIGN,
    KEYS,
    REMEMBERED,
    SECOND_PROMPT,
    SECRETS,
    SKILL,
    TASKS,
    WRONG_KEY,
    Bench,
    run_agents,
)

from pytest_benchflow.agents.bundles.store import BundleStore

each_agent = pytest.mark.parametrize("agent", AGENTS)
each_cell = pytest.mark.parametrize("task", TASKS)


@pytest.fixture(scope="module", params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def bench(request: pytest.FixtureRequest, new_project: Callable[..., Project]) -> Iterator[Bench]:
    """Run everything once in a sandbox; containers are on the network of this host, where the server listens."""
    if request.param == "local":
        yield from run_agents(new_project("local"), "local")
        return
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    yield from run_agents(new_project("docker"), "docker", "--bf-docker-network", "host", DOCKER_HOST=address)


@each_agent
@each_cell
def test_every_rollout_has_one_result(bench: Bench, agent: str, task: str) -> None:
    assert (agent, task) in bench.cells


@each_agent
def test_a_task_is_solved_with_tool_calls(bench: Bench, agent: str) -> None:
    cell = bench.cells[agent, "solved"]
    assert (cell.status, cell.result["reward"]) == ("passed", 1.0), cell.result
    assert (cell.result["agent_outcome"], cell.result["n_prompts"]) == ("completed", 2)
    assert cell.result["n_tool_calls"] == 3


@each_agent
def test_the_trajectory_tells_what_was_said_and_done(bench: Bench, agent: str) -> None:
    cell = bench.cells[agent, "solved"]
    assert [event["text"].strip() for event in cell.events("user_message")] == [TASKS["solved"][0], SECOND_PROMPT]
    assert [event["turn"] for event in cell.events("user_message")] == [1, 2]
    said = " ".join(event["text"] for event in cell.events("agent_message") if not event.get("notice"))
    assert REMEMBERED in said
    assert "Joined." in said
    calls = cell.events("tool_call")
    assert [call["status"] for call in calls] == ["completed"] * 3
    assert "one.txt" in str(calls[0])
    assert "two.txt" in str(calls[1])
    assert "done.txt" in str(calls[2])


@each_agent
def test_the_second_turn_has_the_context_of_the_first(bench: Bench, agent: str) -> None:
    last = bench.cells[agent, "solved"].requests[-1]
    assert last.reply == Say("Joined.")
    assert last.saw(REMEMBERED)
    assert last.saw(TASKS["solved"][0])


@each_agent
def test_only_the_model_that_was_asked_for_does_the_work(bench: Bench, agent: str) -> None:
    cell = bench.cells[agent, "solved"]
    assert {request.model for request in cell.requests} == {AGENTS[agent].served}
    assert cell.result["model"] == AGENTS[agent].model
    assert [name.rpartition("/")[2] for name in cell.result["models"]] == [AGENTS[agent].served]


@each_agent
def test_the_model_is_told_of_the_skill(bench: Bench, agent: str) -> None:
    for request in bench.cells[agent, "solved"].requests:
        assert SKILL in json.dumps(request.body)


@each_agent
def test_the_provider_gets_the_right_key_and_no_other(bench: Bench, agent: str) -> None:
    own = KEYS[AGENTS[agent].key]
    cell = bench.cells[agent, "solved"]
    assert {request.key for request in cell.requests} == {own}
    others = {*KEYS.values(), *FOREIGN.values()} - {own}
    for request in cell.requests:
        heard = str(request.body) + str(request.headers)
        assert not [secret for secret in others if secret in heard]


@each_agent
def test_tokens_are_counted_where_the_agent_reports_them(bench: Bench, agent: str) -> None:
    tokens = bench.cells[agent, "solved"].result["tokens"]
    assert tokens["output"] == AGENTS[agent].tokens
    assert (tokens["input"] is None) == (AGENTS[agent].tokens is None)


@each_agent
def test_a_wrong_model_is_an_error_that_names_it(bench: Bench, agent: str) -> None:
    cell = bench.cells[agent, "wrong-model"]
    assert cell.status == "error"
    assert f"{AGENTS[agent].served}-wrong" in cell.error["message"]


@each_agent
@pytest.mark.parametrize("task", ["wrong-key", "failing", "limited", "silent"])
def test_a_model_that_never_answers_is_an_error_of_the_provider(bench: Bench, agent: str, task: str) -> None:
    cell = bench.cells[agent, task]
    assert cell.status == "error", cell.result
    assert (cell.error["category"], cell.error["phase"]) == ("provider", "execute")
    assert cell.result["reward"] is None
    assert cell.requests, "the agent did not even ask"
    assert not [request for request in cell.requests if SECOND_PROMPT in request.prompts[-1]]


@each_agent
@pytest.mark.parametrize(("task", "status"), [("wrong-key", "401"), ("failing", "500"), ("limited", "429")])
def test_what_the_provider_answered_is_told_before_the_time_is_up(
    bench: Bench, agent: str, task: str, status: str
) -> None:
    cell = bench.cells[agent, task]
    assert status in cell.error["message"]
    assert cell.error["retryable"] is (task != "wrong-key")
    assert cell.result["timing"]["execute"] < TASKS[task][1]
    assert not cell.events("agent_timeout")


@each_agent
def test_the_wrong_key_is_the_one_that_was_refused(bench: Bench, agent: str) -> None:
    assert {request.key for request in bench.cells[agent, "wrong-key"].requests} == {WRONG_KEY}


@each_agent
def test_an_agent_out_of_time_is_stopped_and_its_work_counts(bench: Bench, agent: str) -> None:
    cell = bench.cells[agent, "endless"]
    assert (cell.status, cell.result["agent_outcome"]) == ("passed", "timed_out"), cell.result
    assert [event["reason"] for event in cell.events("agent_timeout")] == ["wall_clock_timeout"]
    assert len(cell.events("tool_call")) == 1
    assert cell.result["n_prompts"] == 1


@each_agent
def test_an_agent_that_dies_is_recorded_and_its_work_counts(bench: Bench, agent: str) -> None:
    cell = bench.cells[agent, "crash"]
    assert (cell.status, cell.result["agent_outcome"]) == ("passed", "crashed"), cell.result
    assert cell.result["n_prompts"] == 1
    assert "half" in (cell.directory / "trajectory" / "acp_trajectory.jsonl").read_text()


@each_agent
@each_cell
def test_junit_says_the_same(bench: Bench, agent: str, task: str) -> None:
    cell = bench.cells[agent, task]
    tags = {child.tag for child in cell.case} & {"failure", "error", "skipped"}
    assert tags == ({"error"} if cell.status == "error" else set())
    assert properties(cell.case)["bf_agent"] == agent


def test_no_file_holds_a_secret(bench: Bench) -> None:
    assert files_with(SECRETS, bench.project.root) == []


def test_nothing_that_is_printed_holds_a_secret(bench: Bench) -> None:
    printed = bench.run.stdout.str() + bench.run.stderr.str()
    assert not [secret for secret in SECRETS if secret in printed]


def test_no_command_line_or_container_holds_a_secret(bench: Bench) -> None:
    assert bench.watch.leaks == set()


def test_no_process_is_left(bench: Bench) -> None:
    wait_for(lambda: not bench.watch.left_processes(), "the end of all processes", seconds=5)


def test_no_mount_is_left(bench: Bench) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    assert str(bench.project.root) not in mounts
    assert str(BundleStore().path) not in mounts


def test_no_text_shows_a_traceback_of_ours(bench: Bench) -> None:
    printed = bench.run.stdout.str()
    assert "Traceback" not in printed
    assert "pytest_benchflow/" not in printed


def test_no_container_is_left(bench: Bench) -> None:
    ids = {json.loads((cell.directory / "sandbox.json").read_text())["id"] for cell in bench.cells.values()}
    assert len(ids) == len(bench.cells)
    assert not [name for name in containers() if name in ids]
