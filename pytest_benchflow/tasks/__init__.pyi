from .compose_services import (
    service_mentions as service_mentions,
)
from .document import (
    DocumentConfig as DocumentConfig,
    RoleConfig as RoleConfig,
    SceneConfig as SceneConfig,
    TurnConfig as TurnConfig,
    UserConfig as UserConfig,
)
from .git_source import (
    FetchedSource as FetchedSource,
    SourceError as SourceError,
    SourceSpec as SourceSpec,
    fetch_source as fetch_source,
    parse_source as parse_source,
)
from .index import (
    TaskIndex as TaskIndex,
)
from .layout import (
    find_task_file as find_task_file,
    find_tasks as find_tasks,
)
from .load import (
    load_task as load_task,
)
from .models import (
    AgentConfig as AgentConfig,
    Artifact as Artifact,
    CollectHook as CollectHook,
    EnvironmentConfig as EnvironmentConfig,
    Hardening as Hardening,
    Healthcheck as Healthcheck,
    Judge as Judge,
    McpServer as McpServer,
    SetupCommand as SetupCommand,
    SolutionConfig as SolutionConfig,
    StepConfig as StepConfig,
    TaskConfig as TaskConfig,
    VerifierConfig as VerifierConfig,
)
from .native import (
    Strategy as Strategy,
)
from .prompts import (
    Prompts as Prompts,
)
from .summary import (
    RunHints as RunHints,
    TaskSummary as TaskSummary,
)
from .task import (
    Document as Document,
    Network as Network,
    StepVerifier as StepVerifier,
    Task as Task,
    TaskStep as TaskStep,
)
