"""Programs in a local sandbox, beyond what the public suite asks of every sandbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from sandbox_helpers import processes, zygotes

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend
from pytest_benchflow.sandboxes.local.guest import programs
from pytest_benchflow.sandboxes.local.sandbox import LocalSandbox

#: The number and the start of each program with an odd name.
STARTS = """for f in /proc/[0-9]*/stat; do
  line=$(cat "$f"); [[ $line == *"(a) b)"* ]] && set -- ${line##*) } && p=${f#/proc/} && echo "${p%/stat}:${20}"
done"""


async def test_env_is_added_to_the_sandbox_own(sandbox: Sandbox) -> None:
    result = await sandbox.exec('echo "$WORD|$HOME|${PATH%%:*}"', env={"WORD": "two words"})
    assert result.stdout == "two words|/root|/usr/local/sbin\n"


async def test_an_environment_larger_than_a_packet_arrives(sandbox: Sandbox) -> None:
    result = await sandbox.exec("echo ${#BIG} ${#BIGGER}", env={"BIG": "x" * 100_000, "BIGGER": "y" * 120_000})
    assert result.stdout == "100000 120000\n"


async def test_nothing_of_the_runner_environment_leaks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    backend = LocalBackend()
    sandbox, before = backend.create(SandboxSpec("box")), zygotes()
    await sandbox.start()
    result = await sandbox.exec("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    (zygote,) = zygotes() - before
    environment = Path(f"/proc/{zygote}/environ").read_text()
    await backend.aclose()
    assert "sk-secret" not in result.stdout
    assert "sk-secret" not in environment


async def test_a_tree_that_forks_as_fast_as_it_can_is_killed(sandbox: Sandbox) -> None:
    # It counts: where no limit on processes holds and the end comes late, it must be no burden to the machine.
    forks = "for i in 1 2 3; do (for n in {1..300}; do setsid sleep 3051 & done; wait) & done; wait"
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await sandbox.exec(forks, timeout_sec=0.2)
    assert await processes(sandbox, "sleep 3051") == []


async def test_a_service_may_go_on_writing_to_its_first_output(sandbox: Sandbox) -> None:
    await sandbox.exec("(while true; do echo noise || exit; sleep 0.01; done; ) & echo $! > /tmp/pid")
    await asyncio.sleep(0.3)
    assert (await sandbox.exec("kill -0 $(cat /tmp/pid)")).return_code == 0


async def test_what_is_killed_is_told_unless_it_is_kept(sandbox: LocalSandbox) -> None:
    for _ in range(2):
        await sandbox.exec("cp /bin/sleep '/tmp/a) b'; setsid '/tmp/a) b' 1000 >/dev/null 2>&1 &")
    kept, other = (await sandbox.exec(STARTS)).stdout.split()
    killed = await sandbox.end_programs(keep=[kept])
    assert [(program.id, program.name) for program in killed] == [(other, "a) b")]


async def test_orphans_are_reaped(sandbox: Sandbox) -> None:
    await sandbox.exec("for i in $(seq 20); do (sleep 0 &); done; sleep 0.1")
    states = await sandbox.exec("cat /proc/[0-9]*/stat | awk '$3 == \"Z\"' | wc -l")
    assert states.stdout.strip() == "0"


async def test_a_missing_bash_is_a_clear_error(sandbox: Sandbox) -> None:
    await sandbox.exec("rm -f /usr/bin/bash /bin/bash")
    with pytest.raises(SandboxError, match="bash cannot be started: No such file or directory"):
        await sandbox.exec("true")


async def test_arguments_that_are_no_text_are_passed_as_they_are(sandbox: Sandbox) -> None:
    process = await sandbox.open_process(["printf", "%s", "ä\udcff"])
    assert await process.read() == b"\xc3\xa4\xff"
    assert await process.wait() == 0


async def test_a_program_leaves_no_supervisor_when_nothing_is_left(sandbox: Sandbox) -> None:
    before = await sandbox.exec("ls -d /proc/[0-9]* | wc -l")
    for _ in range(3):
        process = await sandbox.open_process(["bash", "-c", "sleep 0.1 & exit 0"])
        assert await process.wait() == 0
    async with asyncio.timeout(20):
        while (await sandbox.exec("ls -d /proc/[0-9]* | wc -l")).stdout != before.stdout:
            pass


async def test_an_upload_that_cannot_be_written_says_why(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SandboxError, match=r"cannot write /proc/nope in sandbox box: .*No such file"):
        await sandbox.upload_dir(tmp_path, "/proc/nope")


def test_what_a_supervisor_is_about_to_start_is_killed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = os.getpid()
    done: list[str] = []
    states = iter("RRT")
    monkeypatch.setattr(programs, "_signal", lambda pid, number: done.append(f"{number.name} {pid}"))
    monkeypatch.setattr(programs, "_state_and_parent", lambda pid: (next(states), 1))
    # The child that was on its way is seen only once its parent has stopped.
    found = iter([[7], [7], [7], []])
    monkeypatch.setattr(programs, "descendants", lambda root: next(found) if next(states, None) is None else [])
    programs.kill(supervisor)
    assert done == [f"SIGSTOP {supervisor}", "SIGSTOP 7", "SIGKILL 7", f"SIGKILL {supervisor}"]
