"""Reach the services of a sandbox; most sandboxes have none and need not know of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pytest_benchflow.errors import UnsupportedError

if TYPE_CHECKING:
    from .base import HasServices, Sandbox, Service

#: The service that the sandbox itself is.
MAIN = "main"


def service_of(sandbox: Sandbox, name: str) -> Service:
    """Return a service of a started sandbox; the error for a name that it does not have lists those that it has."""
    return sandbox if name == MAIN else _with_services(sandbox, name).service(name)


async def stop_main(sandbox: Sandbox) -> None:
    """End the sandbox itself, but none of its services."""
    await _with_services(sandbox, MAIN).stop_main()


def _with_services(sandbox: Sandbox, name: str) -> HasServices:
    if not sandbox.capabilities.services:
        raise UnsupportedError(f"sandbox {sandbox.id} has no service {name!r}", advice="use main, which it is itself")
    return cast("HasServices", sandbox)
