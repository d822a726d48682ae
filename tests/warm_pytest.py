"""Run pytest in processes of its own that need not import pytest and other people's libraries again.

A server imports them once and forks for every run: half of the time of a small run. Nothing of this project is loaded
before the fork, so that each run imports it as a user's run does.

    python warm_pytest.py       reads orders, one JSON object a line, and answers with process number and exit status
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Variables that an interpreter reads only when it starts.
_AT_START = ("PYTHON", "LC_", "LANG", "LD_")


class WarmPytest:
    """The server of one test process; it ends with it."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @staticmethod
    def can_run(env: Mapping[str, str]) -> bool:
        """Return whether a run with these variables is the same in a fork of a running interpreter."""
        ours = {key: value for key, value in os.environ.items() if key.startswith(_AT_START)}
        return ours == {key: value for key, value in env.items() if key.startswith(_AT_START)}

    def run(
        self, args: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: Path, err: Path, timeout_sec: float
    ) -> int:
        """Run pytest to its end, with its output in files, and return its exit status."""
        order = {"args": [*args], "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
        with self._lock:
            server = self._started()
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(order).encode() + b"\n")
            server.stdin.flush()
            pid = int(server.stdout.readline())
            watch = threading.Timer(timeout_sec, os.kill, (pid, 9))
            watch.start()
            try:
                return int(server.stdout.readline())
            finally:
                watch.cancel()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            self._server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._server

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.communicate()
            self._server = None


def serve() -> None:
    """Fork for every order; the child returns from here and becomes pytest."""
    for line in sys.stdin.buffer:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            become(order)
            return
        os.write(1, b"%d\n" % pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(1, b"%d\n" % status)
    os._exit(0)


def become(order: dict[str, object]) -> None:
    """Take on all that `python -m pytest` would have been started with."""
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    for name, fd, mode in (
        ("/dev/null", 0, os.O_RDONLY),
        (order["out"], 1, os.O_WRONLY),
        (order["err"], 2, os.O_WRONLY),
    ):
        opened = os.open(name, mode | os.O_CREAT)
        os.dup2(opened, fd)
        os.close(opened)
    sys.path[0] = str(order["cwd"])
    sys.argv = ["pytest", *order["args"]]


if __name__ == "__main__":
    import asyncio  # noqa: F401
    import gc
    import logging  # noqa: F401
    import ssl  # noqa: F401
    import tarfile  # noqa: F401
    import unittest  # noqa: F401

    import pydantic.json_schema
    import pydantic.types  # noqa: F401
    import pytest
    import yaml  # noqa: F401

    gc.freeze()
    serve()
    sys.exit(pytest.main())
