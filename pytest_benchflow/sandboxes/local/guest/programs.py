"""Start one program under a supervisor of its own, as the user, in the directory and with the environment asked for.

The supervisor is the reaper of all that the program leaves, so a kill finds even descendants that left its session.
When a command ends by itself so does its supervisor, and what still runs becomes init's: services live on. The
supervisor of a byte pipe stays as long as anything is left that a kill would have to find.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import struct
from typing import NoReturn

from . import libc, users, wire

#: What a shell reports for a command it cannot start.
NOT_STARTED = 127
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
        return refuse(fds, error)
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


def refuse(fds: list[int], error: OSError) -> int:
    """Write to the last descriptor, where the runner looks for a reason, that no process could be started."""
    os.write(fds[-1], f"no further process can start in the sandbox: {error.strerror}".encode())
    return NOT_STARTED


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
        user = users.resolve(message["user"])
        env = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name, **message["env"]}
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
            raise users.StartError(f"working directory {message['cwd']}: {error.strerror}") from None
        argv: list[str] = message["argv"]
        try:
            os.execvpe(argv[0], argv, env)  # noqa: S606
        except OSError as error:
            raise users.StartError(error.strerror or str(error)) from None
    except BaseException as error:
        os.write(started, (str(error) or repr(error)).encode(errors="replace")[:4096])
        os._exit(NOT_STARTED)
