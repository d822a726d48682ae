from .base import (
    Backend as Backend,
    Capabilities as Capabilities,
    ExecResult as ExecResult,
    HasServices as HasServices,
    Limits as Limits,
    Mount as Mount,
    Process as Process,
    Sandbox as Sandbox,
    SandboxImage as SandboxImage,
    SandboxSpec as SandboxSpec,
    Service as Service,
)
from .cleanup import (
    CONTEXT_PREFIX as CONTEXT_PREFIX,
    Leftovers as Leftovers,
    Trace as Trace,
    docker_images as docker_images,
    docker_leftovers as docker_leftovers,
    local_layers as local_layers,
    local_leftovers as local_leftovers,
)
from .dockerfile import (
    with_base as with_base,
    with_sources as with_sources,
)
from .helpers import (
    MAIN as MAIN,
    empty_dirs_script as empty_dirs_script,
    service_of as service_of,
    stop_main as stop_main,
    upload_selected as upload_selected,
)
from .registry import (
    SandboxRegistry as SandboxRegistry,
)
