"""Run a command and adopt whatever outlives it, so that a test can tell what a killed run leaves.

    python reaper.py SECONDS COMMAND...

Says which process the command is, waits for it, then up to SECONDS for everything that descends from it. The last line
is JSON: how the command ended, and the command lines of what had to be killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36


def main(seconds: float, command: list[str]) -> None:
    """Run the command; every orphan below it becomes a child of this process."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SystemExit("this kernel has no subreapers")
    runner = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)
    print(runner.pid, flush=True)
    status = runner.wait()
    deadline, left = time.monotonic() + seconds, set()
    while _reap():
        if time.monotonic() > deadline:
            for pid in _children():
                left.add(_command_line(pid))
                os.kill(pid, 9)
        time.sleep(0.01)
    print(json.dumps({"status": status, "left": sorted(left)}), flush=True)


def _reap() -> bool:
    """Collect the children that have ended; tell whether others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def _command_line(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode("utf-8", "replace")


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
