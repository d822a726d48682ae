"""Look users up in the sandbox's own account files, never through the host's name services."""

from __future__ import annotations

import os
from dataclasses import dataclass


class StartError(Exception):
    """A program cannot be started as asked."""


@dataclass(frozen=True, slots=True)
class User:
    """Who a program runs as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def assume(self) -> None:
        """Become this user for good."""
        if self.uid == os.geteuid() and self.gid == os.getegid() and not self.groups:
            return
        os.setgroups(self.groups)
        os.setgid(self.gid)
        os.setuid(self.uid)


def resolve(user: str | int | None) -> User:
    """Find a user by name, number, or `user:group`; None is root."""
    wanted, _, group = str(0 if user is None else user).partition(":")
    found = next((row for row in _rows("/etc/passwd", 7) if wanted in (row[0], row[2])), None)
    if found is not None:
        name, uid, gid, home = found[0], int(found[2]), int(found[3]), found[5] or "/"
    elif wanted.isdigit():
        name, uid, gid, home = wanted, int(wanted), 0, "/root" if wanted == "0" else "/"
    else:
        raise StartError(f"user {wanted!r} does not exist in the sandbox")
    if group:
        gid = resolve_group(group)
    members = {int(row[2]) for row in _rows("/etc/group", 4) if name in row[3].split(",")}
    return User(name, uid, gid, tuple(sorted(members - {gid})), home)


def resolve_group(group: str) -> int:
    """Find a group's number by name or number."""
    for row in _rows("/etc/group", 4):
        if group in (row[0], row[2]):
            return int(row[2])
    if group.isdigit():
        return int(group)
    raise StartError(f"group {group!r} does not exist in the sandbox")


def _rows(path: str, fields: int) -> list[list[str]]:
    try:
        with open(path, errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    return [row for line in lines if len(row := line.split(":")) >= fields and row[2].isdigit()]
