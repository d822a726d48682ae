from .acp.handshake import (
    open_session as open_session,
)
from .acp.permissions import (
    approve_all as approve_all,
    reject_all as reject_all,
)
from .acp.session import (
    AcpSession as AcpSession,
)
from .acp.types import (
    SessionPlan as SessionPlan,
)
from .acp_agent import (
    AcpAgent as AcpAgent,
)
from .base import (
    Agent as Agent,
    AgentContext as AgentContext,
    AgentOutcome as AgentOutcome,
    AgentRequest as AgentRequest,
    ModelAccess as ModelAccess,
    PromptResult as PromptResult,
    Session as Session,
    Usage as Usage,
)
from .bundles.bundle import (
    Bundle as Bundle,
    BundleSpec as BundleSpec,
)
from .bundles.store import (
    BundleStore as BundleStore,
)
from .custom import register_agent as register_agent
from .legacy import (
    CredentialFile as CredentialFile,
    HostAuthFile as HostAuthFile,
    SubscriptionAuth as SubscriptionAuth,
)
from .manifest import (
    AgentManifest as AgentManifest,
    ErrorReport as ErrorReport,
    FailedState as FailedState,
    Quirks as Quirks,
)
from .manifest_file import (
    parse_manifest as parse_manifest,
    read_manifest as read_manifest,
)
from .registry import (
    FREE_AGENTS as FREE_AGENTS,
    AgentRegistry as AgentRegistry,
    get_agent as get_agent,
    list_agents as list_agents,
)
from .status import (
    AgentStatus as AgentStatus,
    describe as describe,
    missing_access as missing_access,
    statuses as statuses,
)
