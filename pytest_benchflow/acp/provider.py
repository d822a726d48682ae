"""Tell from an agent's own words why its model could not be reached, and what to do about it."""

from __future__ import annotations

import re

from pytest_benchflow.errors import ProviderError
from pytest_benchflow.text import one_line

_SHOWN = 400
_REASONS = (
    (
        r"\b40[13]\b|unauthori[sz]ed|authenticat|forbidden|permission denied|(?:invalid|incorrect).{0,20}key|/login",
        "check the API key or login that it uses",
        False,
    ),
    (r"quota|credit|insufficient|billing", "the account has nothing left to spend with this provider", False),
    (r"\b429\b|rate.?limit|too many", "the provider limits this account: wait, or lower --bf-concurrency", True),
    (
        r"\b404\b|model.{0,60}not (?:found|exist|support)|(?:unknown|no such|invalid) model",
        "check the model id",
        False,
    ),
    (
        r"\b5\d\d\b|overloaded|high demand|unavailable|server error|timed? ?out|connection|fetch failed|\bretry",
        "the provider has trouble: try again later",
        True,
    ),
)
_UNKNOWN = "look at its log, check key and model id, and that the provider can be reached from the sandbox"


def provider_error(complaint: str | None, what: str, *, retryable: bool = False) -> ProviderError:
    """Return the error for a model that could not be reached; `retryable` holds where no reason is known."""
    for pattern, advice, is_transient in _REASONS:
        if complaint and re.search(pattern, complaint, re.IGNORECASE):
            return ProviderError(f"{what}: {one_line(complaint, _SHOWN)}", advice=advice, retryable=is_transient)
    said = f": {one_line(complaint, _SHOWN)}" if complaint else ""
    return ProviderError(what + said, advice=_UNKNOWN, retryable=retryable)
