"""Call the package in a process of its own and compare with a reference that works minute by minute."""

import json
import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, succeed

DAY = 1440
DRIVER = """
import json, sys
sys.path.insert(0, "/app")
import shiftplan
from shiftplan import Shift
answers = []
for name, args in json.load(sys.stdin):
    if name in ("on_duty", "uncovered"):
        args[0] = [Shift(*shift) for shift in args[0]]
    elif name in ("merge", "gaps"):
        args[0] = [tuple(pair) for pair in args[0]]
    try:
        value = getattr(shiftplan, name)(*args)
        if isinstance(value, Shift):
            value = [value.name, value.start, value.end]
    except ValueError:
        value = "ValueError"
    answers.append([value, args[0] if name in ("merge", "gaps") else None])
print(json.dumps(answers))
"""


def call(*calls):
    """Run calls [function, arguments] and return [value, first argument afterwards] for each."""
    return json.loads(succeed("python3", "-I", "-c", DRIVER, stdin=json.dumps(calls)))


def spans(minutes):
    """Turn a set of minutes into sorted [start, end] pairs."""
    edges = []
    for minute in sorted(minutes):
        if edges and edges[-1][1] == minute:
            edges[-1][1] = minute + 1
        else:
            edges.append([minute, minute + 1])
    return edges


def covered(intervals):
    return {minute for start, end in intervals for minute in range(start, end)}


def random_intervals(rng, top):
    return [[start, start + rng.randrange(0, 12)] for start in (rng.randrange(top) for _ in range(rng.randrange(9)))]


@check
def merge_joins_overlapping_and_touching():
    rng = random.Random(11)
    cases = [[[480, 720], [720, 960]], [[0, 100], [10, 20], [30, 40]], [[5, 5]], []]
    cases += [random_intervals(rng, 60) for _ in range(200)]
    for case, (value, _) in zip(cases, call(*(["merge", [case]] for case in cases))):
        equal(value, spans(covered(case)), f"merge({case})")


@check
def merge_leaves_its_argument_alone():
    case = [[300, 400], [100, 200], [150, 250]]
    [[_, after]] = call(["merge", [case]])
    equal(after, case, "the list given to merge, afterwards")


@check
def gaps_stay_inside_the_period():
    rng = random.Random(12)
    cases = [([[480, 960]], 480, 1080), ([[0, 10], [90, 99]], 20, 80), ([], 5, 9), ([[0, 100]], 10, 20)]
    for _ in range(200):
        start = rng.randrange(40)
        cases.append((random_intervals(rng, 60), start, start + rng.randrange(30)))
    for case, (value, _) in zip(cases, call(*(["gaps", list(case)] for case in cases))):
        equal(value, spans(set(range(case[1], case[2])) - covered(case[0])), f"gaps{case}")


@check
def shifts_are_parsed():
    lines = {
        "Ada 22:00-06:00": ["Ada", 1320, 1800],
        "Grace Hopper 08:00-16:30": ["Grace Hopper", 480, 990],
        "Jean E. Sammet 16:00-24:00": ["Jean E. Sammet", 960, 1440],
        "Mary 07:00-07:00": ["Mary", 420, 1860],
    }
    for line, (value, _) in zip(lines, call(*(["parse_shift", [line]] for line in lines))):
        equal(value, lines[line], f"parse_shift({line!r})")


@check
def malformed_shifts_are_refused():
    lines = ["", "08:00-16:00", "Ada 08:00", "Ada 08:60-16:00", "Ada 24:00-06:00", "Ada 08:00-25:00", "Ada eight-nine"]
    for line, (value, _) in zip(lines, call(*(["parse_shift", [line]] for line in lines))):
        equal(value, "ValueError", f"parse_shift({line!r})")


SHIFTS = [["Ada", 1320, 1800], ["Grace", 480, 960], ["Ada", 300, 500], ["Barbara", 960, 1440]]


@check
def duty_ends_on_the_minute_and_wraps_midnight():
    minutes = [0, 359, 360, 479, 480, 959, 960, 1319, 1320, 1439]
    answers = call(*(["on_duty", [SHIFTS, minute]] for minute in minutes))
    for minute, (value, _) in zip(minutes, answers):
        want = sorted({n for n, start, end in SHIFTS if start <= minute < end or start <= minute + DAY < end})
        equal(value, want, f"on_duty at minute {minute}")


@check
def uncovered_knows_the_night_shift():
    cases = [SHIFTS, [["Ada", 1320, 1800]], [["Ada", 600, 2040]], []]
    for shifts, (value, _) in zip(cases, call(*(["uncovered", [shifts]] for shifts in cases))):
        busy = {minute % DAY for minute in covered([shift[1:] for shift in shifts])}
        equal(value, spans(set(range(DAY)) - busy), f"uncovered({shifts})")


finish()
