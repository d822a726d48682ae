from .base import (
    Backend as Backend,
    BackendOption as BackendOption,
    Capabilities as Capabilities,
    ExecResult as ExecResult,
    HasServices as HasServices,
    Leftover as Leftover,
    Leftovers as Leftovers,
    Limits as Limits,
    Mount as Mount,
    Process as Process,
    Sandbox as Sandbox,
    SandboxImage as SandboxImage,
    SandboxSpec as SandboxSpec,
    Service as Service,
)
from .build_context import (
    CONTEXT_PREFIX as CONTEXT_PREFIX,
)
from .dockerfile import (
    with_base as with_base,
    with_sources as with_sources,
)
from .helpers import (
    MAIN as MAIN,
    empty_dirs_script as empty_dirs_script,
    exec_checked as exec_checked,
    service_of as service_of,
    stop_main as stop_main,
    upload_selected as upload_selected,
)
from .registry import (
    SandboxRegistry as SandboxRegistry,
    configure_backend as configure_backend,
    parse_backend_options as parse_backend_options,
)
