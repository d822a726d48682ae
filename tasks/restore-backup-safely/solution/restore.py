"""Unpack an archive that is not to be trusted: restore.py ARCHIVE DESTINATION REPORT."""

import json
import os
import shutil
import stat
import sys
import tarfile
from pathlib import Path, PurePosixPath


class Refused(Exception):
    """A member that is not restored; its text is the reason."""


def parts(name: str) -> list[str]:
    """Split a member's name; absolute names and `..` are refused."""
    if name.startswith("/") or ".." in name.split("/"):
        raise Refused("path")
    return list(PurePosixPath(name).parts)


def leaves(folder: list[str], target: str) -> bool:
    """Tell whether a symbolic link in `folder` leads out of the destination at any point."""
    depth = len(folder)
    for part in target.split("/"):
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            return True
    return target.startswith("/")


def is_real_dir(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def check_way(root: Path, folders: list[str]) -> None:
    """Refuse a path that leads through a symbolic link or a file."""
    way = root
    for part in folders:
        way /= part
        if way.is_symlink():
            raise Refused("through-link")
        if way.exists() and not way.is_dir():
            raise Refused("conflict")


def make_way(root: Path, folders: list[str]) -> None:
    way = root
    for part in folders:
        way /= part
        if not way.exists():
            way.mkdir()
            way.chmod(0o755)


def link_source(root: Path, name: str) -> Path:
    """Find the restored regular file that a hard link names."""
    try:
        source = root.joinpath(*parts(name))
        check_way(root, list(source.relative_to(root).parts[:-1]))
    except Refused:
        raise Refused("link") from None
    if source.is_symlink() or not source.is_file():
        raise Refused("link")
    return source


def place(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    """Restore one member or refuse it."""
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise Refused("type")
    *folders, name = parts(member.name) or [""]
    path = root.joinpath(*folders, name)
    try:
        check_way(root, folders)
        blocked = False
    except Refused as reason:
        if str(reason) != "conflict":
            raise
        blocked = True
    if member.issym() and leaves(folders, member.linkname):
        raise Refused("link")
    source = link_source(root, member.linkname) if member.islnk() else None
    if blocked or (os.path.lexists(path) and is_real_dir(path) != member.isdir()):
        raise Refused("conflict")

    make_way(root, folders)
    mode = member.mode & 0o755
    if member.isdir():
        path.mkdir(exist_ok=True)
        path.chmod(mode | 0o700)
        return
    draft = path.with_name(f".restore-{os.getpid()}")
    if member.issym():
        draft.symlink_to(member.linkname)
    elif source:
        shutil.copy2(source, draft)
    else:
        with draft.open("wb") as file:
            shutil.copyfileobj(archive.extractfile(member), file)
        draft.chmod(mode | stat.S_IRUSR)
        os.utime(draft, (member.mtime, member.mtime))
    draft.replace(path)


def main(source: str, destination: str, report: str) -> str | None:
    root = Path(destination)
    if os.path.lexists(root):
        return f"{root} exists"
    try:
        with tarfile.open(source) as archive:
            members = archive.getmembers()
            root.mkdir(parents=True)
            refused = []
            for member in members:
                try:
                    place(archive, member, root)
                except Refused as reason:
                    refused.append({"name": member.name.rstrip("/"), "reason": str(reason)})
    except (OSError, tarfile.TarError) as error:
        return f"{source}: {error}"
    Path(report).write_text(json.dumps(refused, indent=2), encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
