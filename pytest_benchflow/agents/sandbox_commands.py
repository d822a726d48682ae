"""Install an agent inside a sandbox by a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import InstallError
from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox


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
