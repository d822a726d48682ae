"""A trajectory as a dialogue."""

from __future__ import annotations

from reporting.dialogues import EVENTS

from pytest_benchflow.core.types import Event
from pytest_benchflow.reporting.dialogue import passages_of


def test_words_and_calls_stand_where_the_agent_began_them() -> None:
    user, notice, work, last = passages_of(EVENTS)
    assert (user.source, user.text) == ("user", "Make it two.")
    assert (notice.source, notice.text) == ("system", "retrying")
    assert (work.source, work.thought, work.text, work.ts) == ("agent", "It is one.", "I look.", 3.0)
    assert [call.id for call in work.calls] == ["c1", "c2"]
    assert work.calls[0].arguments == {"path": "/app/a.txt"}
    assert work.calls[0].output == "one"
    assert (last.text, last.models) == ("Done.", ["flash-1"])
    assert last.usage is not None
    assert last.usage["output"] == 7


def test_a_call_whose_arguments_are_not_told_is_described() -> None:
    edit = passages_of(EVENTS)[2].calls[1]
    assert edit.arguments == {"title": "Edit a.txt", "paths": ["/app/a.txt"]}
    assert edit.output == "--- /app/a.txt\n+++ /app/a.txt\n@@ -1 +1 @@\n-one\n+two\n"


def test_an_id_that_is_used_again_in_the_next_prompt_is_another_call() -> None:
    call: Event = {"type": "tool_call", "tool_call_id": "1", "kind": "read", "content": []}
    first, _, second = passages_of([call, {"type": "stop"}, {"type": "user_message", "text": "again"}, call])
    assert len(first.calls) == len(second.calls) == 1
    assert first.calls[0] is not second.calls[0]


def test_roles_do_not_run_into_each_other() -> None:
    said: list[Event] = [{"type": "agent_message", "text": role, "role": role} for role in ("coder", "reviewer")]
    assert [passage.text for passage in passages_of(said)] == ["coder", "reviewer"]


def test_how_an_agent_ended_is_told_by_the_system() -> None:
    ends: list[Event] = [
        {"type": "agent_timeout", "reason": "wall_clock_timeout"},
        {"type": "agent_error", "code": 500},
        {"type": "agent_crash", "detail": "killed by SIGKILL"},
    ]
    assert [(passage.source, passage.text) for passage in passages_of(ends)] == [
        ("system", "the agent was stopped: wall_clock_timeout"),
        ("system", "the agent answered with an error: unknown"),
        ("system", "the agent ended in the middle of a prompt: killed by SIGKILL"),
    ]


def test_a_solution_is_not_the_work_of_a_model() -> None:
    event: Event = {"type": "oracle", "command": "solve.sh", "return_code": 1, "stdout": "no"}
    (passage,) = passages_of([event])
    assert passage.is_program
    assert (passage.calls[0].status, passage.calls[0].output) == ("failed", "no")


def test_events_that_nobody_knows_or_that_are_broken_do_no_harm() -> None:
    odd: list[Event] = [{}, {"type": 7}, {"type": "tool_call"}, {"type": "stop", "usage": 3, "models": "x"}]
    odd += [{"type": "agent_message", "text": ["x"]}, {"type": "tool_call", "content": [3, {"type": "diff"}]}]
    assert all(passage.text == "" for passage in passages_of(odd))
