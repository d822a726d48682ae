from .registry import SERVICES as SERVICES
from .registry import ServiceConfig as ServiceConfig
from .registry import ServiceRegistry as ServiceRegistry
from .registry import register_service as register_service
from .start import build_service_hooks as build_service_hooks
from .start import detect_services_from_dockerfile as detect_services_from_dockerfile
from .start import start_services as start_services
