"""Archives that a sandbox might send."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, strategies as st

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes.archive import (
    ArchiveLimits,
    pack_dir,
    pack_file,
    stays_inside,
    unpack_dir,
    unpack_file,
)


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"", mode: int = 0o644
) -> tuple[tarfile.TarInfo, bytes]:
    """Describe one entry of a hostile archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, link, len(data), mode
    return info, data


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    """Write an archive as it would arrive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    stream.seek(0)
    return stream


def names(top: Path) -> list[str]:
    """List everything below a directory."""
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "a/.."])
def test_a_path_that_leaves_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="leaves its directory"):
        unpack_dir(archive(member(name, data=b"x")), tmp_path / "out")
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("name", "link", "expected"),
    [
        ("l", "file", True),
        ("l", "./file", True),
        ("a/l", "../file", True),
        ("l", "missing/later", True),
        ("l", "/etc", False),
        ("l", "..", False),
        ("l", "../x", False),
        ("a/l", "../../x", False),
        ("l", "a/../../x", False),
        ("l", "a/..", False),
        ("a/b/l", "../..", True),
    ],
)
def test_only_links_that_stay_inside_are_kept(name: str, link: str, expected: bool, tmp_path: Path) -> None:
    unpack_dir(archive(member(name, tarfile.SYMTYPE, link)), tmp_path / "out")
    assert (tmp_path / "out" / name).is_symlink() == expected
    assert stays_inside(PurePosixPath(name), link) == expected


def test_a_path_that_no_host_can_name_is_left_out(tmp_path: Path) -> None:
    deep = "/".join(["d" * 200] * 30)
    members = [member(deep, tarfile.DIRTYPE), member(f"{deep}/f"), member(f"{deep}/l", tarfile.SYMTYPE, "f")]
    unpack_dir(archive(*members, member("x" * 300), member("kept", data=b"x")), tmp_path / "out")
    assert (tmp_path / "out" / "kept").read_bytes() == b"x"


def test_a_file_never_replaces_a_directory_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    with pytest.raises(IsADirectoryError, match="precious"):
        unpack_file(archive(member("f", data=b"x")), tmp_path / "precious")
    assert names(tmp_path) == ["precious", "precious/file"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_only_a_file_can_be_sent_as_one(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "odd")
    with pytest.raises(FileNotFoundError, match="odd is not a file"):
        pack_file(tmp_path / "odd", "name", io.BytesIO())


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    unpack_dir(
        archive(
            member("d", tarfile.SYMTYPE, "../victim"),
            member("d/file", data=b"x"),
            member("e", tarfile.SYMTYPE, "inner"),
            member("e/file", data=b"y"),
            member("inner", tarfile.DIRTYPE),
        ),
        tmp_path / "out",
    )
    assert names(tmp_path / "victim") == []
    assert (tmp_path / "out/d/file").read_bytes() == b"x"


def test_nothing_is_written_through_a_link_that_was_there(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "dir").mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / "file").symlink_to(victim)
    (out / "sub").symlink_to(tmp_path / "dir")
    unpack_dir(archive(member("file", data=b"new"), member("sub/x", data=b"x")), out)
    assert victim.read_text() == "precious"
    assert names(tmp_path / "dir") == []
    assert (out / "file").read_text() == "new"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_special_files_are_dropped(kind: bytes, tmp_path: Path) -> None:
    unpack_dir(archive(member("special", kind), member("file", data=b"x")), tmp_path)
    assert names(tmp_path) == ["file"]


def test_set_uid_bits_are_dropped_and_the_owner_can_always_read(tmp_path: Path) -> None:
    unpack_dir(archive(member("a", mode=0o6755), member("b", mode=0o000)), tmp_path)
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o600


def test_hard_links_join_only_files_of_the_archive(tmp_path: Path) -> None:
    unpack_dir(
        archive(member("a", data=b"x"), member("b", tarfile.LNKTYPE, "a"), member("c", tarfile.LNKTYPE, "no")), tmp_path
    )
    assert names(tmp_path) == ["a", "b"]
    with pytest.raises(SandboxError, match="leaves its directory"):
        unpack_dir(archive(member("d", tarfile.LNKTYPE, "/etc/passwd")), tmp_path)


def test_too_many_bytes_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="more than 1 MB, at 'b'"):
        unpack_dir(
            archive(member("a", data=b"x" * 600_000), member("b", data=b"x" * 600_000)),
            tmp_path,
            ArchiveLimits(1 << 20),
        )
    with pytest.raises(SandboxError, match="more than 1 MB"):
        unpack_file(archive(member("a", data=b"x" * 1_200_000)), tmp_path / "f", ArchiveLimits(1 << 20))
    assert not (tmp_path / "f").exists()


def test_too_many_members_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="more than 3 files"):
        unpack_dir(archive(*(member(str(n)) for n in range(4))), tmp_path, ArchiveLimits(members=3))


def test_a_header_bomb_is_an_error(tmp_path: Path) -> None:
    bomb = tarfile.TarInfo("x")
    bomb.type, bomb.size = tarfile.XHDTYPE, 1 << 30
    with pytest.raises(SandboxError, match="header of 1073741824 bytes"):
        unpack_dir(io.BytesIO(bomb.tobuf() + b"\0" * 10_000), tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"no tar at all" * 100, archive(member("a", data=b"x" * 5000)).getvalue()[:1500]]
)
def test_a_broken_stream_is_an_error_of_the_sandbox(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="broken archive"):
        unpack_dir(io.BytesIO(data), tmp_path)


@given(st.binary(max_size=2000), st.integers(0, 511), st.binary(max_size=40))
def test_no_bytes_make_unpacking_crash(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int, patch: bytes
) -> None:
    good = archive(member("a/b", data=b"x"), member("l", tarfile.SYMTYPE, "a")).getvalue()
    for data in (noise, good[:at] + patch + good[at + len(patch) :]):
        try:
            unpack_dir(io.BytesIO(data), tmp_path_factory.mktemp("fuzz"))
        except SandboxError:
            continue


def test_a_directory_where_a_file_is_expected_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"reward\.txt in the sandbox is not a regular file"):
        unpack_file(archive(member("reward.txt", tarfile.DIRTYPE)), tmp_path / "reward.txt")


def test_packing_keeps_links_and_skips_what_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    (source / "sub/file").write_text("x")
    (source / "skip").write_text("s")
    (source / "link").symlink_to("sub/file")
    os.mkfifo(source / "pipe")
    stream = io.BytesIO()
    pack_dir(source, stream, keep=lambda name: name != "skip")
    stream.seek(0)
    unpack_dir(stream, tmp_path / "out")
    assert names(tmp_path / "out") == ["link", "sub", "sub/file"]


def test_packing_a_linked_file_packs_its_content(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("content")
    (tmp_path / "link").symlink_to("real")
    stream = io.BytesIO()
    pack_file(tmp_path / "link", "name", stream)
    stream.seek(0)
    unpack_file(stream, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "content"


def record(**fields: str) -> bytes:
    """Write an extended header, padded to a block."""
    text = b""
    for key, value in fields.items():
        body = f" {key.replace('__', '.')}={value}\n".encode()
        size = len(body) + len(str(len(body) + 2))
        text += b"%d%s" % (size, body)
    return text + b"\0" * (-len(text) % 512)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_an_archive_of_nothing_but_headers_is_an_error(kind: bytes, tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 12
    with pytest.raises(SandboxError, match="nothing but headers"):
        unpack_dir(io.BytesIO((header.tobuf() + record(a="bbbbbbb")) * 5000), tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {"GNU__sparse__major": "1", "GNU__sparse__minor": "0", "GNU__sparse__name": "s"},
        {"GNU__sparse__map": "0,1", "GNU__sparse__size": "9999999999999"},
        {"GNU__sparse__size": "10", "GNU__sparse__numblocks": "1"},
    ],
)
def test_a_map_of_a_sparse_file_is_never_read(fields: dict[str, str], tmp_path: Path) -> None:
    head, text = tarfile.TarInfo("x"), record(**fields)
    head.type, head.size = tarfile.XHDTYPE, len(text.rstrip(b"\0"))
    whole = head.tobuf() + text + member("s", data=b"9" * 512)[0].tobuf() + b"99999999\n" * 5000
    with pytest.raises(SandboxError, match="sparse file"):
        unpack_dir(io.BytesIO(whole), tmp_path)
    old = tarfile.TarInfo("s")
    old.type = tarfile.GNUTYPE_SPARSE
    with pytest.raises(SandboxError, match="sparse file"):
        unpack_dir(io.BytesIO(old.tobuf() + b"\0" * 1024), tmp_path)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("name", ["", ".", "./"])
def test_nothing_takes_the_place_of_the_directory_itself(kind: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").touch()
    unpack_dir(archive(member(name, kind, link="kept"), member("new", data=b"x")), tmp_path / "out")
    assert names(tmp_path / "out") == ["kept", "new"]
