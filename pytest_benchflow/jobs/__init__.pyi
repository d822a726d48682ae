from .engine import (
    Engine as Engine,
)
from .evaluation import (
    Evaluation as Evaluation,
    EvaluationConfig as EvaluationConfig,
    EvaluationResult as EvaluationResult,
    TaskFailure as TaskFailure,
)
from .job import (
    Job as Job,
    ResumeMismatch as ResumeMismatch,
    claim_job_directory as claim_job_directory,
    newest_job as newest_job,
    open_job as open_job,
    owner_of as owner_of,
    retry_policy as retry_policy,
)
from .matrix import (
    AgentChoice as AgentChoice,
    Cell as Cell,
    SceneChoice as SceneChoice,
    cells as cells,
    safe_name as safe_name,
)
from .metrics import (
    BenchmarkMetrics as BenchmarkMetrics,
    Tally as Tally,
    TaskMetrics as TaskMetrics,
    bootstrap_interval as bootstrap_interval,
    collect_metrics as collect_metrics,
    mean as mean,
    pass_all_k as pass_all_k,
    pass_at_k as pass_at_k,
    percentile as percentile,
    wilson_interval as wilson_interval,
)
from .results import (
    latest_attempts as latest_attempts,
    not_started as not_started,
    outcome_class as outcome_class,
    read_results as read_results,
)
from .retry import (
    RetryConfig as RetryConfig,
)
