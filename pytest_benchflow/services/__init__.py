"""Services that run beside the agent in its sandbox, such as a mailbox or a calendar."""

from pytest_benchflow.services.hooks import build_service_hooks, detect_services_from_dockerfile
from pytest_benchflow.services.registry import SERVICES, ServiceConfig, ServiceRegistry, register_service
from pytest_benchflow.services.start import start_services

__all__ = [
    "SERVICES",
    "ServiceConfig",
    "ServiceRegistry",
    "build_service_hooks",
    "detect_services_from_dockerfile",
    "register_service",
    "start_services",
]
