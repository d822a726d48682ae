"""Rollouts: one agent configuration on one task, once."""

from pytest_benchflow.rollout.config import RolloutConfig
from pytest_benchflow.rollout.resources import Resources
from pytest_benchflow.rollout.result import ErrorInfo, RolloutResult
from pytest_benchflow.rollout.rollout import Rollout
from pytest_benchflow.rollout.run import run

__all__ = ["ErrorInfo", "Resources", "Rollout", "RolloutConfig", "RolloutResult", "run"]
