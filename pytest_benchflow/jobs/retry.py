"""Retry: what the harness could not do is tried again, what an agent did never is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pytest_benchflow.core.errors import BadValue, Category
from pytest_benchflow.core.text import did_you_mean

if TYPE_CHECKING:
    from pytest_benchflow.rollout import ErrorInfo, RolloutResult


#: Switches of older releases, with the failures that each of them is about.
_SWITCHES = {
    "retry_on_install": {Category.INSTALL},
    "retry_on_pipe": {Category.HANDSHAKE, Category.AGENT},
    "retry_on_acp": {Category.HANDSHAKE, Category.AGENT},
    "retry_on_infra": {Category.SANDBOX, Category.BUILD, Category.DEADLINE, Category.HEALTHCHECK},
    "retry_on_verifier_infra": {Category.VERIFIER, Category.JUDGE},
    "retry_on_api_error": {Category.PROVIDER},
}
#: Categories of older releases that may be excluded; here they are never retried.
_OLDER = {"timeout", "idle_timeout", "provider_auth", "provider_rate_limit", "provider_rejected"}


@dataclass(frozen=True)
class RetryConfig:
    """How often, and after which wait, a rollout that failed for reasons of the harness is tried again."""

    max_retries: int = 2
    retry_on_install: bool = True
    retry_on_pipe: bool = True
    retry_on_acp: bool = True
    retry_on_idle_timeout: bool = True
    """Nothing to switch here: an agent that fell silent is verified, and its reward counts."""
    retry_on_infra: bool = True
    retry_on_verifier_infra: bool = True
    retry_on_api_error: bool = True
    wait_multiplier: float = 2.0
    min_wait_sec: float = 1.0
    max_wait_sec: float = 30.0
    exclude_categories: frozenset[str] = field(default_factory=frozenset)
    """Categories not to retry, beyond those that another attempt cannot cure."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "exclude_categories", frozenset(self.exclude_categories))
        known = {*Category, *_OLDER}
        for word in self.exclude_categories:
            if word not in known:
                raise BadValue(f"exclude_categories has {word!r}", advice=did_you_mean(word, Category))
        for key in ("max_retries", "min_wait_sec", "max_wait_sec"):
            if getattr(self, key) < 0:
                raise BadValue(f"{key} is {getattr(self, key)}", advice="give 0 or more")

    @classmethod
    def from_mapping(cls, given: Mapping[str, object] | None) -> RetryConfig:
        """Return the configuration that a mapping describes; what it leaves out has the usual value."""
        known = {each.name for each in fields(cls)}
        for key in given or ():
            if key not in known:
                raise BadValue(f"retry has the unknown key {key!r}", advice=did_you_mean(key, known))
        settings: dict[str, Any] = dict(given or {})
        return cls(**settings)

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait before retry number `attempt`, counted from 1."""
        return min(self.min_wait_sec * self.wait_multiplier**attempt, self.max_wait_sec)

    def should_retry(self, result: RolloutResult, attempt: int) -> bool:
        """Tell whether a rollout is worth another attempt after attempt number `attempt`, counted from 1."""
        return result.error is not None and attempt <= self.max_retries and self.is_retried(result.error)

    def is_retried(self, error: ErrorInfo) -> bool:
        """Tell whether a failure of this kind is tried again at all."""
        if not error.retryable or error.category in self.exclude_categories:
            return False
        return all(getattr(self, switch) for switch, about in _SWITCHES.items() if error.category in about)
