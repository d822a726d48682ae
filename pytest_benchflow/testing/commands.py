"""`exec`: status, streams, input, directory, environment, users, time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Backend, Sandbox
from pytest_benchflow.testing.base import SandboxSuite, count_sleepers

_IMPOSSIBLE: list[tuple[str, dict[str, Any], str]] = [
    ("a\0b", {}, "NUL"),
    ("true", {"cwd": "/a\0b"}, "NUL"),
    ("true", {"env": {"A": "\0"}}, "'A'"),
    ("true", {"env": {"A=B": "c"}}, "'A=B'"),
    ("true", {"env": {"": "c"}}, "''"),
    ("true", {"user": ""}, "''"),
    ("true", {"user": -1}, "-1"),
    ("true", {"env": {"A": "x" * 3_000_000}}, "(?i)argument list too long"),
]


class CommandTests(SandboxSuite):
    """What `exec` promises."""

    async def test_exec_returns_the_exit_status(self, shared: Sandbox) -> None:
        assert [(await shared.exec(f"exit {code}")).return_code for code in (0, 1, 42, 255)] == [0, 1, 42, 255]

    async def test_exec_keeps_the_two_streams_apart(self, shared: Sandbox) -> None:
        done = await shared.exec("echo out; echo err >&2; echo out again")
        assert (done.stdout, done.stderr) == ("out\nout again\n", "err\n")

    async def test_exec_is_bash(self, shared: Sandbox) -> None:
        done = await shared.exec("set -o pipefail; a=(x y); false | true; echo ${a[1]} $?")
        assert (done.return_code, done.stdout) == (0, "y 1\n")
        assert (await shared.exec("echo $PATH", env={"PATH": "/none"})).stdout == "/none\n"

    async def test_exec_takes_any_text_as_command(self, shared: Sandbox) -> None:
        done = await shared.exec("printf '%s|' \"it's\" 'a\\b' \"$((1+1))\" 'ü\t%s' '\"'\necho; echo $'two\\nlines'")
        assert done.stdout == "it's|a\\b|2|ü\t%s|\"|\ntwo\nlines\n"

    async def test_exec_takes_a_long_command(self, shared: Sandbox) -> None:
        done = await shared.exec(f"x='{'a' * 100_000}'; echo ${{#x}}")
        assert done.stdout == "100000\n"

    async def test_command_that_no_system_could_start_is_an_error(self, shared: Sandbox) -> None:
        for command, how, word in _IMPOSSIBLE:
            with pytest.raises(SandboxError, match=word):
                await shared.exec(command, **how)
        with pytest.raises(SandboxError, match="without a program"):
            await shared.open_process([])

    async def test_status_of_a_command_that_a_signal_ended_is_128_and_its_number(self, shared: Sandbox) -> None:
        done = await shared.exec("echo before; kill -9 $$")
        assert (done.return_code, done.stdout, done.stderr) == (137, "before\n", "")

    async def test_command_that_kills_its_own_process_group_ends(self, shared: Sandbox) -> None:
        assert (await shared.exec("kill 0; sleep 60", timeout_sec=30)).return_code == 143
        assert (await shared.exec("echo on")).stdout == "on\n"

    async def test_large_output_is_complete(self, shared: Sandbox) -> None:
        done = await shared.exec("head -c 8000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2")
        assert (len(done.stdout), set(done.stdout)) == (8_000_000, {"x"})
        assert (len(done.stderr), set(done.stderr)) == (3_000_000, {"y"})

    async def test_flood_of_output_ends_and_keeps_its_start_and_end(self, shared: Sandbox) -> None:
        done = await shared.exec("echo first; head -c 100000000 /dev/zero; echo last", timeout_sec=120)
        assert done.stdout.startswith("first\n")
        assert done.stdout.endswith("last\n")
        assert len(done.stdout) < 50_000_000, "a flood fills the runner's memory"

    async def test_binary_output_is_decoded_with_replacement(self, shared: Sandbox) -> None:
        done = await shared.exec("printf 'a\\000b\\377c'")
        assert done.stdout == "a\0b\ufffdc"

    async def test_output_without_a_last_newline_is_exact(self, shared: Sandbox) -> None:
        done = await shared.exec("printf abc; printf def >&2")
        assert (done.stdout, done.stderr) == ("abc", "def")

    async def test_stdin_reaches_the_command_to_its_end(self, shared: Sandbox) -> None:
        assert (await shared.exec("cat; echo .", stdin=b"two\nlines")).stdout == "two\nlines.\n"
        assert (await shared.exec("wc -c", stdin=bytes(range(256)) * 20_000)).stdout.strip() == "5120000"
        assert (await shared.exec("wc -c", stdin=b"")).stdout.strip() == "0"

    async def test_stdin_that_nobody_reads_does_not_block(self, shared: Sandbox) -> None:
        assert (await shared.exec("echo done", stdin=b"x" * 5_000_000, timeout_sec=60)).stdout == "done\n"

    async def test_command_without_stdin_reads_an_empty_one(self, shared: Sandbox) -> None:
        assert (await shared.exec("cat; echo end", timeout_sec=30)).stdout == "end\n"

    async def test_cwd_is_the_workdir_unless_given(self, shared: Sandbox) -> None:
        assert (await shared.exec("pwd")).stdout == f"{shared.workdir}\n"
        assert (await shared.exec("pwd", cwd="/usr")).stdout == "/usr\n"
        await shared.exec("mkdir below", user=0)
        assert (await shared.exec("pwd", cwd="below")).stdout == f"{shared.workdir.rstrip('/')}/below\n"

    async def test_missing_cwd_is_an_error_that_names_it(self, shared: Sandbox) -> None:
        with pytest.raises(SandboxError, match="/no/such/place"):
            await shared.exec("pwd", cwd="/no/such/place")

    async def test_env_of_a_call_is_exact_and_only_for_it(self, shared: Sandbox) -> None:
        value = 'it\'s "q" $HOME \\n\nsecond line ü'
        assert (await shared.exec('printf %s "$BF_TEST"', env={"BF_TEST": value})).stdout == value
        assert (await shared.exec('echo "${BF_TEST-unset}"')).stdout == "unset\n"

    async def test_env_names_that_no_shell_takes_reach_programs(self, shared: Sandbox) -> None:
        done = await shared.exec("env", env={"a.b-c": "dotted"})
        assert "a.b-c=dotted" in done.stdout.splitlines()

    async def test_env_of_the_spec_is_there_and_a_call_goes_over_it(self, backend: Backend) -> None:
        async with self.started(backend, env={"BF_SPEC": "spec", "BF_BOTH": "spec"}) as sandbox:
            done = await sandbox.exec("echo $BF_SPEC $BF_BOTH", env={"BF_BOTH": "call"})
            assert done.stdout == "spec call\n"

    async def test_secret_in_the_env_is_in_no_command_line(self, shared: Sandbox, token: str) -> None:
        done = await shared.exec("cat /proc/[0-9]*/cmdline", env={"BF_SECRET": token})
        assert token not in done.stdout
        assert not self.host_processes(token)

    async def test_workdir_of_the_spec_is_made(self, backend: Backend) -> None:
        async with self.started(backend, workdir="/some/where else") as sandbox:
            assert (await sandbox.exec("pwd")).stdout == "/some/where else\n"

    async def test_user_by_name_and_number(self, shared: Sandbox) -> None:
        if not shared.capabilities.users:
            pytest.skip("the backend has no users")
        assert (await shared.exec("id -un", user="nobody")).stdout == "nobody\n"
        assert (await shared.exec("id -u", user=12345)).stdout == "12345\n"
        assert (await shared.exec("id -u", user=0)).stdout == "0\n"
        assert (await shared.exec("id -u", user="root")).stdout == "0\n"

    async def test_unknown_user_is_an_error_that_names_it(self, shared: Sandbox) -> None:
        if not shared.capabilities.users:
            pytest.skip("the backend has no users")
        with pytest.raises(SandboxError, match="no-such-user"):
            await shared.exec("id", user="no-such-user")

    async def test_timeout_raises_and_the_sandbox_goes_on(self, shared: Sandbox) -> None:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"0\.5 s"):
            await shared.exec("sleep 60", timeout_sec=0.5)
        assert time.monotonic() - began < 20
        assert (await shared.exec("echo on")).stdout == "on\n"

    @pytest.mark.parametrize(
        "start",
        [
            "sleep 600 &",
            "(trap '' TERM INT HUP; sleep 600) &",
            "setsid sleep 600 &",
            "(setsid bash -c 'sleep 600 & sleep 600' & )",
            "env -i setsid sleep 600 &",
            "(env -i setsid bash -c 'sleep 600 & exec sleep 600' >/dev/null 2>&1 & )",
        ],
        ids=["child", "deaf", "session", "double-fork", "no-environment", "double-fork-no-environment"],
    )
    async def test_timeout_kills_the_whole_tree(self, shared: Sandbox, start: str) -> None:
        with pytest.raises(TimeoutError):
            await shared.exec(f"{start}\nsleep 600", timeout_sec=1)
        assert await count_sleepers(shared) == 0

    async def test_timeout_kills_another_users_tree(self, shared: Sandbox) -> None:
        if not shared.capabilities.users:
            pytest.skip("the backend has no users")
        command = "(setsid sleep 600 &); env -i setsid sleep 600 & sleep 600"
        with pytest.raises(TimeoutError):
            await shared.exec(command, user="nobody", timeout_sec=1)
        assert await count_sleepers(shared) == 0

    async def test_timeout_spares_what_earlier_commands_started(self, sandbox: Sandbox) -> None:
        await sandbox.exec("setsid sleep 600 >/dev/null 2>&1 & sleep 0.3")
        with pytest.raises(TimeoutError):
            await sandbox.exec("sleep 600", timeout_sec=0.5)
        assert await count_sleepers(sandbox) == 1

    async def test_cancellation_kills_the_tree(self, shared: Sandbox) -> None:
        running = asyncio.ensure_future(shared.exec("setsid sleep 600 & sleep 600"))
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await count_sleepers(shared) == 0

    async def test_background_process_neither_delays_the_command_nor_dies_with_it(self, sandbox: Sandbox) -> None:
        began = time.monotonic()
        done = await sandbox.exec("sleep 600 & echo started")
        assert done.stdout == "started\n"
        assert time.monotonic() - began < 10
        assert await count_sleepers(sandbox) == 1

    async def test_late_output_of_a_background_process_is_in_no_other_result(self, sandbox: Sandbox) -> None:
        await sandbox.exec("(for i in 1 2 3 4 5 6 7 8; do sleep 0.1; echo late; done) &")
        results = [await sandbox.exec("sleep 0.2; echo mine") for _ in range(3)]
        assert {done.stdout for done in results} == {"mine\n"}

    async def test_commands_run_side_by_side(self, shared: Sandbox) -> None:
        began = time.monotonic()
        results = await asyncio.gather(*(shared.exec(f"sleep 2; echo {n}") for n in range(5)))
        assert [done.stdout for done in results] == [f"{n}\n" for n in range(5)]
        assert time.monotonic() - began < 9

    async def test_killing_every_process_leaves_the_sandbox_usable(self, sandbox: Sandbox, stranger: str) -> None:
        await self.require_isolation(sandbox, stranger)
        await sandbox.exec("setsid sleep 600 & sleep 600 &")
        await sandbox.exec("kill -9 -1", user=0, timeout_sec=30)
        assert await count_sleepers(sandbox) == 0
        assert (await sandbox.exec("echo on")).stdout == "on\n"
