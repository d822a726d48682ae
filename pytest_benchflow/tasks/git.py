"""Run git without prompts, without the caller's repository in its environment, and not for ever."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_benchflow.errors import BenchflowError, Category

if TYPE_CHECKING:
    from pathlib import Path

_LOCAL = {
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE",
}  # fmt: skip
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
    "LC_ALL": "C",
}


class SourceError(BenchflowError):
    """A source of tasks that cannot be had."""

    category = Category.CONFIG


class GitFailed(Exception):
    """Git ended with an error; the text is its own last line about it."""


class Git:
    """Git commands that share one deadline."""

    def __init__(self, timeout_sec: float) -> None:
        self._timeout_sec = timeout_sec
        self._deadline = time.monotonic() + timeout_sec

    def __call__(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run one command and return its output; raise GitFailed, or SourceError if there is no git."""
        command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *arguments]
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise SourceError("git is not installed", advice="install git, or clone the tasks yourself") from None
        try:
            out, err = process.communicate(timeout=max(0.1, self._deadline - time.monotonic()))
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise GitFailed(f"no answer within {self._timeout_sec:g} s") from None
            raise
        if process.returncode != 0:
            raise GitFailed(_complaint(err.decode(errors="replace")))
        return out.decode(errors="surrogateescape")


def redacted(url: str) -> str:
    """Hide the password of an address."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", url)


def _environment() -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key not in _LOCAL} | _QUIET
    env.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    return env


def _complaint(stderr: str) -> str:
    lines = [line.strip() for line in redacted(stderr).splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    line = (fatal or lines or ["it gave no reason"])[-1 if not fatal else 0]
    return re.sub(r"^(fatal|error): ", "", line)
