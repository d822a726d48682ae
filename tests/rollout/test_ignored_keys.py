"""What a task declares and nothing acts on is said in a note, so that nobody counts on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_benchflow.agents import AgentRegistry
from pytest_benchflow.rollout.checks import ignored_key_notes
from pytest_benchflow.tasks import load_task

PLUGINS = "[verifier] pytest_plugins has no effect: pytest loads the plugins that the verifier's image has"
SERVER = '[[environment.mcp_servers]]\nname = "x"\nurl = "http://x"\ntools = ["one"]\n'


@pytest.mark.parametrize(
    ("toml", "agent", "said"),
    [
        ("", "gemini", []),
        ('[verifier]\npytest_plugins = ["pytest_cov"]\n', "oracle", [PLUGINS]),
        (
            '[verifier.memory]\nexpected_skills = ["x"]\n',
            "oracle",
            ["[verifier.memory] expected_skills is not checked"],
        ),
        ("[verifier.memory]\n", "oracle", []),
        ('[environment]\ngpu_types = ["H100"]\n', "oracle", ["[environment] gpu_types has no effect without gpus"]),
        (
            '[verifier.environment]\ngpu_types = ["H100"]\nskills_dir = "/skills"\n',
            "oracle",
            [
                "[verifier.environment] gpu_types has no effect without gpus",
                "[verifier.environment] skills_dir has no effect: no agent works there",
            ],
        ),
        ("[reward]\nscale = 2\n", "oracle", ["[reward] has no effect: the verifier's reward counts as it is"]),
        ('[environment]\nskills_dir = "/skills"\n', "oracle", []),
        (
            '[environment]\nskills_dir = "/skills"\n',
            "gemini",
            ["[environment] skills_dir is not given to the agent"],
        ),
        (SERVER, "oracle", []),
        (
            SERVER,
            "gemini",
            ["[[environment.mcp_servers]] tools has no effect: the agent gets all tools of the server"],
        ),
    ],
)
def test_a_key_without_effect_is_noted(make_task: Callable[..., Path], toml: str, agent: str, said: list[str]) -> None:
    notes = ignored_key_notes(load_task(make_task(toml=toml)), [AgentRegistry().get(agent)])
    assert notes == [f"hello: {note}" for note in said]


def test_a_compose_file_that_nobody_reads_is_a_note(make_task: Callable[..., Path]) -> None:
    task = make_task(files={"environment/Dockerfile": "FROM x\n", "environment/docker-compose.yml": "services: {}\n"})
    reason = "is not read, only docker-compose.yaml is; rename it if the task needs its services"
    notes = ignored_key_notes(load_task(task), [])
    assert notes == [f"{task.name}: environment/docker-compose.yml {reason}"]
