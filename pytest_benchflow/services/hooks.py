"""Services as hooks that run before an agent, for configurations written in Python."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.services.registry import SERVICES, ServiceConfig
from pytest_benchflow.services.start import start_services

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Sandbox


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
