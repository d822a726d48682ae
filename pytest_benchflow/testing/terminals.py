"""`open_terminal`: a real terminal, with a size, job control and keys that are signals."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from pytest_benchflow.sandboxes import HasTerminals, Sandbox, Terminal
from pytest_benchflow.testing.base import SandboxSuite, count_sleepers, read_all

_ANSWER_SEC = 20.0


class TerminalTests(SandboxSuite):
    """What `open_terminal` promises, where a backend has it."""

    async def test_program_has_a_terminal_of_the_size_asked_for(self, shared: Sandbox) -> None:
        script = "tty; stty size; echo $0 $1 >/dev/tty; exit 7"
        terminal = await _open(shared, ["bash", "-c", script, "two words", "$HOME"])
        lines = (await read_all(terminal.read)).decode().split("\r\n")
        assert lines[0].startswith("/dev/pts/")
        assert lines[1:] == ["31 97", "two words $HOME", ""]
        assert await _status(terminal) == 7

    async def test_program_hears_of_another_size(self, shared: Sandbox) -> None:
        script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done"
        terminal = await _open(shared, ["bash", "-c", script])
        await _until(terminal, b"ready")
        await terminal.resize(12, 34)
        await _until(terminal, b"12 34")
        assert await _status(terminal) == 0

    async def test_interrupt_key_ends_what_runs_in_front_and_not_the_shell(self, shared: Sandbox) -> None:
        terminal = await _open(shared, ["bash", "--norc", "-i"])
        await terminal.write(b"sleep 600 & bash -c 'echo up-$((1 + 1)); sleep 600'\n")
        await _until(terminal, b"up-2")
        await terminal.write(b"\x03")
        await terminal.write(b"kill %1; wait %1; echo $((40 + 2)); exit 3\n")
        await _until(terminal, b"42\r\n")
        assert await _status(terminal) == 3

    async def test_kill_ends_the_program_and_what_it_started(self, shared: Sandbox) -> None:
        terminal = await _open(shared, ["bash", "-c", "trap '' HUP; sleep 600 & echo ready; wait"])
        await _until(terminal, b"ready")
        await terminal.kill()
        assert await _status(terminal) == 137
        assert not await count_sleepers(shared)

    async def test_program_that_does_not_exist_is_an_error_or_a_status(self, shared: Sandbox) -> None:
        try:
            terminal = await _open(shared, ["/no/such/program"])
        except Exception as error:
            assert "/no/such/program" in str(error)  # noqa: PT017 - one of two ways
        else:
            assert await _status(terminal) == 127


async def _open(sandbox: Sandbox, argv: list[str]) -> Terminal:
    if not sandbox.capabilities.terminals:
        pytest.skip("no terminals in these sandboxes")
    return await cast("HasTerminals", sandbox).open_terminal(argv, rows=31, columns=97)


async def _status(terminal: Terminal) -> int:
    async with asyncio.timeout(_ANSWER_SEC):
        return await terminal.wait()


async def _until(terminal: Terminal, expected: bytes) -> None:
    """Read until something is on the screen."""
    screen = b""
    async with asyncio.timeout(_ANSWER_SEC):
        while expected not in screen:
            data = await terminal.read()
            assert data, screen
            screen += data
