"""Agent benchmark tasks as pytest items, and the plain asyncio library underneath.

import pytest_benchflow as bf

result = await bf.run("oracle", task_path="tasks/hello-world")
"""

from typing import TYPE_CHECKING

from pytest_benchflow.core.lazy import lazy_exports

if TYPE_CHECKING:
    from .agents import AgentOutcome as AgentOutcome
    from .agents.custom import register_agent as register_agent
    from .api.adapters import InspectAdapter as InspectAdapter
    from .api.adapters import ORSAdapter as ORSAdapter
    from .api.adapters import to_inspect_task as to_inspect_task
    from .api.adapters import to_ors_reward as to_ors_reward
    from .api.environment import Environment as Environment
    from .api.run import Agent as Agent
    from .api.run import Runtime as Runtime
    from .api.run import RuntimeConfig as RuntimeConfig
    from .api.run import RuntimeResult as RuntimeResult
    from .api.run import run as run
    from .api.sdk import SDK as SDK
    from .api.sdk import AgentInstallError as AgentInstallError
    from .api.sdk import Job as Job
    from .api.sdk import JobConfig as JobConfig
    from .api.sdk import JobResult as JobResult
    from .api.sdk import RubricConfig as RubricConfig
    from .api.sdk import RunResult as RunResult
    from .api.sdk import SandboxExecResult as SandboxExecResult
    from .api.sdk import Trial as Trial
    from .api.sdk import TrialConfig as TrialConfig
    from .configfile import TaskError as TaskError
    from .core.errors import ACPError as ACPError
    from .core.errors import AgentError as AgentError
    from .core.errors import BenchflowError as BenchflowError
    from .core.errors import BuildError as BuildError
    from .core.errors import CannotRunHere as CannotRunHere
    from .core.errors import Category as Category
    from .core.errors import CredentialsError as CredentialsError
    from .core.errors import HandshakeError as HandshakeError
    from .core.errors import InstallError as InstallError
    from .core.errors import JudgeEnvironmentError as JudgeEnvironmentError
    from .core.errors import JudgeError as JudgeError
    from .core.errors import JudgeScoringError as JudgeScoringError
    from .core.errors import ProviderError as ProviderError
    from .core.errors import RewardError as RewardError
    from .core.errors import SandboxError as SandboxError
    from .core.errors import SandboxSnapshotNotSupported as SandboxSnapshotNotSupported
    from .core.errors import UnsupportedError as UnsupportedError
    from .core.errors import UsageError as UsageError
    from .core.errors import VerifierError as VerifierError
    from .jobs import BenchmarkMetrics as BenchmarkMetrics
    from .jobs import Evaluation as Evaluation
    from .jobs import EvaluationConfig as EvaluationConfig
    from .jobs import EvaluationResult as EvaluationResult
    from .jobs import RetryConfig as RetryConfig
    from .jobs import TaskFailure as TaskFailure
    from .jobs import TaskMetrics as TaskMetrics
    from .jobs import collect_metrics as collect_metrics
    from .rollout import BaseUser as BaseUser
    from .rollout import ErrorInfo as ErrorInfo
    from .rollout import FunctionUser as FunctionUser
    from .rollout import PassthroughUser as PassthroughUser
    from .rollout import Role as Role
    from .rollout import Rollout as Rollout
    from .rollout import RolloutConfig as RolloutConfig
    from .rollout import RolloutFile as RolloutFile
    from .rollout import RolloutResult as RolloutResult
    from .rollout import RoundResult as RoundResult
    from .rollout import Scene as Scene
    from .rollout import Step as Step
    from .rollout import Turn as Turn
    from .rollout import compile_scenes_to_steps as compile_scenes_to_steps
    from .rollout import load_rollout_file as load_rollout_file
    from .rollout import rollout_config_from_dict as rollout_config_from_dict
    from .rollout import rollout_config_from_yaml as rollout_config_from_yaml
    from .rollout import trial_config_from_dict as trial_config_from_dict
    from .rollout import trial_config_from_yaml as trial_config_from_yaml
    from .sandboxes import ExecResult as ExecResult
    from .sandboxes import Process as Process
    from .sandboxes import Sandbox as Sandbox
    from .sandboxes import SandboxImage as SandboxImage
    from .tasks import Task as Task
    from .tasks import load_task as load_task
    from .verify import CodeExecRewardFunc as CodeExecRewardFunc
    from .verify import Criterion as Criterion
    from .verify import CriterionScore as CriterionScore
    from .verify import JudgeConfig as JudgeConfig
    from .verify import JudgeRubric as JudgeRubric
    from .verify import LLMJudgeRewardFunc as LLMJudgeRewardFunc
    from .verify import RewardEvent as RewardEvent
    from .verify import RewardFunc as RewardFunc
    from .verify import Rubric as Rubric
    from .verify import ScoringConfig as ScoringConfig
    from .verify import StringMatchRewardFunc as StringMatchRewardFunc
    from .verify import TestRewardFunc as TestRewardFunc
    from .verify import VerifyResult as VerifyResult
    from .verify import load_rubric as load_rubric
    from .verify import load_rubric_json as load_rubric_json
    from .verify import load_rubric_toml as load_rubric_toml

__getattr__, __dir__ = lazy_exports(__name__, __file__)
