"""`bf judge check`: how far a judge agrees with labelled cases."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchflow.verify import Calibration, JudgeRubric

_SHOWN = 10


def add_judge(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    judge = commands.add_parser("judge", help="check judges").add_subparsers(dest="verb", required=True)
    check = judge.add_parser(
        "check",
        help="ask a judge about labelled cases, and say how far it agrees",
        description="Ask the judge of a rubric about cases with known verdicts. Each line of the cases is an object:"
        ' {"id": "a", "submission": "the work", "expected": {"CRITERION": "yes"}}, with "files" (texts by name), "path"'
        ' (a directory beside the cases) or "final_message" in place of "submission" where they are what is judged.'
        " The exit status is 1 if a case got no verdict, or if they agree less than --min-agreement.",
    )
    check.add_argument("rubric", type=Path, metavar="RUBRIC", help="a rubric.toml or rubric.json")
    check.add_argument(
        "--cases", type=Path, required=True, metavar="FILE", help="labelled cases, one JSON object a line"
    )
    check.add_argument("-m", "--model", metavar="ID", help="ask this model instead of the rubric's")
    check.add_argument("-k", "--repeats", type=_count, default=1, metavar="K", help="ask K times, to see verdicts flip")
    check.add_argument("--concurrency", type=_count, default=8, metavar="N", help="questions at a time (default: 8)")
    check.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="K=V",
        help="a variable for the judge; can be given more than once",
    )
    check.add_argument("--min-agreement", type=_share, metavar="X", help="fail below this share of equal verdicts")
    check.add_argument("--json", action="store_true", help="everything, as JSON")
    check.set_defaults(action=check_judge)


def check_judge(options: argparse.Namespace) -> int:
    """Run the check and print what came of it."""
    from pytest_benchflow.verify import (
        DEFAULT_MODEL,
        calibrate,
        judge_endpoint,
        load_cases,
        load_rubric,
        rubric_background,
    )

    rubric = load_rubric(options.rubric)
    cases = load_cases(options.cases, rubric)
    endpoint = judge_endpoint(
        options.model or rubric.model or DEFAULT_MODEL, dict(map(_variable, options.env)), option="--env"
    )
    with tempfile.TemporaryDirectory(prefix="bf-judge-") as scratch:
        checking = calibrate(
            rubric,
            endpoint,
            cases,
            scratch=Path(scratch),
            repeats=options.repeats,
            concurrency=options.concurrency,
            background=rubric_background(rubric),
        )
        calibration = asyncio.run(checking)
    if options.json:
        print(json.dumps(calibration.as_json(), indent=2, ensure_ascii=False))
    else:
        print(*_lines(rubric, calibration), sep="\n")
    agreement, least = calibration.agreement, options.min_agreement
    if least is not None and (agreement is None or agreement < least):
        shown = "unknown" if agreement is None else f"{agreement:.2f}"
        print(f"bf: agreement is {shown}, below --min-agreement {least:g}", file=sys.stderr)
        return 1
    return 1 if calibration.errors else 0


def _lines(rubric: JudgeRubric, calibration: Calibration) -> Iterator[str]:
    record = calibration.record
    mapped = f" ({', '.join(rubric.mapped)})" if rubric.mapped else ""
    yield f"{rubric.file}: dialect {rubric.dialect}{mapped}"
    width = max(len("criterion"), *(len(each.name) for each in calibration.criteria))
    yield f"{'criterion':{width}}  cases  agreement  kappa  distance  flips"
    for each in calibration.criteria:
        numbers = (
            _number(each.agreement, 9),
            _number(each.kappa, 5),
            _number(each.distance, 8),
            _number(each.flips, 5),
        )
        yield f"{each.name:{width}}  {each.n_cases:5}  {'  '.join(numbers)}"
    differing = [*calibration.disagreements()]
    for case, name, label, score in differing[:_SHOWN]:
        yield f"{case}: {name} is labelled {label:g} and judged {score.value:g}: {score.reason}"
    if len(differing) > _SHOWN:
        yield f"and {len(differing) - _SHOWN} more, with --json all"
    yield from (f"{each.case.name}: no verdict: {each.error}" for each in calibration.errors)
    if record is not None:
        cost = "cost unknown" if record.cost_usd is None else f"${record.cost_usd:.4f}"
        tokens = f"{record.input_tokens} tokens in, {record.output_tokens} out"
        yield f"{record.model}: {record.calls} calls, {tokens}, {cost}"


def _number(value: float | None, width: int) -> str:
    return f"{'–' if value is None else f'{value:.2f}':>{width}}"


def _variable(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"--env is {text!r}", advice="give NAME=VALUE")
    return name, value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return share
