from .env_templates import (
    MissingVariables as MissingVariables,
    filled_variables as filled_variables,
    missing_variables as missing_variables,
    resolve_env as resolve_env,
    resolve_headers as resolve_headers,
)
from .problems import (
    Problem as Problem,
    TaskError as TaskError,
    as_errors as as_errors,
    in_order as in_order,
)
from .sources import (
    Data as Data,
    Path as Path,
    Source as Source,
    TomlSource as TomlSource,
    read_text as read_text,
)
from .validate import (
    validate_model as validate_model,
)
from .values import (
    Count as Count,
    Cpus as Cpus,
    DirectoryName as DirectoryName,
    Env as Env,
    Host as Host,
    Megabytes as Megabytes,
    NetworkMode as NetworkMode,
    NonEmpty as NonEmpty,
    Number as Number,
    PhaseNetworkMode as PhaseNetworkMode,
    Seconds as Seconds,
    Table as Table,
    Trials as Trials,
    User as User,
    VersionText as VersionText,
    directory_name as directory_name,
    folded as folded,
    quoted as quoted,
    rule_error as rule_error,
)
from .yaml_source import (
    FrontMatterSource as FrontMatterSource,
    YamlSource as YamlSource,
)
