"""Scenes become turns: who speaks when, with which prompt, in which session, and what is refused before that."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from project import write_native_task

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.rollout.scenes import (
    FALLBACK_PROMPT,
    INSTRUCTION,
    Role,
    Scene,
    Turn,
    compile_scenes_to_steps,
    document_prompts,
    document_scenes,
    plan_turns,
    session_key,
)
from pytest_benchflow.tasks import Document, load_task

CODER, REVIEWER = Role("coder", "gemini", "gemini-3-flash"), Role("reviewer", "claude", "haiku")


def test_roles_are_written_as_the_documentation_does() -> None:
    role = Role("coder", "gemini", "gemini-3-flash", env={"A": "1"})
    assert (role.name, role.agent, role.model, dict(role.env)) == ("coder", "gemini", "gemini-3-flash", {"A": "1"})
    assert {role: "a role can be a key"}


def test_a_scene_takes_lists_and_keeps_them_from_changing() -> None:
    roles = [CODER]
    scene = Scene("code", roles, [Turn("coder")])
    roles.append(REVIEWER)
    assert scene.roles == (CODER,)


def test_a_scene_without_turns_gives_every_role_one() -> None:
    planned = plan_turns([Scene(roles=[CODER, REVIEWER])], base_prompt="Do it.")
    assert [(turn.role.name, turn.prompt) for turn in planned] == [("coder", "Do it."), ("reviewer", "Do it.")]


LETTER = "Write to /app/.outbox/coder.json."


@pytest.mark.parametrize(
    ("roles", "prompt", "instruction", "outbox", "expected"),
    [
        ([CODER, REVIEWER], LETTER, "Do it.", "auto", True),
        ([CODER, REVIEWER], "Review it.", "Do it.", "auto", False),
        ([CODER, REVIEWER], None, LETTER, "auto", False),
        ([CODER], LETTER, "Do it.", "auto", False),
        ([CODER], LETTER, "Do it.", True, True),
        ([CODER, REVIEWER], LETTER, "Do it.", False, False),
    ],
)
def test_a_scene_has_an_outbox_if_its_prompts_name_it_or_it_says_so(
    roles: list[Role], prompt: str | None, instruction: str, outbox: bool | Literal["auto"], expected: bool
) -> None:
    turns = [Turn("coder"), Turn(roles[-1].name, prompt)]
    planned = plan_turns([Scene(roles=roles, turns=turns, outbox=outbox)], base_prompt=instruction)
    assert [turn.has_outbox for turn in planned] == [expected] * 2


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        (None, ["Do it."]),
        ([None, "Check it."], ["Do it.", "Check it."]),
        ([INSTRUCTION, "Check it."], ["Do it.", "Check it."]),
        ("Just this.", ["Just this."]),
        ([], ["Do it."]),
    ],
)
def test_a_single_agent_gets_one_turn_per_prompt(prompts: list[str | None] | None, expected: list[str]) -> None:
    scene = Scene.single(agent="gemini", model="flash", reasoning_effort="low", prompts=prompts)
    assert scene.roles == (Role("agent", "gemini", "flash", "low"),)
    assert [turn.prompt for turn in plan_turns([scene], base_prompt="Do it.")] == expected


def test_a_task_that_says_nothing_still_gives_a_prompt() -> None:
    (turn,) = plan_turns([Scene.single(agent="gemini")], base_prompt=" \n")
    assert turn.prompt == FALLBACK_PROMPT


def test_steps_hold_every_turn_as_plain_data() -> None:
    scenes = [
        Scene("code", [CODER], [Turn("coder"), Turn("coder", "Again.")], skills_dir="skills"),
        Scene("review", [Role("reviewer", "claude", skills_dir="own")]),
    ]
    steps = compile_scenes_to_steps(scenes, "Do it.")
    assert [step.id for step in steps] == ["scene-0-turn-0-coder", "scene-0-turn-1-coder", "scene-1-turn-0-reviewer"]
    assert dict(steps[1].data) == {
        "type": "scene_turn",
        "scene": "code",
        "scene_index": 0,
        "turn_index": 1,
        "role": "coder",
        "prompt": "Again.",
        "skills_dir": "skills",
        "role_skills_dir": None,
    }
    assert steps[2].data["role_skills_dir"] == "own"


def test_only_the_same_role_in_a_row_keeps_its_session() -> None:
    turns = [Turn("coder"), Turn("coder"), Turn("reviewer"), Turn("coder")]
    planned = plan_turns([Scene("a", [CODER, REVIEWER], turns), Scene("b", [CODER])], base_prompt="x")
    kept = [session_key(one) == session_key(other) for one, other in pairwise(planned)]
    assert kept == [True, False, False, False]


@pytest.mark.parametrize(
    ("scenes", "message"),
    [
        ([Scene(roles=[CODER], outbox="yes")], "outbox of scene 'default' is 'yes'; give auto, true or false"),  # type: ignore[arg-type]
        ([], "there is no scene; give at least one"),
        ([Scene("empty")], "scene 'empty' has no roles; add at least one"),
        ([Scene(roles=[CODER]), Scene(roles=[CODER])], "two scenes are called 'default'; give each"),
        ([Scene("s", [CODER, CODER])], "scene 's' has two roles called 'coder'; give each"),
        ([Scene("s", [CODER], [Turn("codr")])], "scene 's' has a turn of the unknown role 'codr'; did you mean coder?"),
        ([Scene("", [CODER])], "a scene has an empty name; give it one"),
        ([Scene("s", [Role("a/b", "gemini")])], "scene 's' has a role called 'a/b'; use a word without slashes"),
        ([Scene("s", [Role("a", "")])], "role 'a' of scene 's' has no agent; name one"),
        ([Scene("s", [Role("a", "gemini", timeout_sec=0)])], "timeout_sec of role 'a' is 0; give seconds above 0"),
        (
            [Scene("s", [Role("a", "gemini", capabilities=["readonly"])])],
            "role 'a' has the capability 'readonly'; did you mean read-only?",
        ),
    ],
)
@pytest.mark.parametrize("plan", [compile_scenes_to_steps, lambda scenes, base: plan_turns(scenes, base_prompt=base)])
def test_scenes_that_cannot_be_played_are_refused(
    scenes: list[Scene], message: str, plan: Callable[[list[Scene], str], object]
) -> None:
    with pytest.raises(ValueError) as caught:
        plan(scenes, "x")
    assert isinstance(caught.value, UsageError)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        (None, False),
        (["read-only"], True),
        (["browser"], False),
        ({"workspace": "read-only"}, True),
        ({"workspace": "read-write"}, False),
    ],
)
def test_a_role_can_be_kept_from_writing(capabilities: list[str] | None, expected: bool) -> None:
    assert Role("reviewer", "claude", capabilities=capabilities).is_read_only is expected


CAST = """
agents:
  roles:
    coder: {agent: gemini, model: flash, timeout_sec: 60, env: {A: "1"}}
    reviewer: {capabilities: [read-only]}
"""
SCENES = """
scenes:
  - {name: code, roles: [coder]}
  - {name: review, turns: [reviewer, {role: coder, prompt: Go}]}
"""
BODY = """The task.

## role:reviewer

Look at it.

## scene:review

Review it.
"""


def document(tmp_path: Path, front: str, body: str = BODY) -> Document:
    loaded = load_task(write_native_task(tmp_path / "task", front=front, body=body)).document
    assert loaded is not None
    return loaded


def test_a_document_gives_its_scenes(tmp_path: Path) -> None:
    found = document(tmp_path, CAST + SCENES)
    code, review = document_scenes(found, agent="claude", model="haiku", reasoning_effort="low")
    assert code == Scene("code", [Role("coder", "gemini", "flash", env={"A": "1"}, timeout_sec=60)])
    assert [role.name for role in review.roles] == ["reviewer", "coder"]
    assert review.turns == (Turn("reviewer"), Turn("coder", "Go"))
    assert review.role("reviewer") == Role("reviewer", "claude", "haiku", "low", capabilities=("read-only",))


def test_a_pinned_agent_does_not_get_the_model_of_another(tmp_path: Path) -> None:
    found = document(tmp_path, "agents: {roles: {coder: {agent: gemini}}}\n", "The task.\n")
    (scene,) = document_scenes(found, agent="claude", model="haiku")
    assert scene.roles == (Role("coder", "gemini"),)


@pytest.mark.parametrize(("front", "agent"), [("", "gemini"), (CAST, "oracle"), (CAST, "nop")])
def test_a_document_may_leave_the_scenes_to_the_caller(tmp_path: Path, front: str, agent: str) -> None:
    assert document_scenes(document(tmp_path, front, "The task.\n"), agent=agent) == ()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", ["The task.", "Look at it.", "Review it.", "Again."]),
        ("benchflow: {prompt: {composition: replace}}", ["The task.", "Look at it.", "Review it.", "Again."]),
        (
            "benchflow: {prompt: {composition: append}}",
            [
                "The task.",
                "The task.\n\nLook at it.",
                "The task.\n\nLook at it.\n\nReview it.",
                "The task.\n\nReview it.\n\nAgain.",
            ],
        ),
        (
            "benchflow: {prompt: {composition: append, order: [role, base]}}",
            ["The task.", "Look at it.\n\nThe task.", "Look at it.\n\nThe task.", "The task."],
        ),
    ],
)
def test_prompts_of_a_document_are_found_by_precedence(tmp_path: Path, policy: str, expected: list[str]) -> None:
    found = document(tmp_path, CAST + policy + "\n")
    scenes = [
        Scene("code", [CODER, REVIEWER]),
        Scene("review", [REVIEWER, CODER], [Turn("reviewer"), Turn("coder", "Again.")]),
    ]
    planned = plan_turns(scenes, base_prompt=found.prompts.base, prompt_for=document_prompts(found))
    assert [turn.prompt for turn in planned] == expected
