"""Read a judge's answer: exactly one usable verdict for each criterion, or the reason why there is none."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_benchflow.configfile import quoted
from pytest_benchflow.core.text import printable
from pytest_benchflow.verify.criteria import Raw
from pytest_benchflow.verify.rubric_models import Criterion

_MAX_CHARS = 100_000
_MAX_OBJECTS = 50
_MAX_REASON = 4_000
_YES = frozenset({"yes", "true", "pass", "passed", "met", "1"})
_NO = frozenset({"no", "false", "fail", "failed", "unmet", "not met", "0"})
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,15})?")
_VERDICT_KEYS = ("verdict", "score", "value")
_REASON_KEYS = ("reason", "reasoning", "explanation")


class UnusableVerdict(Exception):
    """Why an answer cannot be used, in words that the judge can be told."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's word on one criterion."""

    raw: Raw
    value: float
    """Between 0 and 1."""
    reason: str


def parse_verdicts(text: str, keys: Mapping[str, Criterion]) -> dict[str, Verdict]:
    """Return the verdicts of an answer by the names of criteria.

    The answer may stand in prose or in a code fence. Several objects that could be the answer have to agree: one of
    them may be a quotation of the submission.
    """
    answers: list[dict[str, Verdict]] = []
    problem: UnusableVerdict | None = None
    for candidate in _objects(text[:_MAX_CHARS]):
        try:
            verdicts = _verdicts(candidate, keys)
        except UnusableVerdict as error:
            problem = problem or error
            continue
        if verdicts not in answers:
            answers.append(verdicts)
    if len({tuple(verdict.raw for verdict in verdicts.values()) for verdicts in answers}) > 1:
        raise UnusableVerdict("there are several JSON objects with different verdicts")
    if not answers:
        raise problem or UnusableVerdict("there is no complete JSON object")
    return answers[0]


def _objects(text: str) -> Iterator[Mapping[str, object]]:
    """Yield the outermost JSON objects in a text; a key twice, NaN and infinity are no JSON.

    What stands inside of an object that is broken or cut off is no answer by itself.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)
    start, last, n = text.find("{"), text.rfind("}"), 0
    while 0 <= start < last and n < _MAX_OBJECTS:
        n += 1
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = _end(text, start)
        else:
            if isinstance(value, dict):
                yield value
        start = text.find("{", end)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


def _end(text: str, start: int) -> int:
    """Return where a broken object ends; one that never does, and is no brace of a sentence, takes all that follows."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(text) if re.match(r'\{\s*"', text[start : start + 40]) else start + 1


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands there twice")
    return dict(pairs)


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is not a number")


def _verdicts(answer: Mapping[str, object], keys: Mapping[str, Criterion]) -> dict[str, Verdict]:
    entries = _entries(answer, keys)
    missing = [key for key in keys if key not in entries]
    if missing:
        raise UnusableVerdict(f"there is no verdict for {', '.join(missing)}")
    return {each.name: _verdict(key, entries[key], each) for key, each in keys.items()}


def _entries(answer: Mapping[str, object], keys: Mapping[str, Criterion]) -> Mapping[str, object]:
    """Return what an answer says of each criterion, in whichever of the usual forms."""
    known = {each.name: key for key, each in keys.items()} | {key: key for key in keys}
    listed = answer.get("verdicts", answer.get("criteria"))
    if isinstance(listed, Mapping):
        return _named(listed, known)
    if isinstance(listed, list):
        entries: dict[str, object] = {}
        for item in listed:
            name = next((item[key] for key in ("criterion", "name", "id") if key in item), None) if _is(item) else None
            key = known.get(name) if isinstance(name, str) else None
            if key in entries:
                raise UnusableVerdict(f"there are two verdicts for {key}")
            if key is not None:
                entries[key] = item
        return entries
    only = next(iter(keys)) if len(keys) == 1 else None
    if only is not None and not any(name in answer for name in known):
        return {only: answer} if any(key in answer for key in _VERDICT_KEYS) else {}
    return _named(answer, known)


def _is(item: object) -> bool:
    return isinstance(item, dict)


def _named(answer: Mapping[str, object], known: Mapping[str, str]) -> dict[str, object]:
    return {known[name]: value for name, value in answer.items() if name in known}


def _verdict(key: str, entry: object, criterion: Criterion) -> Verdict:
    if not isinstance(entry, Mapping):
        entry = {"verdict": entry}
    given = [entry[name] for name in _VERDICT_KEYS if name in entry]
    if not given:
        raise UnusableVerdict(f"{key} has no verdict")
    raws: list[bool | float] = []
    problems = []
    for value in given:
        try:
            raws.append(_raw(key, value, criterion))
        except UnusableVerdict as error:
            problems.append(error)
    if not raws:
        raise problems[0]
    if len(set(raws)) > 1:
        raise UnusableVerdict(f"{key} has two different verdicts")
    reasons = (text for name in _REASON_KEYS if isinstance(text := entry.get(name), str))
    return Verdict(raws[0], criterion.value(raws[0]), printable(next(reasons, "")).strip()[:_MAX_REASON])


def verdict_value(label: object, criterion: Criterion) -> float:
    """Return the score of a label, which is anything that the judge may answer."""
    return criterion.value(_raw(criterion.name, label, criterion))


def _raw(key: str, value: object, criterion: Criterion) -> bool | float:
    if criterion.kind == "binary":
        return _yes_or_no(key, value)
    if criterion.kind == "levels" and isinstance(value, str):
        by_name = {level.casefold(): n for n, level in enumerate(criterion.levels)}
        if (level := by_name.get(value.strip().casefold())) is not None:
            return level
    number = _number(key, value)
    low, high = {
        "likert": (1, criterion.points),
        "levels": (0, len(criterion.levels) - 1),
        "numeric": (criterion.low, criterion.high),
    }[criterion.kind]
    if not low <= number <= high:
        raise UnusableVerdict(f"the verdict of {key} is {number:g}, outside {low:g} to {high:g}")
    if criterion.kind != "numeric" and not number.is_integer():
        raise UnusableVerdict(f"the verdict of {key} is {number:g}, not a whole number")
    return int(number) if number.is_integer() else number


def _yes_or_no(key: str, value: object) -> bool:
    word = str(value).strip().casefold() if isinstance(value, str | bool) else None
    if word is None and isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise UnusableVerdict(f"the verdict of {key} is {quoted(value)}, neither yes nor no")


def _number(key: str, value: object) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnusableVerdict(f"the verdict of {key} is {quoted(value)}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UnusableVerdict(f"the verdict of {key} is not a finite number")
    return number
