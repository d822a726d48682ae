"""Which failures are tried again, how often and after which wait."""

from __future__ import annotations

import pytest
from results import result

from pytest_benchflow.core.errors import Category
from pytest_benchflow.jobs import RetryConfig


@pytest.mark.parametrize(
    ("config", "delays"),
    [
        (RetryConfig(), [2, 4, 8, 16, 30, 30]),
        (RetryConfig(wait_multiplier=1, min_wait_sec=3), [3, 3, 3]),
        (RetryConfig(min_wait_sec=0), [0, 0]),
        (RetryConfig(max_wait_sec=5), [2, 4, 5, 5]),
    ],
)
def test_waits_grow_up_to_their_limit(config: RetryConfig, delays: list[float]) -> None:
    assert [config.delay(attempt) for attempt in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize(
    ("config", "given", "attempt", "again"),
    [
        (RetryConfig(), result(reward=0.0), 1, False),
        (RetryConfig(), result(reward=1.0), 1, False),
        (RetryConfig(), result(category=Category.SANDBOX, retryable=True), 1, True),
        (RetryConfig(), result(category=Category.SANDBOX, retryable=True), 2, True),
        (RetryConfig(), result(category=Category.SANDBOX, retryable=True), 3, False),
        (RetryConfig(), result(category=Category.CREDENTIALS), 1, False),
        (RetryConfig(), result(category=Category.REWARD), 1, False),
        (RetryConfig(max_retries=0), result(category=Category.SANDBOX, retryable=True), 1, False),
        (RetryConfig(retry_on_infra=False), result(category=Category.SANDBOX, retryable=True), 1, False),
        (RetryConfig(retry_on_install=False), result(category=Category.INSTALL, retryable=True), 1, False),
        (RetryConfig(retry_on_install=False), result(category=Category.SANDBOX, retryable=True), 1, True),
        (RetryConfig(retry_on_acp=False), result(category=Category.HANDSHAKE, retryable=True), 1, False),
        (
            RetryConfig(exclude_categories=frozenset({"sandbox"})),
            result(category=Category.SANDBOX, retryable=True),
            1,
            False,
        ),
        (RetryConfig(), result(category=None, reward=None, skipped="no solution"), 1, False),
    ],
)
def test_only_what_the_harness_could_not_do_is_tried_again(
    config: RetryConfig, given: object, attempt: int, again: bool
) -> None:
    assert config.should_retry(given, attempt) is again  # type: ignore[arg-type]


def test_what_a_mapping_leaves_out_is_as_usual() -> None:
    assert RetryConfig.from_mapping({"max_retries": 5}) == RetryConfig(max_retries=5)
    assert RetryConfig.from_mapping({"exclude_categories": ["timeout", "build"]}).exclude_categories == {
        "timeout",
        "build",
    }
    assert RetryConfig.from_mapping(None) == RetryConfig.from_mapping({}) == RetryConfig()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_retrys": 1}, "retry has the unknown key 'max_retrys'; did you mean max_retries?"),
        ({"max_retries": -1}, "max_retries is -1; give 0 or more"),
        ({"exclude_categories": ["sandbx"]}, "exclude_categories has 'sandbx'; did you mean sandbox?"),
    ],
)
def test_a_mistake_is_told(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        RetryConfig.from_mapping(given)
    assert str(caught.value) == message
