"""Which services exist, by the word that tasks and configurations use."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_benchflow.core.errors import BadValue
from pytest_benchflow.core.registry import Registry


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """A program of the image that serves on a port and keeps its state in a file."""

    name: str
    cli_name: str
    port: int
    db_path: str
    health_path: str = "/health"
    description: str = ""
    command: str | None = None
    """Shell command that starts it; None means the usual arguments of `cli_name`."""
    start_timeout_sec: float = 30.0


def _office(name: str, port: int, description: str) -> ServiceConfig:
    return ServiceConfig(name, f"claw-{name}", port, f"/data/{name}.db", description=description)


SERVICES: dict[str, ServiceConfig] = {
    service.name: service
    for service in (
        _office("gmail", 9001, "mail"),
        _office("slack", 9002, "chat"),
        _office("gcal", 9003, "calendar"),
        _office("gdoc", 9004, "documents"),
        _office("gdrive", 9005, "files"),
    )
}
"""The services that every run knows."""


class ServiceRegistry:
    """The services of one run: the known ones, and those registered by hand or by hook."""

    def __init__(self) -> None:
        self._services: Registry[ServiceConfig] = Registry("service", ChainMap({}, SERVICES), error=BadValue)

    def register(self, service: ServiceConfig) -> None:
        """Add a service, or replace the one of that name."""
        self._services[service.name] = checked(service)

    def get(self, name: str) -> ServiceConfig:
        """Return the service called `name`."""
        return self._services.find(name)

    def all_of(self, services: Iterable[str | ServiceConfig]) -> list[ServiceConfig]:
        """Return services, each by its name or whole, each once; two on one port cannot both run."""
        configs = list(dict.fromkeys(self.get(one) if isinstance(one, str) else one for one in services))
        ports: dict[int, str] = {}
        for service in configs:
            if service.port in ports:
                both = f"services {ports[service.port]!r} and {service.name!r} both use port {service.port}"
                raise BadValue(both, advice="give one of them another port")
            ports[service.port] = service.name
        return configs


def checked(service: ServiceConfig) -> ServiceConfig:
    """Return a service whose values can be used."""
    if not 0 < service.port < 65536:
        raise BadValue(f"service {service.name!r} has port {service.port}", advice="give one from 1 to 65535")
    if not service.health_path.startswith("/"):
        raise BadValue(f"service {service.name!r} has health_path {service.health_path!r}", advice="begin it with /")
    return service


def register_service(
    name: str,
    cli_name: str,
    port: int,
    db_path: str,
    *,
    health_path: str = "/health",
    description: str = "",
    command: str | None = None,
) -> ServiceConfig:
    """Make a service known to every run of this process."""
    service = ServiceConfig(name, cli_name, port, db_path, health_path, description, command)
    SERVICES[name] = checked(service)
    return service
