"""Rollout and job files: YAML that says who works on which tasks, and how."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.rollout.files.model import AgentEntry, RoleEntry, RolloutFile, SceneEntry, UserEntry

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig

__all__ = [
    "AgentEntry",
    "RoleEntry",
    "RolloutFile",
    "SceneEntry",
    "UserEntry",
    "load_rollout_file",
    "rollout_config_from_dict",
    "rollout_config_from_yaml",
    "trial_config_from_dict",
    "trial_config_from_yaml",
]


def load_rollout_file(path: Path | str) -> RolloutFile:
    """Read a rollout or job file of any dialect; ValueError with everything that is wrong with it."""
    from pytest_benchflow.rollout.files.load import read_file

    return read_file(Path(path))


def rollout_config_from_yaml(path: Path | str, task_path: Path | str | None = None) -> RolloutConfig:
    """Return the configuration of the rollout that a file describes, on its own task or the one given."""
    return load_rollout_file(path).config(task_path)


def rollout_config_from_dict(raw: Mapping[str, object], task_path: Path | str | None = None) -> RolloutConfig:
    """Return the configuration of the rollout that plain data describe; paths are relative to where Python runs."""
    from pytest_benchflow.rollout.files.load import read_mapping

    return read_mapping(raw, Path()).config(task_path)


trial_config_from_yaml = rollout_config_from_yaml
trial_config_from_dict = rollout_config_from_dict
