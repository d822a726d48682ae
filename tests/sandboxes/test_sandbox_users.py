"""Who programs run as."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sandbox_helpers import StartSandbox, needs_users, only_root

from pytest_benchflow.core.errors import UnsupportedError
from pytest_benchflow.sandboxes import Sandbox


async def test_programs_run_as_root_by_default(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("id -un; echo $HOME $USER $LOGNAME")).stdout == "root\n/root root root\n"


async def test_capabilities_say_whether_users_exist(sandbox: Sandbox) -> None:
    assert sandbox.capabilities.users == (os.geteuid() == 0)


@needs_users
async def test_a_user_of_the_sandbox_is_found_by_name_and_number(sandbox: Sandbox) -> None:
    await sandbox.exec("groupadd extra; useradd -u 1500 -m -G extra agent")
    for user in ("agent", 1500, "1500"):
        result = await sandbox.exec("id -un; id -Gn; echo $HOME $USER; pwd", user=user)
        assert result.stdout == "agent\nagent extra\n/home/agent agent\n/app\n"


@needs_users
async def test_a_number_without_an_account_works(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("id -u; id -g", user=4242)).stdout == "4242\n0\n"


@needs_users
async def test_a_user_has_no_rights_of_root(sandbox: Sandbox) -> None:
    await sandbox.exec("useradd agent")
    result = await sandbox.exec("grep CapEff /proc/self/status; touch /etc/x; kill -9 2", user="agent")
    assert "0000000000000000" in result.stdout
    assert result.stderr.count("ermission denied") == 1
    assert "not permitted" in result.stderr or "No such process" in result.stderr


@needs_users
async def test_a_user_may_open_its_own_streams_by_name(sandbox: Sandbox) -> None:
    await sandbox.exec("useradd agent")
    result = await sandbox.exec("echo out > /dev/stdout; echo err > /dev/stderr", user="agent")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


@needs_users
async def test_the_images_user_is_the_default(start: StartSandbox, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nRUN useradd -m worker\nUSER worker\n")
    sandbox = await start(environment_dir=tmp_path)
    assert (await sandbox.exec("id -un")).stdout == "worker\n"
    assert (await sandbox.exec("id -un", user="root")).stdout == "root\n"


@only_root
async def test_an_ordinary_users_sandbox_refuses_other_users(sandbox: Sandbox) -> None:
    with pytest.raises(UnsupportedError, match="cannot run a program as user 'agent'"):
        await sandbox.exec("true", user="agent")
    assert (await sandbox.exec("id -u", user="root")).stdout == "0\n"


@only_root
async def test_an_ordinary_users_sandbox_runs_the_images_user_as_root_and_says_so(
    start: StartSandbox, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nUSER worker\n")
    sandbox = await start(environment_dir=tmp_path)
    assert (await sandbox.exec("id -un")).stdout == "root\n"
    assert any("USER worker is root here" in note for note in sandbox.notes)


@only_root
async def test_a_change_of_owner_to_somebody_who_cannot_exist_has_no_effect(sandbox: Sandbox) -> None:
    script = "useradd -m agent && touch /f && chown agent:agent /f && install -o agent /f /g && chown 0:0 /f"
    done = await sandbox.exec(f"{script} && stat -c %U /f /g /home/agent/.profile")
    assert (done.stdout, done.stderr) == ("root\n" * 3, "")
    assert (await sandbox.exec("chown agent /missing")).return_code != 0
