"""Reach this process's run from anywhere, without importing anything until one is wanted."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from pytest_benchflow.plugin.session import BenchSession
    from pytest_benchflow.rollout import RolloutResult  # noqa: F401 - named in a stash key


T = TypeVar("T")
RUN = pytest.StashKey["BenchSession"]()
SIGTERM = "SIGTERM"
"""What an interrupt says that came as this signal."""
TERMINATED_SEC = 3.5
"""How long all that runs may take to clean up then: who sends it kills the run some seconds later."""
RESULT = pytest.StashKey["RolloutResult"]()
"""On an item: the result of its rollout."""


def get_session(config: pytest.Config) -> BenchSession:
    """Return this process's run, made on first use; bad settings are pytest's own usage error."""
    if RUN not in config.stash:
        from pytest_benchflow.core.errors import BenchflowError
        from pytest_benchflow.plugin.session import BenchSession

        try:
            config.stash[RUN] = BenchSession(config)
        except BenchflowError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[RUN]


def existing_run(config: pytest.Config) -> BenchSession | None:
    """Return the run if anything has asked for one."""
    return config.stash.get(RUN, None)


@contextmanager
def as_pytest_outcome() -> Iterator[None]:
    """Turn our own errors into pytest's, without a traceback that tells the user nothing."""
    from pytest_benchflow.core.errors import BenchflowError, CannotRunHere

    try:
        yield
    except CannotRunHere as reason:
        raise pytest.skip.Exception(str(reason)) from None
    except BenchflowError as error:
        raise pytest.fail.Exception(f"{error.category} error: {error}", pytrace=False) from None


@contextmanager
def attribute_errors_to(hook: str) -> Iterator[None]:
    """Say whose fault it is that a hook of the user's raised, and where; nobody else would look there."""
    from pytest_benchflow.core.errors import BenchflowError, UsageError

    try:
        yield
    except BenchflowError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        description = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UsageError(f"{hook} raised {description} ({frame.filename}:{frame.lineno})") from error


def expect_type(value: object, kind: type[T], what: str, verb: str) -> T:
    """Return what a hook or a fixture of the user's gave, if it is of the kind that was asked for."""
    from pytest_benchflow.core.errors import UsageError

    if isinstance(value, kind):
        return value
    raise UsageError(f"{what} {verb} {type(value).__name__}", advice=f"give a {kind.__name__}")
