"""What backends and their callers share: checks of commands, paths and mounts, and small operations on any sandbox."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, cast

from pytest_benchflow.core.errors import BenchflowError, SandboxError, UnsupportedError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.sandboxes.base import SandboxSpec

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes.base import ExecResult, HasServices, Sandbox, Service


# Emptied rather than replaced, for each may be a mount; a link in its place is not followed. What is empty costs no
# program, and find is there for more names than one command can take. For any POSIX shell.
_EMPTY = """
for d in {directories}; do
  if [ -L "$d" ] || {{ [ -e "$d" ] && [ ! -d "$d" ]; }}; then rm -rf -- "$d" || exit 1; fi
  [ -d "$d" ] || mkdir -p -- "$d" || exit 1
  for f in "$d"/..?* "$d"/.[!.]* "$d"/*; do
    [ -e "$f" ] || [ -L "$f" ] || continue
    find "$d" -mindepth 1 -delete 2>/dev/null || rm -rf -- "$d"/..?* "$d"/.[!.]* "$d"/* || exit 1
    break
  done
done
chmod {mode} -- {opened} || exit 1
"""


def empty_dirs_script(
    *directories: str, private: str | None = None, mode: Literal["777", "755"] = "777", others: Sequence[str] = ()
) -> str:
    """Return a script for root after which these exist, hold nothing, and have this mode, but for the private one.

    `others`, which exist, get the mode in the same command, since every command costs.
    """
    paths = [*directories, *([private] if private else [])]
    return _EMPTY.format(directories=shlex.join(paths), mode=mode, opened=shlex.join([*directories, *others]))


_REMOVE_TIMEOUT_SEC = 60.0


async def upload_selected(sandbox: Service, source: Path, target: str, left_out: Sequence[str]) -> None:
    """Copy the content of a directory into `target`, without the relative paths that are to be left out."""
    await sandbox.upload_dir(source, target)
    if not left_out:
        return
    names = b"\0".join(map(os.fsencode, left_out))
    script = f"cd {shlex.quote(target)} && xargs -0 rm -rf --"
    purpose = f"leave files out of {target}"
    await exec_checked(sandbox, script, purpose, cwd="/", stdin=names, timeout_sec=_REMOVE_TIMEOUT_SEC)


async def exec_checked(
    sandbox: Service,
    script: str,
    purpose: str,
    *,
    timeout_sec: float,
    user: str | int | None = 0,
    cwd: str | None = None,
    stdin: bytes | None = None,
    error: Callable[[str], BenchflowError] = SandboxError,
) -> ExecResult:
    """Run a command of ours that has to succeed, as root by default; `purpose` completes "could not ..." in its errors.

    A command that takes too long is a SandboxError; for one that fails, `error` makes the exception of its message.
    """
    try:
        result = await sandbox.exec(script, user=user, cwd=cwd, env=OWN_ENV, stdin=stdin, timeout_sec=timeout_sec)
    except TimeoutError:
        raise SandboxError(f"could not {purpose} within {timeout_sec:g} s") from None
    if result.return_code:
        raise error(f"could not {purpose}: {one_line(result.stderr, 300) or f'exit status {result.return_code}'}")
    return result


#: What commands of ours run with as root, over whatever the image says: an agent may own the files that its variables
#: lead to. An empty value is as good as none to bash and the dynamic linker.
OWN_ENV: Mapping[str, str] = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin",
    **dict.fromkeys(
        [
            "BASH_ENV",
            "ENV",
            "CDPATH",
            "GLOBIGNORE",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "LD_DEBUG",
            "LD_DEBUG_OUTPUT",
            "LD_PROFILE",
            "GCONV_PATH",
            "LOCPATH",
            "NLSPATH",
            "GETCONF_DIR",
            "HOSTALIASES",
            "RESOLV_HOST_CONF",
            "TAR_OPTIONS",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PYTHONUSERBASE",
        ],
        "",
    ),
    "PYTHONNOUSERSITE": "1",
    "LC_ALL": "C",
    "TMPDIR": "/tmp",  # noqa: S108
}


#: The service that the sandbox itself is.
MAIN = "main"


def service_of(sandbox: Sandbox, name: str) -> Service:
    """Return a service of a started sandbox; the error for a name that it does not have lists those that it has."""
    return sandbox if name == MAIN else _with_services(sandbox, name).service(name)


async def stop_main(sandbox: Sandbox) -> None:
    """End the sandbox itself, but none of its services."""
    await _with_services(sandbox, MAIN).stop_main()


def _with_services(sandbox: Sandbox, name: str) -> HasServices:
    if not sandbox.capabilities.services:
        raise UnsupportedError(f"sandbox {sandbox.id} has no service {name!r}", advice="use main, which it is itself")
    return cast("HasServices", sandbox)


_LARGEST_ID = 2**31 - 1


def check_command(
    sandbox: str, argv: Sequence[str], *, user: str | int | None, cwd: str | None, env: Mapping[str, str]
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
            yield f"with the variable {name!r}: a name must not be empty or contain =; NUL characters cannot be used"
    if not _is_user(user):
        yield f"as user {user!r}: expected a name or a number from 0 to {_LARGEST_ID}"


def _is_user(user: str | int | None) -> bool:
    if isinstance(user, str):
        first = user.partition(":")[0]
        return bool(first) and "\n" not in user and not (first.isdigit() and int(first) > _LARGEST_ID)
    return user is None or 0 <= user <= _LARGEST_ID


def check_mounts(spec: SandboxSpec) -> None:
    """Refuse what could not be mounted; a wrong path would otherwise show as an empty directory, or not at all."""
    for mount in spec.mounts:
        if not mount.source.is_dir():
            raise SandboxError(
                f"sandbox {spec.name} cannot mount {mount.source} on {mount.target}: it is not a directory",
                retryable=False,
            )
        path = PurePosixPath(mount.target)
        if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
            raise SandboxError(
                f"sandbox {spec.name} cannot mount {mount.source} on {mount.target!r}: expected an absolute path",
                retryable=False,
            )


@dataclass(frozen=True, slots=True)
class UnreachedHosts:
    """The hosts that programs in a sandbox asked for and did not reach, the first of them."""

    refused: tuple[str, ...] = ()
    """Those that they may not reach."""
    failed: tuple[str, ...] = ()
    """Those that they may reach, and this machine did not."""

    def notes(self) -> list[str]:
        """Return what the user should know of them."""
        refused = [f"the sandbox's network refused {', '.join(self.refused)}"] if self.refused else []
        return [*refused, *([f"this machine could not reach {', '.join(self.failed)}"] if self.failed else [])]
