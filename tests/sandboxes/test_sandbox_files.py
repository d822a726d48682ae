"""Files into and out of a sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_benchflow.errors import SandboxError
from pytest_benchflow.sandboxes import Sandbox


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with everything that is easy to lose."""
    top = tmp_path / "tree"
    (top / "empty").mkdir(parents=True)
    (top / "deep/er").mkdir(parents=True)
    (top / "deep/er/data.bin").write_bytes(bytes(range(256)) * 1000)
    (top / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (top / "run.sh").chmod(0o755)
    (top / "private").write_text("p")
    (top / "private").chmod(0o600)
    (top / "link").symlink_to("deep/er/data.bin")
    (top / "dangling").symlink_to("/nowhere")
    (top / "odd name\n*?$'\"ü").write_text("odd")
    (top / ("n" * 200)).write_text("long")
    return top


async def test_a_directory_makes_the_round_trip(sandbox: Sandbox, tree: Path, tmp_path: Path) -> None:
    await sandbox.upload_dir(tree, "/data/in")
    await sandbox.download_dir("/data/in", tmp_path / "out")
    out = tmp_path / "out"
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in tree.iterdir() if p.name != "dangling")
    assert (out / "deep/er/data.bin").read_bytes() == (tree / "deep/er/data.bin").read_bytes()
    assert (out / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (out / "private").stat().st_mode & 0o777 == 0o600
    assert os.readlink(out / "link") == "deep/er/data.bin"
    assert (out / "empty").is_dir()


async def test_uploads_belong_to_root_and_keep_modes_and_links(sandbox: Sandbox, tree: Path) -> None:
    await sandbox.upload_dir(tree, "/data")
    listing = await sandbox.exec("stat -c '%n %U %a' /data/run.sh /data/private; readlink /data/dangling; /data/run.sh")
    assert listing.stdout.splitlines() == ["/data/run.sh root 755", "/data/private root 600", "/nowhere", "ran"]


async def test_a_file_goes_to_exactly_its_target(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "a.sh"
    source.write_text("echo hi\n")
    source.chmod(0o750)
    await sandbox.upload_file(source, "/new/dir/b.sh")
    assert (await sandbox.exec("stat -c %a /new/dir/b.sh; ls /new/dir")).stdout.split() == ["750", "b.sh"]


async def test_an_upload_replaces_a_link_instead_of_writing_through_it(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "test.sh"
    source.write_text("new")
    await sandbox.exec("mkdir /tests; echo precious > /app/victim; ln -s /app/victim /tests/test.sh")
    await sandbox.upload_file(source, "/tests/test.sh")
    assert (await sandbox.exec("cat /tests/test.sh; cat /app/victim")).stdout == "newprecious\n"


async def test_an_upload_into_an_existing_directory_keeps_what_is_there(sandbox: Sandbox, tree: Path) -> None:
    await sandbox.exec("mkdir -p /data/deep; echo old > /data/deep/old; echo old > /data/run.sh")
    await sandbox.upload_dir(tree, "/data")
    assert (await sandbox.exec("cat /data/deep/old; tail -1 /data/run.sh")).stdout == "old\necho ran\n"


async def test_a_missing_download_is_file_not_found(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file /nope in sandbox box"):
        await sandbox.download_file("/nope", tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="no directory /nope in sandbox box"):
        await sandbox.download_dir("/nope", tmp_path / "x")
    assert not (tmp_path / "x").is_file()


async def test_a_directory_is_no_file_and_a_file_no_directory(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/etc in sandbox box is no file"):
        await sandbox.download_file("/etc", tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="/etc/passwd in sandbox box is no directory"):
        await sandbox.download_dir("/etc/passwd", tmp_path / "x")


async def test_a_missing_source_is_the_callers_error(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await sandbox.upload_file(tmp_path / "missing", "/x")


async def test_links_that_leave_and_special_files_stay_behind(sandbox: Sandbox, tmp_path: Path) -> None:
    await sandbox.exec(
        "mkdir -p /out/sub; cd /out; ln -s /etc/passwd abs; ln -s ../../../etc up; ln -s sub inside;"
        "mkfifo pipe; echo x > suid; chmod 6755 suid; echo y > sub/file"
    )
    await sandbox.download_dir("/out", tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["inside", "sub", "suid"]
    assert (tmp_path / "out/suid").stat().st_mode & 0o7000 == 0
    assert (tmp_path / "out/inside/file").read_text() == "y\n"


async def test_a_link_downloads_as_what_the_sandbox_sees_behind_it(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "host-secret"
    secret.write_text("secret")
    await sandbox.exec(f"ln -s {secret} /app/reward.txt; ln -s /etc/hostname /app/name")
    with pytest.raises(FileNotFoundError):
        await sandbox.download_file("/app/reward.txt", tmp_path / "x")
    await sandbox.download_file("/app/name", tmp_path / "name")
    assert (tmp_path / "name").read_text() == "sandbox\n"


async def test_a_fifo_does_not_hang_the_download(sandbox: Sandbox, tmp_path: Path) -> None:
    await sandbox.exec("mkfifo /app/reward.txt")
    with pytest.raises(FileNotFoundError, match="is no file"):
        await sandbox.download_file("/app/reward.txt", tmp_path / "x")


async def test_a_growing_file_does_not_break_the_download(sandbox: Sandbox, tmp_path: Path) -> None:
    await sandbox.exec(
        "mkdir /logs/x; echo line > /logs/x/log; (while true; do echo line >> /logs/x/log; done) > /dev/null 2>&1 &"
    )
    await sandbox.download_dir("/logs/x", tmp_path / "out")
    assert (tmp_path / "out/log").read_text().startswith("line\n")


async def test_large_files_travel_whole(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(os.urandom(1 << 20) * 40)
    await sandbox.upload_file(source, "/big")
    await sandbox.download_file("/big", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


async def test_an_upload_that_cannot_be_written_says_why(sandbox: Sandbox, tree: Path) -> None:
    with pytest.raises(SandboxError, match=r"cannot write /proc/nope in sandbox box: .*No such file"):
        await sandbox.upload_dir(tree, "/proc/nope")
