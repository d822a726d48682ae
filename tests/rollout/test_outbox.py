"""The outbox: what agents leave in it is read safely and handed to the right role."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_sandbox import FakeSandbox, failed

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.rollout.outbox import (
    MAX_BYTES,
    MAX_FILES,
    OUTBOX,
    Mailbox,
    Message,
    OutboxFile,
    collect_outbox,
    prepare_outbox,
    read_message,
    with_messages,
)
from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend

needs_users = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox knows only root")
ROLES = ["coder", "reviewer"]


@pytest.fixture
async def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    """A started sandbox with an empty outbox."""
    monkeypatch.setenv("BF_CACHE_DIR", str(tmp_path))
    backend = LocalBackend()
    box = backend.create(SandboxSpec("box"))
    try:
        await box.start()
        await prepare_outbox(box)
        yield box
    finally:
        await box.stop()
        await backend.aclose()


async def collect(sandbox: Sandbox) -> tuple[list[Message], list[str]]:
    return await collect_outbox(sandbox, user=None, scene="code", turn=1, sender="coder", roles=ROLES)


def message(content: str, sender: str = "coder", recipient: str = "reviewer") -> Message:
    return Message("code", 1, sender, recipient, content)


async def test_messages_are_read_once(sandbox: Sandbox) -> None:
    await sandbox.exec(f"""cd {OUTBOX}; echo '{{"to": "reviewer", "content": "Look."}}' >'a file.json'; echo x >note""")
    assert await collect(sandbox) == ([message("Look.")], [])
    assert await collect(sandbox) == ([], [])
    assert (await sandbox.exec(f"ls {OUTBOX}")).stdout == "note\n"


async def test_what_is_malformed_is_told_and_the_rest_is_read(sandbox: Sandbox) -> None:
    await sandbox.exec(f"""cd {OUTBOX}; echo '{{"content": "Hello."}}' >reviewer.json; echo '{{' >z.json""")
    messages, problems = await collect(sandbox)
    assert messages == [message("Hello.")]
    assert problems == [f"{OUTBOX}/z.json of coder is not JSON"]


async def test_links_and_floods_lead_nowhere(sandbox: Sandbox) -> None:
    await sandbox.exec(
        f"""
        echo '{{"to": "reviewer", "content": "secret"}}' >/tmp/secret.json
        cd {OUTBOX}; ln -s /tmp/secret.json link.json; mkdir dir.json; mkfifo pipe.json
        head -c {MAX_BYTES * 3} /dev/zero >big.json
        """
    )
    messages, problems = await collect(sandbox)
    assert messages == []
    assert problems == [f"{OUTBOX}/big.json of coder has more than {MAX_BYTES} bytes"]
    assert (await sandbox.exec(f"ls -A {OUTBOX}; ls /tmp/secret.json")).stdout == "/tmp/secret.json\n"


async def test_only_so_many_files_are_read_and_all_are_removed(sandbox: Sandbox) -> None:
    script = f"""cd {OUTBOX}; for i in $(seq {MAX_FILES + 5}); do echo '{{"content": "x"}}' >reviewer$i.json; done"""
    await sandbox.exec(script)
    messages, problems = await collect(sandbox)
    assert len(messages) + len(problems) == MAX_FILES
    assert (await sandbox.exec(f"ls {OUTBOX}")).stdout == ""


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (f"rm -rf {OUTBOX}", "was removed"),
        (f"rm -rf {OUTBOX}; mkdir /tmp/other; ln -s /tmp/other {OUTBOX}", "was replaced by a link"),
    ],
)
async def test_an_outbox_that_is_gone_is_told(sandbox: Sandbox, command: str, problem: str) -> None:
    await sandbox.exec(command)
    assert await collect(sandbox) == ([], [f"{OUTBOX} of coder {problem}"])
    await prepare_outbox(sandbox)
    assert await collect(sandbox) == ([], [])


async def test_an_outbox_that_cannot_be_read_is_told() -> None:
    silent = FakeSandbox(answer=lambda cmd: TimeoutError())
    assert await collect(silent) == ([], [f"{OUTBOX} of coder could not be read within 30 s"])
    with pytest.raises(SandboxError, match=r"could not prepare /app/\.outbox: no space"):
        await prepare_outbox(FakeSandbox(answer=lambda cmd: failed(1, "no space")))


@needs_users
async def test_every_user_may_leave_messages(sandbox: Sandbox) -> None:
    for user in (1500, 1501):
        await prepare_outbox(sandbox)
        await sandbox.exec(f"""echo '{{"content": "From {user}."}}' >{OUTBOX}/reviewer.json""", user=user)
        got = await collect_outbox(sandbox, user=user, scene="code", turn=1, sender="coder", roles=ROLES)
        assert got == ([message(f"From {user}.")], [])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON"),
        (b"[" * 100_00, "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", 'is not an object {"to": …, "content": …}'),
        (b"{}", "has no text in content"),
        (b'{"content": " "}', "has no text in content"),
        (b'{"content": 7}', "has no text in content"),
        (b'{"to": "boss", "content": "x"}', "is for 'boss', the scene has coder, reviewer"),
        (b'{"to": ["reviewer"], "content": "x"}', "is for \"['reviewer']\", the scene has coder, reviewer"),
    ],
)
def test_a_file_that_is_no_message_is_told(content: bytes, problem: str) -> None:
    file = OutboxFile("coder.json", content)
    read = read_message(file, scene="code", turn=1, sender="coder", roles=ROLES)
    assert read == f"{OUTBOX}/coder.json of coder {problem}"


def test_control_sequences_do_not_get_through() -> None:
    file = OutboxFile("reviewer.json", json.dumps({"content": "\x1b[2Jred\nline"}).encode())
    assert read_message(file, scene="code", turn=1, sender="coder", roles=ROLES) == message("red\nline")


def test_a_role_gets_its_messages_before_its_next_prompt() -> None:
    mailbox = Mailbox()
    mailbox.add([message("One."), message("Two."), message("Mine.", "reviewer", "coder")])
    prompt = with_messages("Go on.", mailbox.take("reviewer"))
    assert prompt.index("**From coder:**\nOne.") < prompt.index("Two.") < prompt.index("Go on.")
    assert "Mine." not in prompt
    assert with_messages("Go on.", mailbox.take("reviewer")) == "Go on."
    assert [left.content for left in mailbox.undelivered] == ["Mine."]
