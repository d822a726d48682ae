"""Rollouts: one agent configuration on one task, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_benchflow.late import late
from pytest_benchflow.rollout.config import PreAgentHook, RolloutConfig
from pytest_benchflow.rollout.environment import agent_spec
from pytest_benchflow.rollout.loops import LoopStrategy, parse_loop
from pytest_benchflow.rollout.native import document_prompts, document_scenes
from pytest_benchflow.rollout.resources import Resources
from pytest_benchflow.rollout.result import ErrorInfo, RolloutResult
from pytest_benchflow.rollout.rollout import Rollout
from pytest_benchflow.rollout.run import make_config, run_rollout
from pytest_benchflow.rollout.scenes import Role, Scene, Step, Turn, compile_scenes_to_steps
from pytest_benchflow.rollout.stage import demand_variables
from pytest_benchflow.rollout.store import utc_now, write_json
from pytest_benchflow.rollout.support import refuse_unsupported
from pytest_benchflow.rollout.users import BaseUser, FunctionUser, PassthroughUser, RoundResult, load_user

if TYPE_CHECKING:
    from pytest_benchflow.rollout.files import (
        ROLLOUT_SCHEMA,
        RolloutFile,
        load_rollout_file,
        rollout_config_from_dict,
        rollout_config_from_yaml,
        trial_config_from_dict,
        trial_config_from_yaml,
    )

__all__ = [
    "ROLLOUT_SCHEMA",
    "BaseUser",
    "ErrorInfo",
    "FunctionUser",
    "LoopStrategy",
    "PassthroughUser",
    "PreAgentHook",
    "Resources",
    "Role",
    "Rollout",
    "RolloutConfig",
    "RolloutFile",
    "RolloutResult",
    "RoundResult",
    "Scene",
    "Step",
    "Turn",
    "agent_spec",
    "compile_scenes_to_steps",
    "demand_variables",
    "document_prompts",
    "document_scenes",
    "load_rollout_file",
    "load_user",
    "make_config",
    "parse_loop",
    "refuse_unsupported",
    "rollout_config_from_dict",
    "rollout_config_from_yaml",
    "run_rollout",
    "trial_config_from_dict",
    "trial_config_from_yaml",
    "utc_now",
    "write_json",
]

__getattr__, __dir__ = late(
    __name__,
    {
        "files": (
            "ROLLOUT_SCHEMA",
            "RolloutFile",
            "load_rollout_file",
            "rollout_config_from_dict",
            "rollout_config_from_yaml",
            "trial_config_from_dict",
            "trial_config_from_yaml",
        ),
    },
)
