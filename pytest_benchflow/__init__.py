"""Agent benchmark tasks as pytest items, and the plain asyncio library underneath.

import pytest_benchflow as bf

result = await bf.run("oracle", task_path="tasks/hello-world")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.late import late

if TYPE_CHECKING:
    from pytest_benchflow.agents import register_agent
    from pytest_benchflow.environment import Environment
    from pytest_benchflow.errors import BenchflowError, UsageError
    from pytest_benchflow.jobs import (
        BenchmarkMetrics,
        Evaluation,
        EvaluationConfig,
        EvaluationResult,
        RetryConfig,
        TaskFailure,
        TaskMetrics,
        collect_metrics,
    )
    from pytest_benchflow.rollout import (
        BaseUser,
        FunctionUser,
        PassthroughUser,
        Role,
        Rollout,
        RolloutConfig,
        RolloutFile,
        RolloutResult,
        RoundResult,
        Scene,
        Step,
        Turn,
        compile_scenes_to_steps,
        load_rollout_file,
        rollout_config_from_dict,
        rollout_config_from_yaml,
        trial_config_from_dict,
        trial_config_from_yaml,
    )
    from pytest_benchflow.runtime import Agent, Runtime, RuntimeConfig, RuntimeResult, run
    from pytest_benchflow.sdk import SDK
    from pytest_benchflow.tasks import Task, TaskError, load_task

    Trial, TrialConfig, RunResult = Rollout, RolloutConfig, RolloutResult
    Job, JobConfig, JobResult = Evaluation, EvaluationConfig, EvaluationResult

_NAMES = {
    "agents": ("register_agent",),
    "environment": ("Environment",),
    "errors": ("BenchflowError", "UsageError"),
    "jobs": (
        "BenchmarkMetrics",
        "Evaluation",
        "EvaluationConfig",
        "EvaluationResult",
        "RetryConfig",
        "TaskFailure",
        "TaskMetrics",
        "collect_metrics",
    ),
    "rollout": (
        "BaseUser",
        "FunctionUser",
        "PassthroughUser",
        "Role",
        "Rollout",
        "RolloutConfig",
        "RolloutFile",
        "RolloutResult",
        "RoundResult",
        "Scene",
        "Step",
        "Turn",
        "compile_scenes_to_steps",
        "load_rollout_file",
        "rollout_config_from_dict",
        "rollout_config_from_yaml",
        "trial_config_from_dict",
        "trial_config_from_yaml",
    ),
    "runtime": ("Agent", "Runtime", "RuntimeConfig", "RuntimeResult", "run"),
    "sdk": ("SDK",),
    "tasks": ("Task", "TaskError", "load_task"),
}
#: What things were called in older releases.
_ALIASES = {
    "Job": "Evaluation",
    "JobConfig": "EvaluationConfig",
    "JobResult": "EvaluationResult",
    "RunResult": "RolloutResult",
    "Trial": "Rollout",
    "TrialConfig": "RolloutConfig",
}

__all__ = [
    "SDK",
    "Agent",
    "BaseUser",
    "BenchflowError",
    "BenchmarkMetrics",
    "Environment",
    "Evaluation",
    "EvaluationConfig",
    "EvaluationResult",
    "FunctionUser",
    "Job",
    "JobConfig",
    "JobResult",
    "PassthroughUser",
    "RetryConfig",
    "Role",
    "Rollout",
    "RolloutConfig",
    "RolloutFile",
    "RolloutResult",
    "RoundResult",
    "RunResult",
    "Runtime",
    "RuntimeConfig",
    "RuntimeResult",
    "Scene",
    "Step",
    "Task",
    "TaskError",
    "TaskFailure",
    "TaskMetrics",
    "Trial",
    "TrialConfig",
    "Turn",
    "UsageError",
    "collect_metrics",
    "compile_scenes_to_steps",
    "load_rollout_file",
    "load_task",
    "register_agent",
    "rollout_config_from_dict",
    "rollout_config_from_yaml",
    "run",
    "trial_config_from_dict",
    "trial_config_from_yaml",
]

__getattr__, __dir__ = late(__name__, _NAMES, _ALIASES)
