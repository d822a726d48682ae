"""Reach this process's run from anywhere, without importing anything until one is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_benchflow.rollout import RolloutResult  # noqa: F401 - named in a stash key
    from pytest_benchflow.this_run import Run

RUN = pytest.StashKey["Run"]()
RESULT = pytest.StashKey["RolloutResult"]()
"""On an item: the result of its rollout."""


def get_run(config: pytest.Config) -> Run:
    """Return this process's run, made on first use; bad settings are pytest's own usage error."""
    if RUN not in config.stash:
        from pytest_benchflow.errors import BenchflowError
        from pytest_benchflow.this_run import Run

        try:
            config.stash[RUN] = Run(config)
        except BenchflowError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[RUN]


def existing_run(config: pytest.Config) -> Run | None:
    """Return the run if anything has asked for one."""
    return config.stash.get(RUN, None)


@contextmanager
def short_errors() -> Iterator[None]:
    """Turn our own errors into pytest's, without a traceback that tells the user nothing."""
    from pytest_benchflow.errors import BenchflowError, CannotRunHere

    try:
        yield
    except CannotRunHere as reason:
        raise pytest.skip.Exception(str(reason)) from None
    except BenchflowError as error:
        raise pytest.fail.Exception(f"{error.category} error: {error}", pytrace=False) from None
