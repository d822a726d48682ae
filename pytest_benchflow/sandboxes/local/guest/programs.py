"""Start one program under a supervisor of its own, as the user, in the directory and with the environment asked for.

The supervisor is the reaper of all that the program leaves, so a kill finds even descendants that left its session.
When a command ends by itself so does its supervisor, and what still runs becomes init's: services live on. The
supervisor of a byte pipe stays as long as anything is left that a kill would have to find. Users are looked up in the
sandbox's own account files, never through the host's name services.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import struct
import time
from dataclasses import dataclass
from typing import NoReturn

from . import libc, terminal, wire


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


def resolve_user(user: str | int | None) -> User:
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


#: A process stuck in the kernel cannot die; the caller must not wait for it for ever.
PATIENCE_SEC = 10.0
_MOST_REPORTED = 50
#: Stopped, traced, or dead.
_HALTED = "TtZX"


def kill(supervisor: int) -> int:
    """Kill all descendants of `supervisor`, then itself."""
    # A stopped supervisor stays the parent of every orphan, so no descendant can slip away to init meanwhile.
    _signal(supervisor, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_SEC
    # Until it has stopped, it may be about to have a child that nobody sees yet.
    while (found := _state_and_parent(str(supervisor))) and found[0] not in _HALTED and time.monotonic() < deadline:
        time.sleep(0.0005)
    # Stopped first, killed then: each one killed would only make room for the next child of a fork bomb.
    stopped: set[int] = set()
    while (new := set(descendants(supervisor)) - stopped) and time.monotonic() < deadline:
        for pid in new:
            _signal(pid, signal.SIGSTOP)
        stopped |= new
    while (alive := descendants(supervisor)) and time.monotonic() < deadline:
        for pid in alive:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.001)
    _signal(supervisor, signal.SIGKILL)
    return 0


def halt() -> int:
    """Stop every process but init and the caller, and return when they have."""
    _signal(-1, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_SEC
    while _is_anything_running() and time.monotonic() < deadline:
        time.sleep(0.001)
    return 0


def resume() -> int:
    """Let every process go on."""
    _signal(-1, signal.SIGCONT)
    return 0


def purge(keep: frozenset[str], uid: int, report: int, own: frozenset[int]) -> int:
    """Kill every process but init, the caller and those of `keep`, each NUMBER:START; return 1 if any is left.

    Those that there were at first are written to `report`, with their names, but for `own` ones: supervisors whose
    programs have ended may not have gone yet.

    Killing "all" is one step of the kernel's, which no fork gets ahead of: all that there are, if nothing is to be
    kept, else all of `uid`. The rest is stopped before it is killed.
    """
    kept = {int(number): start for number, _, start in (each.partition(":") for each in keep)}
    deadline = time.monotonic() + PATIENCE_SEC
    rounds = 0
    while (others := _others(kept, uid)) and time.monotonic() < deadline:
        rounds += 1
        if rounds == 1:
            foreign = [pid for pid in others if pid not in own]
            os.write(report, b"".join(map(_described, foreign[:_MOST_REPORTED])))
        if not kept:
            _signal(-1, signal.SIGKILL)
        elif uid:
            _kill_all_of(uid)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in others if kept else ():
                _signal(pid, number)
        # Whatever runs programs for whoever asks would start them again.
        for parent in {parent for parent in others.values() if parent in kept}:
            del kept[parent]
        time.sleep(0.0005 if rounds < 20 else 0.005)
    return 1 if others else 0


def _described(pid: int) -> bytes:
    """Return a line with a process's number, start and name; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return b""
    name = head.partition(b"(")[2].replace(b"\n", b" ")
    return b"%d:%s %s\n" % (pid, tail.split()[19], name)


def _kill_all_of(uid: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setuid(uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _others(kept: dict[int, str], uid: int) -> dict[int, int]:
    """Return the living processes that are not kept, each with its parent; what a kept one starts is kept as well.

    Unless it is of `uid`: some services run programs for whoever asks them.
    """
    found: dict[int, int] = {}
    own = {1, os.getpid()}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid in own:
            continue
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            parent, start = int(fields[1]), fields[19].decode()
            if kept.get(pid) == start or not _lives(pid):
                continue
            if parent in kept and uid not in _users(pid):
                kept[pid] = start
                continue
        except (OSError, IndexError):
            continue
        found[pid] = parent
    return found


def _users(pid: int) -> set[int]:
    with open(f"/proc/{pid}/status") as file:
        return next({*map(int, line.split()[1:])} for line in file if line.startswith("Uid:"))


def _lives(pid: int) -> bool:
    """Return whether any thread can still run: the first one may have ended while others go on."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                    return True
        except OSError:
            continue
    return False


def _is_anything_running() -> bool:
    pids = (name for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid()))
    return any(found[0] not in _HALTED for pid in pids if (found := _state_and_parent(pid)))


def descendants(root: int) -> list[int]:
    """List the living processes below `root`."""
    children: dict[int, list[int]] = {}
    dead = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _state_and_parent(name)):
            state, parent = found
            children.setdefault(parent, []).append(int(name))
            if state in "ZX":
                dead.add(int(name))
    below: list[int] = []
    todo = [root]
    while todo:
        todo += (found_children := children.get(todo.pop(), []))
        below += found_children
    return [pid for pid in below if pid not in dead]


def _state_and_parent(pid: str) -> tuple[str, int] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name may hold spaces and parentheses: fields count from the last one.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1])


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


#: Request number and exit status of a program whose supervisor stays.
REPORT = struct.Struct("ii")
_CLOSE_UP_TO = 4096
#: Where memory runs out, programs go before the init that serves them.
_OOM_SCORE = b"500"


def supervise(message: wire.Message, fds: list[int], reports: int, proc: int) -> int:
    """Run the program and return its exit status; write it to `reports` if the supervisor stays beyond it."""
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    try:
        program = os.fork()
    except OSError as error:
        return report_start_failure(fds, error)
    if program == 0:
        _become(message, proc, *fds)
    # Holding the program's pipes here would hide that it closed them.
    os.closerange(0, reports)
    os.closerange(reports + 1, _CLOSE_UP_TO)
    while True:
        pid, status = os.wait()
        if pid == program:
            break
    if message["keep"] and _has_children():
        os.write(reports, REPORT.pack(message["id"], exit_status(status)))
        while _has_children():
            os.wait()
    return exit_status(status)


def report_start_failure(fds: list[int], error: OSError) -> int:
    """Write to the last descriptor, where the runner looks for a reason, that no process could be started."""
    os.write(fds[-1], f"no further process can start in the sandbox: {error.strerror}".encode())
    return wire.NOT_STARTED


def _has_children() -> bool:
    """Reap what has ended and say whether anything is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def exit_status(status: int) -> int:
    """Return the exit code, or 128 + the signal that ended the process, as a shell does."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become(message: wire.Message, proc: int, stdin: int, stdout: int, stderr: int, started: int) -> NoReturn:
    """Turn into the program; `started` closes by itself on success and carries the reason otherwise."""
    try:
        os.setsid()
        user = resolve_user(message["user"])
        env = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name, **message["env"]}
        if (size := message.get("size")) is not None:
            stdin = stdout = stderr = terminal.take(stdin, size, user.uid, user.gid)
        for source, target in ((stdin, 0), (stdout, 1), (stdout if message["merge"] else stderr, 2)):
            os.dup2(source, target)
            if stat.S_ISFIFO(os.fstat(target).st_mode):
                # Opening /dev/stdout by name needs the right to open the pipe behind it.
                os.fchown(target, user.uid, user.gid)
        # Python and the zygote ignore some signals; a program expects the defaults.
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        # An ordinary user's root may not write there.
        with contextlib.suppress(OSError):
            score = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
            os.write(score, _OOM_SCORE)
        user.assume()
        try:
            os.chdir(message["cwd"])
        except OSError as error:
            raise StartError(f"working directory {message['cwd']}: {error.strerror}") from None
        argv: list[str] = message["argv"]
        try:
            os.execvpe(argv[0], argv, env)  # noqa: S606
        except OSError as error:
            raise StartError(error.strerror or str(error)) from None
    except BaseException as error:
        os.write(started, (str(error) or repr(error)).encode(errors="replace")[:4096])
        os._exit(wire.NOT_STARTED)
