"""Commands in a sandbox that have to succeed, while an agent is made ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import InstallError
from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import ExecResult, Sandbox


async def exec_checked(
    sandbox: Sandbox,
    script: str,
    error: Callable[[str], Exception],
    *,
    user: str | int | None = 0,
    stdin: bytes | None = None,
    timeout_sec: float = 60.0,
) -> ExecResult:
    """Run a script; one that fails raises what `error` makes of its reason."""
    result = await sandbox.exec(script, user=user, cwd="/", stdin=stdin, timeout_sec=timeout_sec)
    if result.return_code:
        raise error(one_line(result.stderr, 200) or f"status {result.return_code}")
    return result


async def exec_install(
    sandbox: Sandbox,
    script: str,
    agent: str,
    *,
    timeout_sec: float,
    log: Callable[[str], None],
    explain: Callable[[list[str]], str],
    cwd: str | None = None,
    advice: str | None = None,
) -> None:
    """Install an agent by a script of root, with its output in a log; `explain` finds the reason in its lines."""
    try:
        result = await sandbox.exec(script, user=0, cwd=cwd, timeout_sec=timeout_sec)
    except TimeoutError:
        raise InstallError(f"Agent {agent} install took longer than {timeout_sec:g} s", advice=advice) from None
    output = result.stdout + result.stderr
    log(output)
    if result.return_code:
        reason = one_line(explain([line for line in output.splitlines() if line.strip()]), 300)
        raise InstallError(f"Agent {agent} install failed (rc={result.return_code}): {reason}", advice=advice)
