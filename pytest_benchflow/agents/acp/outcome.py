"""Decide what the end of a prompt means: a result of the agent's, or a failure of the harness or its provider."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pytest_benchflow.agents.acp.evidence import Evidence, has_status
from pytest_benchflow.agents.base import AgentOutcome
from pytest_benchflow.core.errors import AgentError, ProviderError
from pytest_benchflow.core.text import one_line

_SHOWN = 400


class _Reason(NamedTuple):
    """Why a provider does not answer."""

    pattern: str
    advice: str
    patience_sec: float | None = None
    """For how long an agent may go on trying; None means that trying again is in vain."""


#: A minute is the window in which providers count requests; of other trouble agents of their own give up after less
#: than half a minute.
_REASONS = (
    _Reason(
        r"\b40[13]\b|unauthori[sz]ed|authenticat|forbidden|permission denied|(?:invalid|incorrect).{0,20}key|/login",
        "check the API key or login that it uses",
    ),
    _Reason(r"quota|credit|insufficient|billing", "the account has nothing left to spend with this provider"),
    _Reason(r"\b429\b|rate.?limit|too many", "the provider limits this account: wait, or lower --bf-concurrency", 60.0),
    _Reason(r"\b404\b|model.{0,60}not (?:found|exist|support)|(?:unknown|no such|invalid) model", "check the model id"),
    _Reason(
        r"\b5\d\d\b|overloaded|high demand|unavailable|server.?error|timed? ?out|connection|fetch failed|\bretry",
        "the provider has trouble: try again later",
        30.0,
    ),
)
_UNKNOWN = "look at its log, check key and model id, and that the provider can be reached from the sandbox"
#: One refusal may be of a login that the agent then renews.
_REFUSALS = 2
#: For failures that do not tell their reason.
_PATIENCE_SEC = 60.0
#: Where work is at stake, an agent may wait for a provider for longer.
_AT_WORK_SEC = 300.0


def _reason(complaint: str | None) -> _Reason | None:
    reasons = (each for each in _REASONS if complaint and re.search(each.pattern, complaint, re.IGNORECASE))
    return next(reasons, None)


def is_hopeless(turn: Evidence, *, answered: bool) -> bool:
    """Return whether an agent tries in vain, by what it reported: one that is silent may have an answer coming."""
    reason = _reason(turn.complaint)
    patience = _PATIENCE_SEC if reason is None else reason.patience_sec
    if patience is None:
        return turn.failures >= _REFUSALS
    return turn.failures > 0 and turn.failing_sec >= (_AT_WORK_SEC if answered else patience)


def provider_error(complaint: str | None, what: str, *, retryable: bool = False) -> ProviderError:
    """Return the error for a model that could not be reached; `retryable` holds where no reason is known."""
    said = f": {one_line(complaint, _SHOWN)}" if complaint else ""
    if (reason := _reason(complaint)) is None:
        return ProviderError(what + said, advice=_UNKNOWN, retryable=retryable)
    return ProviderError(what + said, advice=reason.advice, retryable=reason.patience_sec is not None)


#: Stop reasons that end the agent's work early; only a model that answers can give the first three.
_OF_THE_MODEL = frozenset({"refusal", "max_tokens", "max_turn_requests"})
_GAVE_UP = _OF_THE_MODEL | {"cancelled"}


@dataclass(frozen=True, slots=True)
class Answered:
    """The agent ended the turn."""

    stop_reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The agent answered the prompt with an error."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Died:
    """The agent ended, or stopped speaking the protocol."""

    detail: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The agent was stopped."""

    reason: str
    limit_sec: float
    detail: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The agent was stopped, because its provider answered with nothing but errors."""

    failures: int
    seconds: float

    @property
    def detail(self) -> str:
        """What happened, in a few words."""
        return f"{self.failures} calls of its model failed within {max(1, round(self.seconds))} s"


Ending: TypeAlias = Answered | Failed | Died | TimedOut | Unreachable


def conclude(
    ending: Ending, turn: Evidence, *, answered_before: bool, agent: str, model: str | None = None
) -> tuple[AgentOutcome, str | None]:
    """Return outcome and detail of a prompt; an agent whose model never answered is no result but an error."""
    answered = answered_before or turn.answered
    named = f" {model}" if model else ""
    match ending:
        case Answered(reason):
            if not answered and reason not in _OF_THE_MODEL:
                raise provider_error(turn.complaint, f"{agent} ended its turn without an answer of its model{named}")
            return _of_stop(reason, turn)
        case Failed(code, message):
            if not answered:
                text = f"{message} (code {code})"
                if turn.complaint and has_status(turn.complaint) and not has_status(message):
                    text = f"{text}: {turn.complaint}"
                raise provider_error(text, f"{agent} got no answer from its model{named}")
            return AgentOutcome.GAVE_UP, one_line(message, _SHOWN)
        case Unreachable():
            if not answered:
                raise provider_error(turn.complaint, f"{agent} got no answer from its model{named}, {ending.detail}")
            return AgentOutcome.GAVE_UP, one_line(f"{ending.detail}: {turn.complaint}", _SHOWN)
        case Died(detail):
            if not answered:
                raise AgentError(f"{agent} {detail} before its model answered", advice="look at its log")
            return AgentOutcome.CRASHED, detail
        case TimedOut(_, limit, detail):
            if not answered:
                what = f"the model{named} of {agent} never answered within {limit:g} s"
                raise provider_error(turn.complaint, what, retryable=ending.reason == "idle_timeout")
            return AgentOutcome.TIMED_OUT, detail


def _of_stop(reason: str, turn: Evidence) -> tuple[AgentOutcome, str | None]:
    if reason in _GAVE_UP:
        return AgentOutcome.GAVE_UP, f"stopped with {reason}"
    if (turn.failed_last or turn.retried_last) and turn.complaint:
        return AgentOutcome.GAVE_UP, one_line(turn.complaint, _SHOWN)
    if not turn.answered:
        said = f": {one_line(turn.complaint, _SHOWN)}" if turn.complaint else ""
        return AgentOutcome.GAVE_UP, f"the model gave no answer to this prompt{said}"
    return AgentOutcome.COMPLETED, None if reason == "end_turn" else f"stopped with {one_line(reason)}"
