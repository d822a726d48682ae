"""The user that agents run as inside the sandbox: it owns workspace and home, and may read nobody else's."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import exec_checked

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox


READER = "agent-reader"
_KILL_TIMEOUT_SEC = 60.0

# Links are never followed: one that the image holds could lead anywhere.
_CREATE = """
user={user} work={work}
if ! id -u "$user" >/dev/null 2>&1; then
  useradd -m -U -s /bin/bash "$user" 2>/dev/null || adduser -D -s /bin/bash "$user" 2>/dev/null || {{
    uid=1000
    while cut -d: -f3 /etc/passwd /etc/group | grep -qx "$uid"; do uid=$((uid + 1)); done
    echo "$user:x:$uid:" >>/etc/group && echo "$user:x:$uid:$uid::/home/$user:/bin/bash" >>/etc/passwd || exit 1
  }}
fi
home=$(sed -n "s/^$user:[^:]*:[^:]*:[^:]*:[^:]*:\\([^:]*\\):.*/\\1/p" /etc/passwd)
group=$(id -g "$user") && [ -n "$home" ] && mkdir -p "$home" || exit 1
chown -hR "$user:$group" "$home" || exit 1
case $work in
  / | /bin | /boot | /dev | /etc | /lib* | /proc | /root | /sbin | /sys | /usr | /var) ;;
  *) mkdir -p "$work" && chown -hR "$user:$group" "$work" || exit 1 ;;
esac
for other in /root /home/*; do
  case {guarded}/ in "$other"/*) continue ;; esac
  [ "$other" = "$home" ] || [ -L "$other" ] || [ ! -d "$other" ] || chmod go-rwx "$other" || exit 1
done
chmod 700 "$home" && echo "$home"
"""

# A role that only looks gets a user of its own, to whom the workspace belongs as little as to any other stranger.
_OPEN_TO_READERS = """
chmod -R a+rX,o-w {work} || exit 1
"""

_FIND_HOME = "sed -n 's/^{user}:[^:]*:[^:]*:[^:]*:[^:]*:\\([^:]*\\):.*/\\1/p' /etc/passwd"

# Stopped before any is killed, so that none can fork away; what init does not reap is dead all the same.
_KILL = """
uid=$(id -u {user} 2>/dev/null) || exit 0
[ "$uid" != 0 ] || exit 0
mine() {{
  for p in /proc/[0-9]*; do
    [ "$(stat -c %u "$p" 2>/dev/null)" = "$uid" ] || continue
    case $(sed 's/.*) //' "$p/stat" 2>/dev/null) in Z* | X* | '') continue ;; esac
    echo "${{p#/proc/}}"
  done
}}
for round in 1 2 3 4 5 6 7 8 9 10; do
  pids=$(mine)
  [ -n "$pids" ] || exit 0
  kill -STOP $pids 2>/dev/null
  kill -KILL $pids 2>/dev/null
done
[ -z "$(mine)" ]
"""


@dataclass(frozen=True, slots=True)
class SandboxUser:
    """Who agents are in a sandbox."""

    name: str | int | None
    home: str
    is_ours: bool = False
    """Whether nothing but agents runs as this user, so that all its processes may be killed."""


async def create_user(sandbox: Sandbox, name: str, timeout_sec: float) -> SandboxUser:
    """Make the user, give it workspace and home, and close the homes of others to it."""
    return await _create(sandbox, name, sandbox.workdir, "", timeout_sec)


async def create_reader(sandbox: Sandbox, timeout_sec: float) -> SandboxUser:
    """Make the user of roles that may look at the workspace and not change it, or open to it what is new there."""
    opening = _OPEN_TO_READERS.format(work=shlex.quote(sandbox.workdir))
    return await _create(sandbox, READER, "/", opening, timeout_sec)


async def _create(sandbox: Sandbox, name: str, work: str, before: str, timeout_sec: float) -> SandboxUser:
    script = before + _CREATE.format(
        user=shlex.quote(name), work=shlex.quote(work), guarded=shlex.quote(sandbox.workdir)
    )
    try:
        done = await sandbox.exec(script, user=0, cwd="/", timeout_sec=timeout_sec)
    except TimeoutError:
        raise SandboxError(
            f"the sandbox user {name!r} was not ready within {timeout_sec:g} s",
            advice="raise --bf-sandbox-setup-timeout",
        ) from None
    home = done.stdout.strip()
    if done.return_code or not home.startswith("/"):
        said = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise SandboxError(f"could not make the sandbox user {name!r}: {said}", advice="use --bf-sandbox-user none")
    return SandboxUser(name, home, is_ours=True)


async def existing_user(sandbox: Sandbox, user: str | int | None, timeout_sec: float) -> SandboxUser:
    """Return the image's own user, or the one that the task names, with its home."""
    script = 'echo "$HOME"' if user is None else _FIND_HOME.format(user=str(user).partition(":")[0])
    done = await sandbox.exec(script, user=0 if user is not None else None, cwd="/", timeout_sec=timeout_sec)
    home = done.stdout.strip()
    return SandboxUser(user, home if home.startswith("/") and home != "/" else "/root")


async def kill_processes(sandbox: Sandbox, name: str) -> None:
    """Kill everything the sandbox user still runs, so that nothing of the agent's outlives it."""
    script = _KILL.format(user=shlex.quote(name))
    purpose = f"kill the processes of the user {name!r}"
    await exec_checked(sandbox, script, purpose, cwd="/", timeout_sec=_KILL_TIMEOUT_SEC)
