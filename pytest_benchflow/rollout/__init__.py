"""Rollouts: one agent configuration on one task, once."""

from pytest_benchflow.rollout.config import RolloutConfig
from pytest_benchflow.rollout.native import document_prompts, document_scenes
from pytest_benchflow.rollout.resources import Resources
from pytest_benchflow.rollout.result import ErrorInfo, RolloutResult
from pytest_benchflow.rollout.rollout import Rollout
from pytest_benchflow.rollout.run import run
from pytest_benchflow.rollout.scenes import Role, Scene, Step, Turn, compile_scenes_to_steps

__all__ = [
    "ErrorInfo",
    "Resources",
    "Role",
    "Rollout",
    "RolloutConfig",
    "RolloutResult",
    "Scene",
    "Step",
    "Turn",
    "compile_scenes_to_steps",
    "document_prompts",
    "document_scenes",
    "run",
]
