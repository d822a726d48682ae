"""Decide what the end of a prompt means: a result of the agent's, or a failure of the harness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pytest_benchflow.acp.evidence import Evidence
from pytest_benchflow.acp.provider import provider_error
from pytest_benchflow.agents import AgentOutcome
from pytest_benchflow.errors import AgentError
from pytest_benchflow.text import one_line

#: Stop reasons that end the agent's work early; only a model that answers can give the first three.
_OF_THE_MODEL = frozenset({"refusal", "max_tokens", "max_turn_requests"})
_GAVE_UP = _OF_THE_MODEL | {"cancelled"}
_SHOWN = 400


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


Ending: TypeAlias = Answered | Failed | Died | TimedOut


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
                raise provider_error(f"{message} (code {code})", f"{agent} got no answer from its model{named}")
            return AgentOutcome.GAVE_UP, one_line(message, _SHOWN)
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
    if turn.failed_last and turn.complaint:
        return AgentOutcome.GAVE_UP, one_line(turn.complaint, _SHOWN)
    if not turn.answered:
        said = f": {one_line(turn.complaint, _SHOWN)}" if turn.complaint else ""
        return AgentOutcome.GAVE_UP, f"the model gave no answer to this prompt{said}"
    return AgentOutcome.COMPLETED, None if reason == "end_turn" else f"stopped with {one_line(reason)}"
