"""Commands in a sandbox: streams, statuses, settings, time."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from sandbox_helpers import processes

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes import ExecResult, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local import LocalBackend


async def test_both_streams_and_the_status_come_back(sandbox: Sandbox) -> None:
    result = await sandbox.exec("echo out; echo err >&2; exit 3")
    assert result == ExecResult(3, "out\n", "err\n")


async def test_the_command_line_is_read_by_bash(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("[[ ab == a* ]] && echo ${BASH_VERSION:+bash}")).stdout == "bash\n"


async def test_a_signal_gives_128_plus_its_number(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("kill -TERM $$")).return_code == 143


async def test_stdin_is_empty_unless_given(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("cat")).stdout == ""


async def test_stdin_reaches_the_command(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("wc -c", stdin=b"x" * 300_000)).stdout.strip() == "300000"


async def test_output_of_many_megabytes_is_complete(sandbox: Sandbox) -> None:
    result = await sandbox.exec("head -c 8000000 /dev/zero | tr '\\0' a; head -c 3000000 /dev/zero | tr '\\0' b >&2")
    assert result.stdout == "a" * 8_000_000
    assert result.stderr == "b" * 3_000_000


async def test_a_flood_keeps_its_start_and_its_end(sandbox: Sandbox) -> None:
    result = await sandbox.exec("echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert result.stdout.startswith("first\nx")
    assert result.stdout.endswith("x\nlast\n")
    assert "bytes left out" in result.stdout
    assert len(result.stdout) < 50_000_000


async def test_bytes_that_are_no_text_are_replaced(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(r"printf 'a\xffb'")).stdout == "a\ufffdb"


async def test_commands_start_in_the_working_directory(sandbox: Sandbox) -> None:
    assert sandbox.workdir == "/app"
    assert (await sandbox.exec("pwd")).stdout == "/app\n"


async def test_cwd_is_taken(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("pwd", cwd="/usr/bin")).stdout == "/usr/bin\n"


async def test_a_missing_cwd_is_a_clear_error(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="working directory /nowhere: No such file or directory"):
        await sandbox.exec("pwd", cwd="/nowhere")


async def test_env_is_added_to_the_sandbox_own(sandbox: Sandbox) -> None:
    result = await sandbox.exec('echo "$WORD|$HOME|${PATH%%:*}"', env={"WORD": "two words"})
    assert result.stdout == "two words|/root|/usr/local/sbin\n"


async def test_an_environment_larger_than_a_packet_arrives(sandbox: Sandbox) -> None:
    result = await sandbox.exec("echo ${#BIG} ${#BIGGER}", env={"BIG": "x" * 100_000, "BIGGER": "y" * 120_000})
    assert result.stdout == "100000 120000\n"


async def test_nothing_of_the_runner_environment_leaks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    backend = LocalBackend()
    sandbox = backend.create(SandboxSpec("box"))
    await sandbox.start()
    result = await sandbox.exec("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    helper = max(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    environment = Path(f"/proc/{helper}/environ").read_text()
    await backend.aclose()
    assert "sk-secret" not in result.stdout
    assert "sk-secret" not in environment


async def test_programs_inherit_no_descriptor(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("ls /proc/$$/fd; true")).stdout.split() == ["0", "1", "2"]


async def test_a_timeout_kills_the_whole_tree(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutError, match=r"timed out after 0\.3 s: sleep 3001"):
        await sandbox.exec("sleep 3001 & setsid sleep 3002 & (setsid bash -c 'sleep 3003 &' &); wait", timeout_sec=0.3)
    assert await processes(sandbox, "sleep 300") == []


async def test_cancelling_kills_the_whole_tree(sandbox: Sandbox) -> None:
    task = asyncio.create_task(sandbox.exec("setsid sleep 3011 & sleep 3012; wait"))
    await asyncio.sleep(0.3)
    assert len(await processes(sandbox, "sleep 301")) >= 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await processes(sandbox, "sleep 301") == []


async def test_a_fork_bomb_is_killed_at_its_timeout(sandbox: Sandbox) -> None:
    bomb = "f() { for i in 1 2 3 4 5 6 7 8; do sleep 3021 & done; [ $1 -gt 0 ] && { f $(($1 - 1)) & f $(($1 - 1)); }; }"
    with pytest.raises(TimeoutError):
        await sandbox.exec(f"{bomb}; f 3; sleep 3022", timeout_sec=0.5)
    assert await processes(sandbox, "sleep 302") == []


async def test_a_tree_that_never_stops_forking_is_killed(sandbox: Sandbox) -> None:
    for _ in range(6):
        with pytest.raises(TimeoutError):
            await sandbox.exec(
                "for i in 1 2 3; do (while true; do setsid sleep 3051 & done) & done; wait", timeout_sec=0.2
            )
    assert await processes(sandbox, "sleep 3051") == []


async def test_a_service_left_behind_lives_on(sandbox: Sandbox) -> None:
    started = time.monotonic()
    await sandbox.exec("sleep 3031 &")
    assert time.monotonic() - started < 5
    assert len(await processes(sandbox, "sleep 3031")) == 1


async def test_a_service_may_go_on_writing_to_its_first_output(sandbox: Sandbox) -> None:
    await sandbox.exec("(while true; do echo noise || exit; sleep 0.01; done; ) & echo $! > /tmp/pid")
    await asyncio.sleep(0.3)
    assert (await sandbox.exec("kill -0 $(cat /tmp/pid)")).return_code == 0


async def test_many_commands_run_at_once(sandbox: Sandbox) -> None:
    results = await asyncio.gather(*(sandbox.exec(f"sleep 0.05; echo {n}") for n in range(20)))
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(20)]


async def test_orphans_are_reaped(sandbox: Sandbox) -> None:
    await sandbox.exec("for i in $(seq 20); do (sleep 0 &); done; sleep 0.1")
    states = await sandbox.exec("cat /proc/[0-9]*/stat | awk '$3 == \"Z\"' | wc -l")
    assert states.stdout.strip() == "0"


async def test_a_stopped_sandbox_refuses_commands(sandbox: Sandbox) -> None:
    await sandbox.stop()
    with pytest.raises(SandboxError, match=r"box is not running; call start\(\) first"):
        await sandbox.exec("true")


async def test_a_missing_bash_is_a_clear_error(sandbox: Sandbox) -> None:
    await sandbox.exec("rm -f /usr/bin/bash /bin/bash")
    with pytest.raises(SandboxError, match="bash cannot be started: No such file or directory"):
        await sandbox.exec("true")


async def test_stopping_ends_a_running_command(sandbox: Sandbox) -> None:
    task = asyncio.create_task(sandbox.exec("sleep 3041"))
    await asyncio.sleep(0.1)
    await sandbox.stop()
    with pytest.raises(SandboxError, match="box ended"):
        await task
