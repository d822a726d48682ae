"""Start services in a sandbox and wait until each answers; one that does not is an error, not a surprise later."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import Category, SandboxError
from pytest_benchflow.sandboxes import exec_checked
from pytest_benchflow.services.registry import SERVICES, ServiceConfig

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox


LOGS = "/logs/services"
_START_SEC = 30.0
_MARGIN_SEC = 15.0

# All three streams are redirected, for whoever holds them open keeps the command from ending.
_START = """
mkdir -p {logs} {state} || exit 1
command -v {program} >/dev/null || {{ echo "{program} is not in the image" >&2; exit 127; }}
setsid nohup bash -c {command} >{log} 2>&1 </dev/null &
"""

# Asked through the shell itself, since an image may have neither curl nor Python.
_WAIT = """
ask() {{
  exec 3<>/dev/tcp/127.0.0.1/{port} || return 1
  printf 'GET {path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3
  IFS= read -r -t 5 status <&3; exec 3>&-
  case $status in *' 200'*) return 0 ;; *) return 1 ;; esac
}}
end=$((SECONDS + {seconds}))
while ! ask 2>/dev/null; do
  [ $SECONDS -lt $end ] || {{ tail -n 5 {log} >&2; exit 1; }}
  sleep 0.1
done
"""


async def start_services(sandbox: Sandbox, services: Sequence[ServiceConfig]) -> None:
    """Start all services, then wait for each: by then the others have had the same time."""
    for service in services:
        await _start(sandbox, service)
    for service in services:
        await _wait(sandbox, service)


async def _start(sandbox: Sandbox, service: ServiceConfig) -> None:
    usual = f"exec {service.cli_name} --db {service.db_path} serve --host 0.0.0.0 --port {service.port} --no-mcp"
    script = _START.format(
        logs=LOGS,
        state=shlex.quote(service.db_path.rpartition("/")[0] or "/"),
        program=shlex.quote(service.cli_name),
        command=shlex.quote(service.command or usual),
        log=_log(service),
    )
    purpose = f"start service {service.name!r}"
    await exec_checked(sandbox, script, purpose, timeout_sec=_START_SEC, error=_start_error)


async def _wait(sandbox: Sandbox, service: ServiceConfig) -> None:
    seconds = service.start_timeout_sec
    script = _WAIT.format(port=service.port, path=service.health_path, seconds=round(seconds), log=_log(service))
    try:
        result = await sandbox.exec(script, user=0, timeout_sec=seconds + _MARGIN_SEC)
    except TimeoutError:
        raise _start_error(f"service {service.name!r} did not answer within {seconds:g} s") from None
    if result.return_code:
        asked = f"{service.health_path} on port {service.port}"
        log_end = f"; its log ends with: {result.stderr.strip()[-300:]}" if result.stderr.strip() else ""
        raise _start_error(f"service {service.name!r} did not answer {asked} in {seconds:g} s{log_end}")


def _log(service: ServiceConfig) -> str:
    return shlex.quote(f"{LOGS}/{service.name}.log")


def _start_error(message: str) -> SandboxError:
    return SandboxError(message, category=Category.HEALTHCHECK, retryable=False)


def build_service_hooks(services: Sequence[ServiceConfig]) -> list[Callable[[Sandbox], Awaitable[None]]]:
    """Return the hook that starts services, for `pre_agent_hooks`; no services, no hook."""
    if not services:
        return []

    async def start_all(sandbox: Sandbox) -> None:
        await start_services(sandbox, services)

    return [start_all]


def detect_services_from_dockerfile(task_path: Path | str) -> list[ServiceConfig]:
    """Return the known services whose program the Dockerfile of a task speaks of."""
    path = Path(task_path)
    file = path if path.is_file() else path / "environment" / "Dockerfile"
    try:
        text = file.read_text("utf-8", errors="replace")
    except OSError:
        return []
    return [service for service in SERVICES.values() if service.cli_name in text]
