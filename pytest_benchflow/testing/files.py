"""Uploads and downloads: what goes in is what comes out, and nothing comes out that could do harm."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import Sandbox
from pytest_benchflow.testing.base import SandboxSuite

# ruff: noqa: S108 - these are paths inside a sandbox


_ODD_NAMES = ["two words", "-dash", "it's", 'quo"te', "ünïcode", "line\nbreak", "x" * 200, "back\\slash", "$HOME", "*"]
_MEMORY_BYTES = 300 << 20


class FileTests(SandboxSuite):
    """What the four transfers promise."""

    async def test_file_comes_back_as_it_was(self, shared: Sandbox, tmp_path: Path) -> None:
        content = bytes(range(256)) * 10_000
        (tmp_path / "in").write_bytes(content)
        await shared.upload_file(tmp_path / "in", "/made/on the/way/file")
        await shared.download_file("/made/on the/way/file", tmp_path / "deep" / "out")
        assert (tmp_path / "deep" / "out").read_bytes() == content

    async def test_file_keeps_its_mode_and_belongs_to_root(self, shared: Sandbox, tmp_path: Path) -> None:
        for mode in (0o600, 0o644, 0o755, 0o751):
            (tmp_path / "in").write_text("x")
            (tmp_path / "in").chmod(mode)
            await shared.upload_file(tmp_path / "in", "/tmp/file")
            assert (await shared.exec("stat -c '%a %u %g' /tmp/file", user=0)).stdout == f"{mode:o} 0 0\n"
            await shared.download_file("/tmp/file", tmp_path / "out")
            assert (tmp_path / "out").stat().st_mode & 0o777 == mode | 0o600

    async def test_upload_replaces_a_file_and_never_writes_through_a_link(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        await sandbox.exec("echo precious >/tmp/precious; ln -s precious /tmp/link; echo old >/tmp/old", user=0)
        (tmp_path / "in").write_text("new")
        await sandbox.upload_file(tmp_path / "in", "/tmp/link")
        await sandbox.upload_file(tmp_path / "in", "/tmp/old")
        assert (await sandbox.exec("cat /tmp/precious /tmp/link /tmp/old")).stdout == "precious\nnewnew"

    async def test_directory_comes_back_as_it_was(self, shared: Sandbox, tmp_path: Path) -> None:
        tree = tmp_path / "in"
        (tree / "sub" / "empty").mkdir(parents=True)
        (tree / "sub" / "script.sh").write_text("echo hi")
        (tree / "sub" / "script.sh").chmod(0o755)
        (tree / "empty-file").touch()
        (tree / "link").symlink_to("sub/script.sh")
        (tree / "sub" / "up").symlink_to("../empty-file")
        await shared.upload_dir(tree, "/tmp/tree")
        await shared.download_dir("/tmp/tree", tmp_path / "out")
        assert _listing(tmp_path / "out") == _listing(tree)

    async def test_links_stay_links_whatever_they_point_to(self, shared: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "absolute").symlink_to("/etc/hostname")
        (tmp_path / "in" / "dangling").symlink_to("nothing/here")
        (tmp_path / "in" / "up").symlink_to("../..")
        await shared.upload_dir(tmp_path / "in", "/tmp/links")
        # Some engines move what is big in another way.
        (tmp_path / "in" / "big").write_bytes(bytes(5 << 20))
        await shared.upload_dir(tmp_path / "in", "/tmp/big")
        for place in ("links", "big"):
            done = await shared.exec(f"cd /tmp/{place}; readlink absolute dangling up")
            assert done.stdout == "/etc/hostname\nnothing/here\n../..\n"

    async def test_empty_directory_is_made(self, shared: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        await shared.upload_dir(tmp_path / "in", "/new/empty dir")
        assert (await shared.exec("ls -A '/new/empty dir'")).return_code == 0
        await shared.download_dir("/new/empty dir", tmp_path / "out")
        assert _listing(tmp_path / "out") == {}

    async def test_upload_adds_to_what_is_there(self, shared: Sandbox, tmp_path: Path) -> None:
        await shared.exec("mkdir -p /tmp/there/sub; echo old >/tmp/there/old; echo old >/tmp/there/sub/old", user=0)
        (tmp_path / "in" / "sub").mkdir(parents=True)
        (tmp_path / "in" / "sub" / "new").write_text("new")
        await shared.upload_dir(tmp_path / "in", "/tmp/there")
        assert (await shared.exec("cd /tmp/there; ls -1 . sub")).stdout == ".:\nold\nsub\n\nsub:\nnew\nold\n"

    async def test_upload_through_a_linked_directory(self, shared: Sandbox, tmp_path: Path) -> None:
        await shared.exec("mkdir /tmp/real; ln -s real /tmp/linked", user=0)
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "file").write_text("x")
        await shared.upload_dir(tmp_path / "in", "/tmp/linked")
        assert (await shared.exec("cat /tmp/real/file; test -L /tmp/linked && echo link")).stdout == "xlink\n"

    @pytest.mark.parametrize("name", _ODD_NAMES, ids=range(len(_ODD_NAMES)))
    async def test_odd_names(self, shared: Sandbox, tmp_path: Path, name: str) -> None:
        tree = tmp_path / "in"
        (tree / name).mkdir(parents=True)
        (tree / name / name).write_text(name)
        await shared.upload_dir(tree, f"/tmp/{name}")
        await shared.download_dir(f"/tmp/{name}", tmp_path / "out")
        assert _listing(tmp_path / "out") == _listing(tree)
        await shared.download_file(f"/tmp/{name}/{name}/{name}", tmp_path / "file")
        assert (tmp_path / "file").read_text() == name

    async def test_many_files(self, shared: Sandbox, tmp_path: Path) -> None:
        for number in range(2000):
            (tmp_path / "in" / str(number % 40)).mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / str(number % 40) / str(number)).write_text(str(number))
        await shared.upload_dir(tmp_path / "in", "/tmp/many")
        await shared.download_dir("/tmp/many", tmp_path / "out")
        assert _listing(tmp_path / "out") == _listing(tmp_path / "in")

    async def test_big_sparse_file_needs_little_memory(self, sandbox: Sandbox, tmp_path: Path) -> None:
        size = self.big_file_bytes
        with (tmp_path / "in").open("wb") as file:
            file.truncate(size)
            file.seek(size - 3)
            file.write(b"end")
        before = _peak_memory(reset=True)
        await sandbox.upload_file(tmp_path / "in", "/big")
        assert (await sandbox.exec("wc -c </big; tail -c 3 /big")).stdout.split() == [str(size), "end"]
        await sandbox.download_file("/big", tmp_path / "out")
        assert (tmp_path / "out").stat().st_size == size
        assert _peak_memory() - before < _MEMORY_BYTES

    async def test_what_is_not_there_is_not_found(self, shared: Sandbox, tmp_path: Path) -> None:
        await shared.exec("ln -s ring /tmp/ring", user=0)
        for source in ("/no/such/file", "/etc", "/tmp/ring"):
            with pytest.raises(FileNotFoundError, match=source):
                await shared.download_file(source, tmp_path / "out")
        for source in ("/no/such/directory", "/etc/passwd"):
            with pytest.raises(FileNotFoundError, match=source):
                await shared.download_dir(source, tmp_path / "out")

    async def test_paths_are_read_alike(self, shared: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "in").write_text("x")
        await shared.upload_file(tmp_path / "in", "/tmp/no/../file")
        await shared.upload_file(tmp_path / "in", "beside")
        assert (await shared.exec("cat /tmp/file beside; ls /tmp/no")).stdout == "xx"
        for path in ("", "/tmp/a\0b"):
            with pytest.raises(SandboxError, match="no path"):
                await shared.upload_file(tmp_path / "in", path)

    async def test_upload_over_a_directory_is_an_error(self, shared: Sandbox, tmp_path: Path) -> None:
        await shared.exec("mkdir -p /tmp/taken/deep", user=0)
        (tmp_path / "in").write_text("x")
        for place in ("/tmp/taken", "/tmp/taken/deep"):
            with pytest.raises(SandboxError, match="/tmp"):
                await shared.upload_file(tmp_path / "in", place)
        with (tmp_path / "in").open("wb") as file:
            file.truncate(5 << 20)
        with pytest.raises(SandboxError, match="/tmp"):
            await shared.upload_file(tmp_path / "in", "/tmp/taken/deep")

    async def test_download_follows_a_link_to_a_file(self, shared: Sandbox, tmp_path: Path) -> None:
        await shared.exec("echo content >/tmp/file; ln -s file /tmp/link", user=0)
        await shared.download_file("/tmp/link", tmp_path / "out")
        assert (tmp_path / "out").read_text() == "content\n"
        assert not (tmp_path / "out").is_symlink()

    async def test_download_drops_what_could_do_harm(self, shared: Sandbox, tmp_path: Path) -> None:
        made = await shared.exec(
            "mkdir /tmp/evil; cd /tmp/evil; ln -s / root; ln -s ../../.. up; mkfifo fifo; echo x >good;"
            "echo x >setuid; chmod 4755 setuid; ln -s good inside; ln good hard",
            user=0,
        )
        assert made.return_code == 0
        await shared.download_dir("/tmp/evil", tmp_path / "out")
        assert sorted(os.listdir(tmp_path / "out")) == ["good", "hard", "inside", "setuid"]
        assert not (tmp_path / "out" / "setuid").stat().st_mode & 0o7000

    async def test_link_to_a_file_of_the_host_leads_nowhere(self, shared: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        await shared.exec(f"ln -s {tmp_path}/secret /tmp/reward.txt", user=0)
        with pytest.raises(FileNotFoundError):
            await shared.download_file("/tmp/reward.txt", tmp_path / "out")

    async def test_fifo_does_not_hang_the_download(self, sandbox: Sandbox, tmp_path: Path) -> None:
        await sandbox.exec("mkfifo /tmp/reward.txt", user=0)
        with pytest.raises(FileNotFoundError, match="/tmp/reward"):
            async with asyncio.timeout(60):
                await sandbox.download_file("/tmp/reward.txt", tmp_path / "out")

    async def test_growing_file_does_not_break_the_download(self, sandbox: Sandbox, tmp_path: Path) -> None:
        grow = (
            "mkdir /tmp/log; echo line >/tmp/log/file; (while :; do echo line >>/tmp/log/file; done) >/dev/null 2>&1 &"
        )
        await sandbox.exec(grow, user=0)
        await sandbox.download_dir("/tmp/log", tmp_path / "out")
        assert (tmp_path / "out" / "file").read_text().startswith("line\n")

    async def test_what_is_not_on_the_host_cannot_be_uploaded(self, shared: Sandbox, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="missing"):
            await shared.upload_file(tmp_path / "missing", "/tmp/file")
        with pytest.raises(FileNotFoundError, match="missing"):
            await shared.upload_dir(tmp_path / "missing", "/tmp/directory")

    async def test_upload_is_a_copy(self, shared: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "in").write_text("x")
        await shared.upload_file(tmp_path / "in", "/tmp/mine")
        (tmp_path / "in").write_text("changed")
        assert (await shared.exec("cat /tmp/mine")).stdout == "x"


def _listing(top: Path) -> dict[str, tuple[int, str]]:
    """Map each name below a directory to its mode and what it holds."""
    found = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode
        if path.is_symlink():
            found[str(path.relative_to(top))] = (0, os.readlink(path))
        elif path.is_dir():
            found[str(path.relative_to(top))] = (0, "directory")
        else:
            found[str(path.relative_to(top))] = (mode, path.read_bytes().hex())
    return found


def _peak_memory(*, reset: bool = False) -> int:
    """Return this process's peak memory in bytes, counted from the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10
