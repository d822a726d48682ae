"""Which of the collected rollouts run: the tasks that a job file names, and of these this machine's slice."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from pytest_benchflow.plugin.items import RolloutItem

if TYPE_CHECKING:
    from pytest_benchflow.rollout import RolloutFile


def keep_named(config: pytest.Config, items: list[pytest.Item], job: RolloutFile) -> None:
    """Deselect the tasks that a job file does not include, or excludes, by name or directory."""

    def is_wanted(item: RolloutItem) -> bool:
        return job.wants(item.summary.name, item.summary.name.rpartition("/")[2], item.path.parent.name)

    unwanted = [item for item in items if isinstance(item, RolloutItem) and not is_wanted(item)]
    if unwanted:
        config.hook.pytest_deselected(items=unwanted)
        dropped = set(unwanted)
        items[:] = [item for item in items if item not in dropped]


def keep_shard(config: pytest.Config, items: list[pytest.Item], index: int, count: int) -> None:
    """Deselect the rollouts that belong to other machines; the slices are even, and the same on every machine."""
    rollouts = sorted((item for item in items if isinstance(item, RolloutItem)), key=_order)
    mine = {item.nodeid for item in rollouts[index - 1 :: count]}
    elsewhere = [item for item in rollouts if item.nodeid not in mine]
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [item for item in items if not isinstance(item, RolloutItem) or item.nodeid in mine]


def _order(item: RolloutItem) -> tuple[str, str]:
    # By name first: on another machine the root or the copy of a source may be elsewhere, and ids with them.
    return hashlib.sha256(f"{item.summary.name}::{item.name}".encode()).hexdigest(), item.nodeid
