"""Put an agent's files into its home directory: by its own user, for nobody else, and never through an argument."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_benchflow.errors import InstallError
from pytest_benchflow.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.agents.base import AgentContext, HomeFile

_WRITE_SEC = 60.0
# A link that was left there is replaced, not followed.
_WRITE = """umask 077
path={path}
mkdir -p "${{path%/*}}" && rm -f "$path" && cat >"$path"
"""


async def write_home_files(context: AgentContext, files: Iterable[HomeFile], agent: str) -> None:
    """Write the files; one that cannot be written is an error that says where and why, and not what."""
    for file in files:
        path = f"{context.home}/{file.path}"
        done = await context.sandbox.exec(
            _WRITE.format(path=shlex.quote(path)),
            user=context.user,
            cwd="/",
            stdin=file.content,
            timeout_sec=_WRITE_SEC,
        )
        if done.return_code:
            reason = one_line(done.stderr, 200) or f"status {done.return_code}"
            raise InstallError(f"Agent {agent} install failed: {path} cannot be written: {reason}", retryable=False)


def path_variables(context: AgentContext, files: Iterable[HomeFile]) -> dict[str, str]:
    """Return the variables that hold paths of files."""
    return {file.variable: f"{context.home}/{file.path}" for file in files if file.variable is not None}
