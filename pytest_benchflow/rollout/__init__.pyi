from .checks import (
    refuse_unsupported as refuse_unsupported,
    require_variables as require_variables,
)
from .config import (
    RolloutConfig as RolloutConfig,
    make_config as make_config,
    shared_settings as shared_settings,
)
from .files import (
    load_rollout_file as load_rollout_file,
    rollout_config_from_dict as rollout_config_from_dict,
    rollout_config_from_yaml as rollout_config_from_yaml,
    trial_config_from_dict as trial_config_from_dict,
    trial_config_from_yaml as trial_config_from_yaml,
)
from .files.model import (
    RolloutFile as RolloutFile,
)
from .files.schema import (
    rollout_schema as rollout_schema,
)
from .recorder import (
    utc_now as utc_now,
    write_json as write_json,
)
from .resources import (
    Resources as Resources,
)
from .result import (
    ErrorInfo as ErrorInfo,
    RolloutResult as RolloutResult,
)
from .rollout import (
    OnPhase as OnPhase,
    Rollout as Rollout,
    run_rollout as run_rollout,
)
from .scenes import (
    Role as Role,
    Scene as Scene,
    Step as Step,
    Turn as Turn,
    compile_scenes_to_steps as compile_scenes_to_steps,
    document_prompts as document_prompts,
    document_scenes as document_scenes,
)
from .settings import (
    PreAgentHook as PreAgentHook,
)
from .setup import (
    agent_spec as agent_spec,
)
from .users import (
    BaseUser as BaseUser,
    FunctionUser as FunctionUser,
    LoopStrategy as LoopStrategy,
    PassthroughUser as PassthroughUser,
    RoundResult as RoundResult,
    load_user as load_user,
    parse_loop as parse_loop,
)
