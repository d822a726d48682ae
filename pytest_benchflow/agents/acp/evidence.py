"""Tell whether a model answered: `end_turn` does not say so, several agents send it although every call failed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from pytest_benchflow.agents.acp.types import as_count, as_text, at_path
from pytest_benchflow.agents.manifest import Quirks
from pytest_benchflow.core.types import Json

#: How agents in general begin when they tell of a failed call, and what they then speak of.
_FAILURE_HEAD = re.compile(
    r"""\W*(?:error\b\s*[:(\[\d] | fatal\b | api\ error | llm\b | provider\b | http\b | [45]\d\d\b
    | (?:the\ )?(?:api|model|request)\b.{0,40}\bfail
    | (?:failed|unable)\ to | could\ not | authentication\b | unauthori[sz]ed | forbidden | invalid\ | incorrect\ api
    | rate.?limit | quota | too\ many\ requests | overloaded | internal\ server | service\ unavailable | please\ run\ /
    | (?:your\ )?credit\ balance | we.re\ currently | (?:connection|stream|network)\ (?:error|failed|refused|reset)
    | agent\ failed | type"\s*:\s*"error | error"\s*: )""",
    re.IGNORECASE | re.VERBOSE,
)
_FAILURE_WORDS = re.compile(
    r"""\bapi\b | api.?key | \bprovider\b | \bllm\b | \bhttps?\b | \b[45]\d\d\b | rate.?limit | quota
    | too\ many\ requests | overloaded | high\ demand | authenticat | unauthori[sz]ed | credit | /login | unavailable
    | server\ error | gateway
    | (?:response|answer)\ from | econn | timed?\ ?out | fetch\ failed | (?:connection|stream|network)\ (?:e|f|r)\w+""",
    re.IGNORECASE | re.VERBOSE,
)
_TROUBLE = re.compile(r"\bretry|\bfailed\b|\berror\b", re.IGNORECASE)
_STATUS = re.compile(r"\b[45]\d\d\b")
_STATUS_TEXT = re.compile(
    r"""\W*(?:http\W*)?[45]\d\d\W+(?:bad\ request | unauthori[sz]ed | payment | forbidden | not\ found
    | request | conflict | payload | unprocessable | too\ many | internal | not\ implemented | bad\ gateway | service
    | gateway | status | error | overloaded | client | server | \{)""",
    re.IGNORECASE | re.VERBOSE,
)
#: A failure is told shortly; what is longer is a model's own text about failures.
_LONGEST_FAILURE = 2000


def is_own_word(text: str, quirks: Quirks, *, is_start: bool) -> bool:
    """Return whether a piece of message is one that the agent writes itself."""
    patterns = quirks.notices + quirks.opening_notices if is_start else quirks.notices
    return bool(patterns) and _any_of(patterns).match(text) is not None


def is_helper_model(name: str, quirks: Quirks) -> bool:
    """Return whether a model is one that the agent uses beside the one that does the work."""
    return bool(quirks.helper_models) and _any_of(quirks.helper_models).match(name) is not None


@cache
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\s*(?:{'|'.join(f'(?:{pattern})' for pattern in patterns)})", re.IGNORECASE)


def is_failure(text: str) -> bool:
    """Return whether the beginning of a message tells that the model could not be reached."""
    head = _FAILURE_HEAD.match(text)
    if len(text) > _LONGEST_FAILURE or head is None:
        return False
    # A number alone tells nothing: a model may count, or answer with one.
    if _STATUS.search(head[0]) is not None and _STATUS_TEXT.match(text) is None:
        text = _STATUS.sub("", text)
    return _FAILURE_WORDS.search(text) is not None


def has_status(text: str) -> bool:
    """Return whether a report of a failed call has the status of the provider's answer."""
    return _STATUS.search(text) is not None


def complaint_in(update: dict[str, Json], quirks: Quirks) -> str | None:
    """Return the trouble with its model that an agent reports beside its messages."""
    for report in quirks.errors:
        if report.update in (None, update.get("sessionUpdate")):
            parts = [_part(at_path(update, path)) for path in report.text]
            if any(parts):
                return ": ".join(part for part in parts if part)
    return None


def _part(value: Json) -> str | None:
    return str(value) if as_count(value) is not None else as_text(value)


def is_broken(update: dict[str, Json], quirks: Quirks) -> bool | None:
    """Return whether an agent is in a state in which only it speaks, not its model; None if the update has no state."""
    state = quirks.failed_state and at_path(update, quirks.failed_state.path)
    return None if not state or quirks.failed_state is None else state == quirks.failed_state.value


class FailureLog:
    """Finds reports of failed calls in what an agent prints."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
        self._begun = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the reports in the lines that are complete by now."""
        if not self._patterns:
            return []
        *lines, begun = (self._begun + data).split(b"\n")
        self._begun = begun[-_LONGEST_FAILURE:]
        texts = [line.decode("utf-8", "replace") for line in lines]
        matches = [match for text in texts for pattern in self._patterns if (match := pattern.search(text))]
        return [match[1] if match.re.groups else match.string for match in matches]


@dataclass(slots=True)
class Evidence:
    """What is known of one turn."""

    said: bool = False
    """The agent said or thought something that is not its own word on failing calls."""
    is_broken: bool = False
    """Whether the agent has told that whatever it says now is its own word."""
    tool_calls: int = 0
    output_tokens: int = 0
    complaint: str | None = None
    """The last word of the agent on trouble with its model; one that has the status is kept until another has it."""
    failures: int = 0
    """How many failed calls were reported since the model last answered."""
    failing_sec: float = 0.0
    """How much time was between the first and the last of these reports."""
    failed_last: bool = False
    """Whether that word was its last."""
    retried_last: bool = False
    """Whether it told of trying again, and its model has not answered since."""
    quirks: Quirks = field(default_factory=Quirks)
    """How the agent reports failing calls."""
    clock: Callable[[], float] = time.monotonic
    _first_failure: float = 0.0
    _starts: int = 0
    """How many things were said."""

    @property
    def answered(self) -> bool:
        """Return whether the model answered at least once."""
        return self.said or self.tool_calls > 0 or self.output_tokens > 0

    def hear(self, text: str, *, is_start: bool) -> bool:
        """Take a piece of message or thought; return whether it is the agent's own and not its model's.

        Only the start of a message is looked at closely: the pieces of a model's text may read like anything.
        """
        if not text.strip():
            return False
        own, failure = is_own_word(text, self.quirks, is_start=is_start), self.is_broken or is_failure(text)
        if own or (failure and (is_start or self.is_broken)):
            self.retried_last |= _TROUBLE.search(text) is not None
            if failure or (self.complaint is None and _TROUBLE.search(text)):
                self.report_failure(text)
            elif _TROUBLE.search(text):
                self._count_failures(1)
            self.failed_last = failure
            return True
        self._starts += is_start or not self.said
        self.said = True
        self._answer()
        return False

    def report_failure(self, text: str, count: int = 1) -> None:
        """Take a report of failed calls, from wherever the agent gives it."""
        if self.complaint is None or has_status(text) or not has_status(self.complaint):
            self.complaint = text.strip()
        self._count_failures(count)

    def _count_failures(self, count: int) -> None:
        if not self.failures:
            self._first_failure = self.clock()
        self.failures += count
        self.failing_sec = self.clock() - self._first_failure

    def take_back(self, message: str | None, error: str) -> None:
        """Take the only thing that was said for the agent's own word, if the error that ended the turn repeats it."""
        if message and message.strip() in error and self._starts == 1:
            self.said = False

    def saw_tool_call(self) -> None:
        """Take a tool call, which only a model makes."""
        self.tool_calls += 1
        self._answer()

    def _answer(self) -> None:
        self.failed_last = self.retried_last = False
        self.failures, self.failing_sec = 0, 0.0
