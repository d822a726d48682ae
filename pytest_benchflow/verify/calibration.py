"""How far a judge agrees with people: labelled cases, agreement beyond chance, and verdicts that flip."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from pytest_benchflow.configfile import Problem, TaskError, quoted, read_text
from pytest_benchflow.core.errors import JudgeError
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.core.types import Json
from pytest_benchflow.providers import Asker, ModelEndpoint
from pytest_benchflow.verify.criteria import CriterionScore, JudgeRecord, combined
from pytest_benchflow.verify.judge import Judge
from pytest_benchflow.verify.judge_prompt import Background
from pytest_benchflow.verify.rubric_models import Criterion, JudgeRubric
from pytest_benchflow.verify.submission import Work
from pytest_benchflow.verify.verdicts import UnusableVerdict, verdict_value

_KEYS = ("id", "submission", "files", "path", "final_message", "task", "expected")
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Case:
    """Work that people have labelled: the score that each criterion should get."""

    name: str
    expected: Mapping[str, float]
    files: Mapping[str, str]
    directory: Path | None = None
    final_message: str | None = None
    task: str = ""


@dataclass(frozen=True, slots=True)
class CaseVerdicts:
    """What the judge said of a case, each time it was asked."""

    case: Case
    rounds: tuple[tuple[CriterionScore, ...], ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CriterionCalibration:
    """How a criterion fared over all cases that have a label for it."""

    name: str
    n_cases: int
    agreement: float | None
    """The share of verdicts that are the label's."""
    kappa: float | None
    """Agreement beyond chance: 1 is perfect, 0 is chance; weighted by distance where there are more than two scores.
    None where all labels are the same, which leaves nothing to tell apart."""
    distance: float | None
    """How far verdicts are from labels, on average, from 0 to 1."""
    flips: float | None
    """The share of cases whose verdict changed between repeats; None without repeats."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The outcome of a check."""

    criteria: tuple[CriterionCalibration, ...]
    cases: tuple[CaseVerdicts, ...]
    repeats: int
    record: JudgeRecord | None

    @property
    def agreement(self) -> float | None:
        """The share of all verdicts that are the label's."""
        counted = [(each.agreement, each.n_cases) for each in self.criteria if each.agreement is not None]
        total = sum(n for _, n in counted)
        return sum(share * n for share, n in counted) / total if total else None

    @property
    def errors(self) -> list[CaseVerdicts]:
        """The cases on which the judge gave no verdict."""
        return [each for each in self.cases if each.error is not None]

    def disagreements(self) -> Iterator[tuple[str, str, float, CriterionScore]]:
        """Yield case, criterion, label and verdict wherever they differ in the first round."""
        for each in self.cases:
            for score in each.rounds[0] if each.rounds else ():
                label = each.case.expected.get(score.name)
                if label is not None and abs(label - score.value) > _SAME:
                    yield each.case.name, score.name, label, score

    def as_json(self) -> dict[str, Json]:
        """Return all of it as plain data."""
        record = self.record
        return {
            "agreement": self.agreement,
            "repeats": self.repeats,
            "criteria": [
                {
                    "name": each.name,
                    "cases": each.n_cases,
                    "agreement": each.agreement,
                    "kappa": each.kappa,
                    "distance": each.distance,
                    "flips": each.flips,
                }
                for each in self.criteria
            ],
            "cases": [
                {
                    "id": each.case.name,
                    "expected": dict(each.case.expected),
                    "rounds": [{score.name: score.value for score in scores} for scores in each.rounds],
                    "reasons": {score.name: score.reason for score in each.rounds[0]} if each.rounds else {},
                    "error": each.error,
                }
                for each in self.cases
            ],
            "judge": None
            if record is None
            else {
                "model": record.model,
                "models": list(record.models),
                "calls": record.calls,
                "input_tokens": record.input_tokens,
                "output_tokens": record.output_tokens,
                "cost_usd": record.cost_usd,
            },
        }


def load_cases(path: Path, rubric: JudgeRubric) -> list[Case]:
    """Return the labelled cases of a file, one JSON object per line, or raise with everything that is wrong in it."""
    cases: list[Case] = []
    problems: list[Problem] = []
    # Not by `splitlines`: JSON may hold separators of lines that are none here.
    for number, line in enumerate(read_text(str(path)).split("\n"), 1):
        if line.strip():
            try:
                cases.append(_case(json.loads(line, object_pairs_hook=_once), number, path.parent, rubric))
            except json.JSONDecodeError as error:
                problems.append(Problem(str(path), number, None, f"is not valid JSON: {error.msg}"))
            except _Fault as fault:
                problems.append(Problem(str(path), number, fault.key, fault.reason, fault.fix))
    if not cases and not problems:
        fix = '{"submission": "the work", "expected": {"' + rubric.criteria[0].name + '": ' + '"yes"}}'
        problems.append(Problem(str(path), None, None, "has no case", f"write one per line, for example {fix}"))
    if problems:
        raise TaskError(problems)
    return cases


class _Fault(Exception):
    def __init__(self, key: str | None, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.key, self.reason, self.fix = key, reason, fix


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    if len({*keys}) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Fault(twice, "stands there twice", "keep one of them")
    return dict(pairs)


def _case(data: object, number: int, here: Path, rubric: JudgeRubric) -> Case:
    if not isinstance(data, dict):
        raise _Fault(None, "is not an object", 'write {"submission": …, "expected": {…}}')
    for key in data:
        if key not in _KEYS:
            raise _Fault(key, "is not a known key", did_you_mean(key, _KEYS))
    for key in ("submission", "path", "final_message", "task", "id"):
        if key in data and not isinstance(data[key], str):
            raise _Fault(key, f"is {quoted(data[key])}", "give a string")
    files = data.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise _Fault("files", f"is {quoted(files)}", "give texts by their file names")
    if "submission" in data:
        files = {"submission.txt": data["submission"], **files}
    for name in files:
        if not name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise _Fault("files", f"has the name {quoted(name)}", "give names relative to the submission")
    directory = here / data["path"] if "path" in data else None
    if directory is not None and not directory.is_dir():
        raise _Fault("path", f"is {quoted(data['path'])}, which is not a directory", "give one relative to this file")
    if not files and directory is None and "final_message" not in data:
        raise _Fault(None, "has no submission", "give submission, files, path or final_message")
    expected = _expected(data.get("expected"), rubric)
    name = data.get("id", f"line {number}")
    return Case(name, expected, files, directory, data.get("final_message"), data.get("task", ""))


def _expected(labels: object, rubric: JudgeRubric) -> dict[str, float]:
    """Return the labels as scores; a single one is enough where there is a single criterion."""
    criteria = {each.name: each for each in rubric.criteria}
    if not isinstance(labels, dict) and labels is not None and len(criteria) == 1:
        labels = {next(iter(criteria)): labels}
    if not isinstance(labels, dict) or not labels:
        reason = "is missing" if labels is None else f"is {quoted(labels)}"
        raise _Fault(
            "expected", reason, f'give a verdict by criterion, for example {{"{next(iter(criteria))}": "yes"}}'
        )
    expected = {}
    for name, label in labels.items():
        if name not in criteria:
            raise _Fault(f"expected.{name}", "is not a criterion of the rubric", did_you_mean(name, criteria))
        try:
            expected[name] = verdict_value(label, criteria[name])
        except UnusableVerdict as problem:
            raise _Fault("expected", str(problem), "give what the judge may answer") from None
    return expected


async def calibrate(
    rubric: JudgeRubric,
    endpoint: ModelEndpoint,
    cases: Sequence[Case],
    *,
    scratch: Path,
    repeats: int = 1,
    concurrency: int = 8,
    background: Background | None = None,
) -> Calibration:
    """Judge every case as often as asked, and compare; a case without a verdict is told, and counts nowhere."""
    limit, records = asyncio.Semaphore(concurrency), list[JudgeRecord]()
    background = background or Background()
    async with Asker(endpoint) as asker:

        async def judge(number: int, case: Case) -> CaseVerdicts:
            work = await asyncio.to_thread(_work, case, scratch / str(number))
            shown = replace(rubric, final_message=rubric.final_message or case.final_message is not None)
            rounds = []
            for _ in range(repeats):
                judge = Judge(
                    shown, asker, background=replace(background, task=case.task or background.task), limit=limit
                )
                try:
                    rounds.append((await judge.score(work)).criteria)
                except JudgeError as error:
                    return CaseVerdicts(case, (), str(error))
                finally:
                    records.append(judge.record)
            return CaseVerdicts(case, tuple(rounds))

        judged = await asyncio.gather(*(judge(number, case) for number, case in enumerate(cases)))
    criteria = tuple(_calibration(each, judged, repeats) for each in rubric.criteria)
    return Calibration(criteria, tuple(judged), repeats, combined(records))


def _work(case: Case, directory: Path) -> Work:
    if not case.files:
        return Work(case.directory, case.final_message)
    for name, text in case.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", errors="backslashreplace")
    return Work(directory, case.final_message)


def _calibration(criterion: Criterion, judged: Sequence[CaseVerdicts], repeats: int) -> CriterionCalibration:
    pairs: list[tuple[float, float]] = []
    n_cases = flips = 0
    for each in judged:
        label = each.case.expected.get(criterion.name)
        values = [score.value for scores in each.rounds for score in scores if score.name == criterion.name]
        if label is None or not values:
            continue
        n_cases += 1
        flips += max(values) - min(values) > _SAME
        pairs += [(label, value) for value in values]
    same = sum(abs(label - value) <= _SAME for label, value in pairs)
    return CriterionCalibration(
        name=criterion.name,
        n_cases=n_cases,
        agreement=same / len(pairs) if pairs else None,
        kappa=kappa(pairs),
        distance=math.fsum(abs(label - value) for label, value in pairs) / len(pairs) if pairs else None,
        flips=flips / n_cases if n_cases and repeats > 1 else None,
    )


def kappa(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Cohen's kappa of two raters, weighted by the square of the distance between their scores.

    With two scores that is the plain kappa. None where chance alone would agree: both always say the same.
    """
    if not pairs:
        return None
    n = len(pairs)
    observed = math.fsum((a - b) ** 2 for a, b in pairs) / n
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = math.fsum((a - b) ** 2 * times * others for a, times in first.items() for b, others in second.items()) / (
        n * n
    )
    return None if chance == 0 else 1 - observed / chance
