"""The zygote: a small, warm, single-threaded process that forks sandboxes for one runner.

A request carries the sandbox's own control socket. The zygote forks; the child enters new namespaces, forks the
sandbox's PID 1 and hands the runner a pidfd of it. From then on runner and sandbox speak without the zygote.

Memory that the zygote, or the child before it forks PID 1, writes to is copied for every sandbox: so a request is a
line of bytes, and the rest of what a sandbox needs to know comes through its own socket, to a process that ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import time
from typing import NoReturn

from pytest_benchflow.core.removal import remove_tree

from . import hostview, init, libc, security, wire

#: How long a killed runner's sandboxes may take to end before what they leave is left to the next runner.
_PATIENCE_SEC = 10.0


def main(descriptor: int) -> None:
    """Serve the runner at the other end of `descriptor` until it is gone."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Ignoring SIGCHLD lets the kernel reap: sandboxes are watched by their pidfds, not from here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    runner = socket.socket(fileno=descriptor)
    host = hostview.detect()
    rights = {privileged: security.Privileges(privileged=privileged) for privileged in (False, True)}
    # Objects that no collection ever touches keep their memory pages shared with every fork.
    gc.collect()
    gc.freeze()
    gc.disable()
    groups: set[bytes] = set()
    directories: set[bytes] = set()
    while request := wire.receive_call(runner):
        flags, directory, paths, control = request
        groups.update(paths)
        directories.update(filter(None, [directory]))
        if os.fork() == 0:
            runner.close()
            _spawn(control, flags, paths, host, rights)
        os.close(control)
    deadline = time.monotonic() + _PATIENCE_SEC
    while _is_anything_left(groups, directories, parent) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_anything_left(groups: set[bytes], directories: set[bytes], parent: int) -> bool:
    """Remove what a killed runner could not: groups as soon as they are empty, directories when all sandboxes ended."""
    for path in groups:
        with contextlib.suppress(OSError):
            os.rmdir(path)
    # A runner that lives and only wants no more of this zygote still needs what it builds.
    if os.getppid() != parent and not _has_children():
        for path in directories:
            with contextlib.suppress(OSError):
                remove_tree(path)
    return any(os.path.lexists(path) for path in (*groups, *directories))


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _spawn(
    control: int, flags: bytes, groups: list[bytes], host: hostview.HostView, rights: dict[bool, security.Privileges]
) -> NoReturn:
    """Enter the namespaces, fork PID 1 of the sandbox there and leave."""
    try:
        init.reset_child_signal()
        # Before the namespaces: a cgroup namespace begins at the group that its maker is in.
        entered = [path for path in groups if _enter_group(path)]
        privileged = wire.PRIVILEGED in flags
        _enter_namespaces(privileged=privileged)
        # The child waits for this byte: the runner must hold its pidfd before it can say or do anything.
        gate_read, gate_write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(gate_write)
            os.read(gate_read, 1)
            os.close(gate_read)
            init.main(control, host, rights[privileged], privileged=privileged)
        pidfd = os.pidfd_open(child)
        message = {"event": "spawned", "cgroups": [os.fsdecode(path) for path in entered]}
        wire.send(socket.socket(fileno=control), message, (pidfd,))
    except BaseException as error:
        wire.send_failure(socket.socket(fileno=control), error)
        os._exit(1)
    os._exit(0)


def _enter_group(path: bytes) -> bool:
    # A thread that moves itself needs no lock of the kernel's; moving a process waits for all CPUs, many milliseconds.
    for name in (b"/tasks", b"/cgroup.procs"):
        try:
            file = os.open(path + name, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.write(file, b"0")
        except OSError:
            continue
        finally:
            os.close(file)
        return True
    return False


_NAMESPACES = (
    libc.CLONE_NEWNS
    | libc.CLONE_NEWPID
    | libc.CLONE_NEWIPC
    | libc.CLONE_NEWUTS
    | libc.CLONE_NEWCGROUP
    | libc.CLONE_NEWNET
)


def _enter_namespaces(*, privileged: bool) -> None:
    if privileged:
        libc.unshare(_NAMESPACES)
    else:
        libc.become_root_of_a_user_namespace(_NAMESPACES)
