"""Jobs: many rollouts, their concurrency, directory, retry and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.jobs.directory import claim_job_directory
from pytest_benchflow.jobs.engine import Engine
from pytest_benchflow.jobs.statistics import (
    bootstrap_interval,
    mean,
    pass_all_k,
    pass_at_k,
    percentile,
    wilson_interval,
)
from pytest_benchflow.late import late

if TYPE_CHECKING:
    from pytest_benchflow.jobs.evaluation import Evaluation, ResumeMismatch
    from pytest_benchflow.jobs.evaluation_config import EvaluationConfig
    from pytest_benchflow.jobs.evaluation_result import EvaluationResult, TaskFailure
    from pytest_benchflow.jobs.metrics import BenchmarkMetrics, TaskMetrics, collect_metrics
    from pytest_benchflow.jobs.retry import RetryConfig
    from pytest_benchflow.jobs.stored import bucket, last_word, read_results

__all__ = [
    "BenchmarkMetrics",
    "Engine",
    "Evaluation",
    "EvaluationConfig",
    "EvaluationResult",
    "ResumeMismatch",
    "RetryConfig",
    "TaskFailure",
    "TaskMetrics",
    "bootstrap_interval",
    "bucket",
    "claim_job_directory",
    "collect_metrics",
    "last_word",
    "mean",
    "pass_all_k",
    "pass_at_k",
    "percentile",
    "read_results",
    "wilson_interval",
]

__getattr__, __dir__ = late(
    __name__,
    {
        "evaluation": ("Evaluation", "ResumeMismatch"),
        "evaluation_config": ("EvaluationConfig",),
        "evaluation_result": ("EvaluationResult", "TaskFailure"),
        "metrics": ("BenchmarkMetrics", "TaskMetrics", "collect_metrics"),
        "retry": ("RetryConfig",),
        "stored": ("bucket", "last_word", "read_results"),
    },
)
