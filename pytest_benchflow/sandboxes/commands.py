"""What every backend asks of a command before it tries to start it, and of a path before it goes there."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

from pytest_benchflow.errors import SandboxError

_LARGEST_ID = 2**31 - 1


def check_command(
    sandbox: str,
    argv: Sequence[str],
    *,
    user: str | int | None,
    cwd: str | None,
    env: Mapping[str, str],
) -> None:
    """Refuse what no system could start: kernels and engines tell it late, and each in other words."""
    if problem := next(_problems(argv, user, cwd, env), None):
        raise SandboxError(f"sandbox {sandbox} cannot run a command {problem}", retryable=False)


def resolve_path(sandbox: str, path: str, workdir: str) -> str:
    """Return a path inside a sandbox in its plain form; a relative one begins at the working directory."""
    if not path or "\0" in path:
        raise SandboxError(f"sandbox {sandbox} has no path {path!r}", retryable=False)
    return "/" + posixpath.normpath(posixpath.join(workdir, path)).lstrip("/")


def _problems(argv: Sequence[str], user: str | int | None, cwd: str | None, env: Mapping[str, str]) -> Iterator[str]:
    if isinstance(argv, str) or not argv or not argv[0]:
        yield f"without a program: {argv!r}"
    for what, words in (("arguments", argv), ("directory", (cwd or "",))):
        if any("\0" in word for word in words):
            yield f"with a NUL character in its {what}"
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            yield f"with the variable {name!r}: a name is neither empty nor holds =, and neither holds a NUL character"
    if not _is_user(user):
        yield f"as user {user!r}: give a name or a number from 0 to {_LARGEST_ID}"


def _is_user(user: str | int | None) -> bool:
    if isinstance(user, str):
        first = user.partition(":")[0]
        return bool(first) and "\n" not in user and not (first.isdigit() and int(first) > _LARGEST_ID)
    return user is None or 0 <= user <= _LARGEST_ID
