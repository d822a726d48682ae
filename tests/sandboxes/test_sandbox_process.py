"""Programs as byte pipes."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandbox_helpers import processes

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes import Process, Sandbox


async def read_all(process: Process) -> bytes:
    """Read standard output to its end."""
    parts = []
    while part := await process.read():
        parts.append(part)
    return b"".join(parts)


async def test_it_is_a_two_way_pipe(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["cat"])
    assert isinstance(process, Process)
    await process.write(b"one\n")
    assert await process.read() == b"one\n"
    await process.write(b"two\n")
    assert await process.read() == b"two\n"
    await process.close_stdin()
    await process.close_stdin()
    assert await process.read() == b""
    assert await process.wait() == 0


async def test_the_streams_are_separate(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["bash", "-c", "echo out; echo err >&2; exit 4"])
    assert await read_all(process) == b"out\n"
    assert await process.read_stderr() == b"err\n"
    assert await process.wait() == 4


async def test_arguments_are_passed_as_they_are(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["printf", "%s|", "a b", "$HOME", "*", "ä\udcff"])
    assert await read_all(process) == b"a b|$HOME|*|\xc3\xa4\xff|"


async def test_cwd_and_env_are_taken(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["bash", "-c", "echo $PWD $WORD"], cwd="/usr", env={"WORD": "x"})
    assert await read_all(process) == b"/usr x\n"


async def test_a_missing_program_is_a_clear_error(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="no-such-program cannot be started: No such file or directory"):
        await sandbox.open_process(["no-such-program"])


async def test_a_full_pipe_makes_the_writer_wait(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["bash", "-c", "read -n1; wc -c"])
    data = b"x" * 5_000_000
    writer = asyncio.create_task(process.write(data))
    await writer
    await process.close_stdin()
    assert (await read_all(process)).strip() == b"4999999"


async def test_a_slow_reader_makes_the_program_wait(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["bash", "-c", "head -c 3000000 /dev/zero; echo done >&2"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await process.read_stderr()
    assert len(await read_all(process)) == 3_000_000
    assert await process.read_stderr() == b"done\n"


async def test_kill_ends_the_whole_tree_and_returns_when_it_is_gone(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["bash", "-c", "setsid sleep 4001 & sleep 4002 & echo up; wait"])
    await process.read()
    await process.kill()
    await process.kill()
    assert await process.wait() == 137
    left = await sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "sleep 400" not in left.stdout


async def test_killing_a_finished_program_does_nothing(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["true"])
    assert await process.wait() == 0
    await process.kill()
    assert await process.wait() == 0


async def test_writing_to_a_program_that_is_gone_is_a_broken_pipe(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["true"])
    await process.wait()
    with pytest.raises(BrokenPipeError):
        await process.write(b"x" * 1_000_000)


async def test_a_cancelled_read_loses_nothing(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["cat"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await process.read()
    await process.write(b"later")
    assert await process.read() == b"later"
    await process.kill()


async def test_reading_and_waiting_do_not_block_the_loop(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["sleep", "0.3"])
    ticks = 0
    waiting = asyncio.create_task(process.wait())
    started = time.monotonic()
    while not waiting.done():
        ticks += 1
        await asyncio.sleep(0.01)
    assert ticks > 5
    assert time.monotonic() - started >= 0.2


async def test_stopping_the_sandbox_ends_the_streams(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["sleep", "4011"])
    reading = asyncio.create_task(process.read())
    await asyncio.sleep(0.05)
    await sandbox.stop()
    assert await reading == b""
    with pytest.raises(SandboxError):
        await process.wait()


async def test_kill_finds_what_a_program_left_when_it_ended(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["bash", "-c", "setsid sleep 4021 & (sleep 4022 &); exit 6"])
    assert await process.wait() == 6
    assert len(await processes(sandbox, "sleep 402")) == 2
    await process.kill()
    await process.kill()
    assert await processes(sandbox, "sleep 402") == []
    assert await process.wait() == 6


async def test_what_a_program_left_lives_on_unless_it_is_killed(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["bash", "-c", "sleep 4031 >/dev/null 2>&1 & exit 0"])
    assert await process.wait() == 0
    assert await read_all(process) == b""
    await sandbox.exec("true")
    assert len(await processes(sandbox, "sleep 4031")) == 1


async def test_a_program_leaves_no_supervisor_when_nothing_is_left(sandbox: Sandbox) -> None:
    before = await sandbox.exec("ls -d /proc/[0-9]* | wc -l")
    for _ in range(3):
        process = await sandbox.open_process(["bash", "-c", "sleep 0.1 & exit 0"])
        assert await process.wait() == 0
    async with asyncio.timeout(20):
        while (await sandbox.exec("ls -d /proc/[0-9]* | wc -l")).stdout != before.stdout:
            pass
