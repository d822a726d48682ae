from .registry import (
    SERVICES as SERVICES,
    ServiceConfig as ServiceConfig,
    ServiceRegistry as ServiceRegistry,
    register_service as register_service,
)
from .start import (
    build_service_hooks as build_service_hooks,
    detect_services_from_dockerfile as detect_services_from_dockerfile,
    start_services as start_services,
)
