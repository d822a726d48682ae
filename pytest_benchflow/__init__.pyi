from .agents.custom import register_agent as register_agent
from .api.environment import Environment as Environment
from .api.run import (
    Agent as Agent,
    Runtime as Runtime,
    RuntimeConfig as RuntimeConfig,
    RuntimeResult as RuntimeResult,
    run as run,
)
from .api.sdk import (
    SDK as SDK,
    Job as Job,
    JobConfig as JobConfig,
    JobResult as JobResult,
    RunResult as RunResult,
    Trial as Trial,
    TrialConfig as TrialConfig,
)
from .configfile import TaskError as TaskError
from .core.errors import BenchflowError as BenchflowError, UsageError as UsageError
from .jobs import (
    BenchmarkMetrics as BenchmarkMetrics,
    Evaluation as Evaluation,
    EvaluationConfig as EvaluationConfig,
    EvaluationResult as EvaluationResult,
    RetryConfig as RetryConfig,
    TaskFailure as TaskFailure,
    TaskMetrics as TaskMetrics,
    collect_metrics as collect_metrics,
)
from .rollout import (
    BaseUser as BaseUser,
    FunctionUser as FunctionUser,
    PassthroughUser as PassthroughUser,
    Role as Role,
    Rollout as Rollout,
    RolloutConfig as RolloutConfig,
    RolloutFile as RolloutFile,
    RolloutResult as RolloutResult,
    RoundResult as RoundResult,
    Scene as Scene,
    Step as Step,
    Turn as Turn,
    compile_scenes_to_steps as compile_scenes_to_steps,
    load_rollout_file as load_rollout_file,
    rollout_config_from_dict as rollout_config_from_dict,
    rollout_config_from_yaml as rollout_config_from_yaml,
    trial_config_from_dict as trial_config_from_dict,
    trial_config_from_yaml as trial_config_from_yaml,
)
from .tasks import Task as Task, load_task as load_task
