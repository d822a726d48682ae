"""The files in which an agent tells of its calls: read in the sandbox, new things only."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_world import World, context_of

from pytest_benchflow.agents import AgentRequest, ModelAccess
from pytest_benchflow.agents.manifest import RecordFile
from pytest_benchflow.agents.records import Records
from pytest_benchflow.agents.registry import BUILT_IN, built_in_manifest

RECORD = RecordFile(path="logs/*/calls.log", models='"model":"([^"]+)"', errors="status=[45][0-9]{2}[a-z ]*")


@pytest.fixture
def records(tmp_path: Path, make_task: object) -> Records:
    world = World(tmp_path / "box")
    (tmp_path / "box" / "home" / "logs" / "a b").mkdir(parents=True)
    context = context_of(world, make_task(), ModelAccess(), AgentRequest(), [])  # type: ignore[operator]
    assert context.home == str(tmp_path / "box" / "home")
    return Records(context, [RECORD])


def write(records: Records, text: str) -> None:
    with Path(records._context.home, "logs", "a b", "calls.log").open("a") as file:
        file.write(text)


async def test_what_was_there_before_the_session_is_not_its_own(records: Records) -> None:
    write(records, '{"model":"old"}\nstatus=500 before\n')
    assert await records.read() == ((), ())
    assert await records.read() == ((), ())


async def test_models_are_named_once_and_every_failure_counts(records: Records) -> None:
    write(records, "status=429 too many\n")
    await records.read()
    write(records, '{"model":"a"} {"model":"a"} {"model":"b"}\nstatus=429 too many\nstatus=429 too many\n')
    assert await records.read() == (("a", "b"), ("status=429 too many",) * 2)
    write(records, '{"model":"a"}\n')
    assert await records.read() == (("a",), ())


async def test_files_that_are_not_there_tell_nothing(records: Records) -> None:
    assert await records.read() == ((), ())
    assert await records.read() == ((), ())


PI = (
    '"provider":"benchflow","model":"m","usage":{"input":%d,"output":%d},"errorMessage":"500: {\\"message\\":\\"no\\"}"'
)
LINES = {
    "pi-acp": (PI % (1, 0), PI % (234, 56), "m", '500: {\\"message\\":\\"no\\"}'),
    "qwen": (
        '{"event.name":"qwen-code.api_error","error_message":"500 no","status_code":500}',
        '{"event.name":"qwen-code.api_response","response_id":"c","model":"m","status_code":200}',
        "m",
        "500 no",
    ),
    "opencode": (
        'message="stream error" modelID=m small=false agent=build error.error="AI_APICallError: no"',
        "message=stream providerID=benchflow modelID=m session.id=s small=false",
        "m",
        'AI_APICallError: no"',
    ),
    "codex-acp": (
        "Request completed url=http://h/v1/responses status=500 Internal Server Error headers={}",
        "",
        None,
        "500 Internal Server Error",
    ),
    "gemini": (
        "[WARN] Attempt 1 failed with status 500. Retrying",
        "",
        None,
        "Attempt 1 failed with status 500. Retrying",
    ),
    "hermes": ("", "API call #2: model=m provider=custom", "m", None),
}


@pytest.mark.parametrize("agent", LINES)
async def test_the_lines_of_real_agents_are_understood(agent: str, tmp_path: Path, make_task: object) -> None:
    world = World(tmp_path / "box")
    context = context_of(world, make_task(), ModelAccess(), AgentRequest(), [])  # type: ignore[operator]
    record = built_in_manifest(agent).quirks.records[0]
    path = Path(context.home, record.path.replace("*", "x"))
    path.parent.mkdir(parents=True, exist_ok=True)
    reader = Records(context, [record])
    await reader.read()
    failed, answered, model, report = LINES[agent]
    path.write_text(f"{failed}\n")
    assert await reader.read() == ((), (report,) if report else ())
    path.write_text(f"{failed}\n{answered}\n")
    assert (await reader.read()).models == ((model,) if model else ())


@pytest.mark.parametrize("agent", BUILT_IN)
def test_records_are_below_the_home_directory(agent: str) -> None:
    for record in built_in_manifest(agent).quirks.records:
        assert not record.path.startswith(("/", "~", "$"))
        assert record.models or record.errors
