"""A slice of the rollouts for one of many machines: even, and the same on every machine for the same items."""

from __future__ import annotations

import hashlib

import pytest

from pytest_benchflow.plugin.items import RolloutItem


def keep_shard(config: pytest.Config, items: list[pytest.Item], index: int, count: int) -> None:
    """Deselect the rollouts that belong to other machines; ordinary tests stay."""
    rollouts = sorted((item for item in items if isinstance(item, RolloutItem)), key=_order)
    mine = {item.nodeid for item in rollouts[index - 1 :: count]}
    others = [item for item in rollouts if item.nodeid not in mine]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if not isinstance(item, RolloutItem) or item.nodeid in mine]


def _order(item: RolloutItem) -> tuple[str, str]:
    # By name first: on another machine the root or the copy of a source may be elsewhere, and ids with them.
    return hashlib.sha256(f"{item.head.name}::{item.name}".encode()).hexdigest(), item.nodeid
