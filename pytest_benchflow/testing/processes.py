"""`open_process`: a byte pipe that neither loses, adds nor reorders anything, and ends when either side does."""

from __future__ import annotations

import asyncio
import hashlib
import time

import pytest

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Process, Sandbox
from pytest_benchflow.testing.base import SandboxSuite, count_sleepers, read_all

_CHUNK = 1 << 16


class ProcessTests(SandboxSuite):
    """What `open_process` promises."""

    async def test_program_gets_its_arguments_exactly(self, shared: Sandbox) -> None:
        words = ["", "two words", "it's", '"', "$HOME", "*", "ü", "line\nbreak"]
        process = await shared.open_process(["printf", "%s|", *words])
        assert await read_all(process.read) == "".join(f"{word}|" for word in words).encode()
        assert await process.wait() == 0

    async def test_pipe_carries_a_lot_both_ways(self, shared: Sandbox) -> None:
        process = await shared.open_process(["cat"])
        block = bytes(range(256)) * 256
        sent, received, count = hashlib.sha256(), hashlib.sha256(), self.pipe_bytes // len(block)

        async def send() -> None:
            for _ in range(count):
                sent.update(block)
                await process.write(block)
            await process.close_stdin()

        sending = asyncio.ensure_future(send())
        while data := await process.read(_CHUNK):
            received.update(data)
        await sending
        assert await process.wait() == 0
        assert received.hexdigest() == sent.hexdigest()

    async def test_first_bytes_of_a_quick_program_are_not_lost(self, shared: Sandbox) -> None:
        for number in range(10):
            process = await shared.open_process(["echo", str(number)])
            assert await read_all(process.read) == f"{number}\n".encode()
            assert await process.wait() == 0

    async def test_answers_come_at_once(self, shared: Sandbox) -> None:
        process = await shared.open_process(["cat"])
        for number in range(50):
            line = f"request {number}\n".encode()
            await process.write(line)
            assert await _exactly(process, len(line)) == line
        await process.close_stdin()
        assert await process.wait() == 0

    async def test_output_goes_on_after_the_input_is_closed(self, shared: Sandbox) -> None:
        process = await shared.open_process(["bash", "-c", "cat; sleep 0.5; echo after; echo err >&2; exit 7"])
        await process.write(b"before\n")
        await process.close_stdin()
        await process.close_stdin()
        assert await read_all(process.read) == b"before\nafter\n"
        assert await read_all(process.read_stderr) == b"err\n"
        assert await process.wait() == 7

    async def test_writing_after_close_is_a_broken_pipe(self, shared: Sandbox) -> None:
        process = await shared.open_process(["cat"])
        await process.close_stdin()
        with pytest.raises(BrokenPipeError):
            await process.write(b"too late")
        assert await process.wait() == 0

    async def test_writing_to_a_program_that_has_ended_is_a_broken_pipe(self, shared: Sandbox) -> None:
        process = await shared.open_process(["true"])
        assert await process.wait() == 0
        with pytest.raises(BrokenPipeError):
            await _write_on(process, 30)

    async def test_writers_and_readers_take_turns(self, shared: Sandbox) -> None:
        process = await shared.open_process(["bash", "-c", "sleep 0.3; cat"])
        reading = [asyncio.ensure_future(process.read(100)) for _ in range(2)]
        letters = [bytes([letter]) * 400_000 for letter in b"abc"]
        writing = asyncio.gather(*map(process.write, letters))
        async with asyncio.timeout(30):
            received = b"".join(await asyncio.gather(*reading)) + await _exactly(process, 3 * 400_000 - 200)
            await writing
        assert received == b"".join(letters)
        assert await process.read(0) == b""
        await process.write(b"more")
        assert await _exactly(process, 4) == b"more"
        await process.kill()

    async def test_both_streams_stay_apart(self, shared: Sandbox) -> None:
        process = await shared.open_process(["bash", "-c", "for i in {1..1000}; do echo o$i; echo e$i >&2; done"])
        out, err = await asyncio.gather(read_all(process.read), read_all(process.read_stderr))
        assert out.split() == [f"o{n}".encode() for n in range(1, 1001)]
        assert err.split() == [f"e{n}".encode() for n in range(1, 1001)]

    async def test_program_waits_for_a_slow_reader(self, shared: Sandbox) -> None:
        process = await shared.open_process(["bash", "-c", "head -c 80000000 /dev/zero; echo written >/tmp/written"])
        await asyncio.sleep(1.5)
        assert (await shared.exec("test -e /tmp/written")).return_code == 1
        total = 0
        while data := await process.read(_CHUNK):
            total += len(data)
        assert total == 80_000_000
        assert await process.wait() == 0

    async def test_writer_waits_for_a_slow_program(self, shared: Sandbox) -> None:
        process = await shared.open_process(["sleep", "600"])
        with pytest.raises(TimeoutError):
            await _write_on(process, 3)
        await process.kill()

    async def test_wait_needs_no_reader(self, shared: Sandbox) -> None:
        process = await shared.open_process(["bash", "-c", "echo unread; exit 3"])
        async with asyncio.timeout(30):
            assert await process.wait() == 3
        assert await read_all(process.read) == b"unread\n"

    async def test_wait_ends_with_the_program_and_kill_finds_what_it_left(self, shared: Sandbox) -> None:
        process = await shared.open_process(["bash", "-c", "sleep 600 & setsid sleep 600 & (sleep 600 &); exit 4"])
        async with asyncio.timeout(30):
            assert await process.wait() == 4
        assert await count_sleepers(shared) == 3
        await process.kill()
        assert await count_sleepers(shared) == 0
        assert await process.wait() == 4

    async def test_what_a_program_left_lives_on_unless_it_is_killed(self, sandbox: Sandbox) -> None:
        process = await sandbox.open_process(["bash", "-c", "sleep 600 >/dev/null 2>&1 & exit 0"])
        assert await process.wait() == 0
        assert await read_all(process.read) == b""
        assert await count_sleepers(sandbox) == 1

    async def test_killing_a_finished_program_does_nothing(self, shared: Sandbox) -> None:
        process = await shared.open_process(["true"])
        assert await process.wait() == 0
        await process.kill()
        assert await process.wait() == 0

    async def test_cancelled_read_loses_nothing(self, shared: Sandbox) -> None:
        process = await shared.open_process(["cat"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await process.read()
        await process.write(b"later")
        assert await _exactly(process, 5) == b"later"
        await process.kill()

    async def test_reading_and_waiting_do_not_block_others(self, shared: Sandbox) -> None:
        process = await shared.open_process(["sleep", "0.5"])
        waiting = asyncio.gather(process.read(), process.wait())
        ticks = 0
        while not waiting.done():
            ticks += 1
            await asyncio.sleep(0.01)
        assert tuple(await waiting) == (b"", 0)
        assert ticks > 5

    async def test_kill_ends_the_whole_tree_and_is_idempotent(self, shared: Sandbox) -> None:
        script = "setsid sleep 600 & (sleep 600 &) ; env -i setsid sleep 600 & echo up; sleep 600"
        process = await shared.open_process(["bash", "-c", script])
        assert await _exactly(process, 3) == b"up\n"
        await process.kill()
        await process.kill()
        assert await count_sleepers(shared) == 0
        assert await process.wait() == 137
        assert await process.read() == b""

    async def test_kill_ends_a_program_whose_output_nobody_reads(self, shared: Sandbox) -> None:
        process = await shared.open_process(["bash", "-c", "cat /dev/zero & cat /dev/zero >&2"])
        await asyncio.sleep(0.5)
        async with asyncio.timeout(15):
            await process.kill()
            assert await process.wait() == 137

    async def test_kill_spares_other_programs(self, shared: Sandbox) -> None:
        one, other = [await shared.open_process(["cat"]) for _ in range(2)]
        await one.kill()
        await other.write(b"alive")
        assert await _exactly(other, 5) == b"alive"
        await other.kill()

    async def test_cwd_env_and_user(self, shared: Sandbox) -> None:
        user = "nobody" if shared.capabilities.users else None
        argv = ["bash", "-c", "echo $PWD $BF_TEST $(id -un)"]
        process = await shared.open_process(argv, cwd="/usr", env={"BF_TEST": "x"}, user=user)
        assert (await read_all(process.read)).decode() == f"/usr x {user or 'root'}\n"

    @pytest.mark.parametrize("argv", [["/no/such/program"], ["no-such-program"], ["/etc"]])
    async def test_program_that_cannot_be_started_is_an_error_that_names_it(
        self, shared: Sandbox, argv: list[str]
    ) -> None:
        with pytest.raises(SandboxError, match=argv[0]):
            await shared.open_process(argv)

    async def test_stop_ends_the_program_and_its_reader(self, sandbox: Sandbox) -> None:
        process = await sandbox.open_process(["cat"])
        reading = asyncio.ensure_future(process.read())
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await sandbox.stop()
        async with asyncio.timeout(20):
            assert await reading == b""
        assert time.monotonic() - began < 20


async def _exactly(process: Process, count: int) -> bytes:
    data = b""
    async with asyncio.timeout(30):
        while len(data) < count and (piece := await process.read(count - len(data))):
            data += piece
    return data


async def _write_on(process: Process, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            await process.write(b"x" * _CHUNK)
