"""Start the zygote of this process and have it fork sandboxes."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

from pytest_benchflow.sandboxes.forks import keep_from_forks

from .cgroups import Cgroups, Group
from .control import Control
from .guest import wire

_HERE = Path(__file__).parent
_PACKAGE = Path(__file__).parents[3]
_CODE = "import sys; sys.path += sys.argv[1:3]; from guest import zygote; zygote.main(int(sys.argv[3]))"
#: An interpreter with a shared library may need this one to start; nothing else of the environment is passed on.
_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
EXIT_TIMEOUT_SEC = 5.0
#: A sandbox stopped while it starts may have a helper on its way out; its group goes a moment later.
_TIDY_TIMES, _TIDY_SEC = 20, 0.05


class Launcher:
    """Owns one zygote; starts it on first use and again if it died."""

    def __init__(self) -> None:
        self._controls: set[Control] = set()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._cgroups: Cgroups | None = None

    def spawn(self, config: wire.Message, name: str, written: str) -> tuple[Control, Group]:
        """Have a sandbox forked in a control group of its own; the control tells when it is up.

        The directory `written` goes, should this process be killed.
        """
        if self._cgroups is None:
            self._cgroups = Cgroups.look()
        cgroups = self._cgroups
        group = cgroups.make(config["cpus"], config["memory_mb"], config["pids"])
        limited = "memory" in group.enforced(group.paths)
        config = {**config, "memory_mb": config["memory_mb"] if limited else None}
        flags = (wire.PRIVILEGED if config["privileged"] else b"") + (wire.NETWORK if config["network"] else b"")
        ours, theirs = wire.pair()
        try:
            with theirs:
                wire.send(ours, config)
                try:
                    wire.call(self._connection(), flags, written, group.paths, theirs.fileno())
                except OSError:
                    self.close()
                    wire.call(self._connection(), flags, written, group.paths, theirs.fileno())
        except BaseException:
            ours.close()
            cgroups.discard(group)
            raise

        def gone(control: Control) -> None:
            self._controls.discard(control)
            cgroups.discard(group)
            _tidy(cgroups, _TIDY_TIMES)

        control = Control(ours, name, gone)
        self._controls.add(control)
        return control, group

    async def stop_all(self) -> None:
        """End every sandbox that still runs or is being started."""
        await asyncio.gather(*(control.stop() for control in list(self._controls)), return_exceptions=True)

    def close(self) -> None:
        """End the zygote; sandboxes it forked are not its concern."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(EXIT_TIMEOUT_SEC)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._cgroups is not None:
            self._cgroups.tidy()

    def _connection(self) -> socket.socket:
        if self._socket is None:
            ours, theirs = wire.pair()
            try:
                with theirs:
                    self._process = self._zygote(theirs.fileno())
            except OSError:
                ours.close()
                raise
            keep_from_forks(ours)
            self._socket = ours
        return self._socket

    def _zygote(self, socket_fd: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _CODE, str(_HERE), str(_PACKAGE), str(socket_fd)],
            pass_fds=[socket_fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={key: os.environ[key] for key in _KEPT_VARIABLES if key in os.environ},
            cwd="/",
            # Ctrl-C goes to the terminal's process group; the zygote ends when the runner does.
            start_new_session=True,
        )


def _tidy(cgroups: Cgroups, times: int) -> None:
    if not cgroups.tidy() and times:
        asyncio.get_running_loop().call_later(_TIDY_SEC, _tidy, cgroups, times - 1)
