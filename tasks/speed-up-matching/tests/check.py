"""Compare with the slow functions on small inputs, and count comparisons on large ones."""

import json
import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, succeed

DRIVER = """
import functools, json, sys
sys.path.insert(0, "/app")
from ledger.matching import Entry, duplicates, match

count = limit = 0

class TooMany(Exception):
    pass

def counted():
    global count
    count += 1
    if count > limit:
        raise TooMany

@functools.total_ordering
class Reference:
    __slots__ = ("_Reference__hidden",)
    def __init__(self, value):
        self.__hidden = value
    def __eq__(self, other):
        counted()
        return isinstance(other, Reference) and self.__hidden == other.__hidden
    def __lt__(self, other):
        counted()
        return self.__hidden < other.__hidden
    def __hash__(self):
        counted()
        return hash(self.__hidden)
    def __repr__(self):
        return "<reference>"

def entries(rows):
    return [Entry(Reference(value), cents) for value, cents in rows]

answers = []
for name, *lists in json.load(sys.stdin):
    arguments = [entries(rows) for rows in lists]
    before = [list(argument) for argument in arguments]
    count, limit = 0, max(1000, 60 * len(arguments[0]))
    try:
        if name == "match":
            result = match(*arguments)
            value = [result.pairs, result.unpaid, result.unknown]
        else:
            value = duplicates(*arguments)
    except TooMany:
        value = None
    operations = count
    kept = all(a is b for old, new in zip(before, arguments) for a, b in zip(old, new, strict=True))
    answers.append([value, operations, kept])
print(json.dumps(answers))
"""


def call(*calls):
    """Return [value, number of operations on references, arguments kept] for each call."""
    return json.loads(succeed("python3", "-I", "-c", DRIVER, stdin=json.dumps(calls), timeout=20))


def slow_match(invoices, payments):
    pairs, unpaid, used = [], [], set()
    for position, invoice in enumerate(invoices):
        place = next((p for p, payment in enumerate(payments) if payment == invoice and p not in used), None)
        if place is None:
            unpaid.append(position)
        else:
            used.add(place)
            pairs.append([position, place])
    known = {reference for reference, _ in invoices}
    return [pairs, unpaid, [p for p, (reference, _) in enumerate(payments) if reference not in known]]


def slow_duplicates(entries):
    return [n for n, entry in enumerate(entries) if entry in entries[:n]]


def rows(rng, count, references, amounts):
    return [[rng.randrange(references), rng.randrange(amounts)] for _ in range(count)]


@check
def match_returns_the_same():
    rng = random.Random(1)
    cases = [(rows(rng, rng.randrange(12), 5, 3), rows(rng, rng.randrange(12), 6, 3)) for _ in range(300)]
    for case, (value, _, kept) in zip(cases, call(*(["match", *case] for case in cases))):
        equal(value, slow_match(*case), f"match{case}")
        assert kept, "match changed its arguments"


@check
def duplicates_returns_the_same():
    rng = random.Random(2)
    cases = [rows(rng, rng.randrange(15), 4, 3) for _ in range(300)]
    for case, (value, _, kept) in zip(cases, call(*(["duplicates", case] for case in cases))):
        equal(value, slow_duplicates(case), f"duplicates({case})")
        assert kept, "duplicates changed its argument"


def within(name, *lists):
    """Call once and fail if there were more than 60 operations per entry of one list."""
    [[value, operations, _]] = call([name, *lists])
    count = len(lists[0])
    assert operations <= 60 * count, f"{name} with {count} entries: more than {60 * count} operations on references"
    assert operations > 0, f"{name} never looked at a reference"
    return value


@check
def match_scales_with_distinct_references():
    numbers = list(range(3000))
    random.Random(3).shuffle(numbers)
    invoices, payments = [[n, 100] for n in range(3000)], [[n, 100] for n in numbers]
    pairs, unpaid, unknown = within("match", invoices, payments)
    equal((sorted(pair[0] for pair in pairs), unpaid, unknown), (list(range(3000)), [], []), "result")


@check
def match_scales_when_nothing_fits():
    pairs, unpaid, unknown = within("match", [[n, 1] for n in range(3000)], [[n, 2] for n in range(1500, 4500)])
    equal((pairs, len(unpaid), unknown), ([], 3000, list(range(1500, 3000))), "result")


@check
def duplicates_scales():
    entries = [[n % 2500, 7] for n in range(3000)]
    equal(within("duplicates", entries), list(range(2500, 3000)), "result")


@check
def thousands_of_equal_entries():
    same = [["r", 5]] * 5000
    pairs, unpaid, unknown = within("match", same, same)
    equal((pairs == [[n, n] for n in range(5000)], unpaid, unknown), (True, [], []), "result")
    equal(within("duplicates", same) == list(range(1, 5000)), True, "duplicates found")


@check
def one_reference_with_many_amounts():
    invoices = [["r", n] for n in range(5000)]
    pairs, unpaid, unknown = within("match", invoices, invoices[::-1])
    equal((pairs == [[n, 4999 - n] for n in range(5000)], unpaid, unknown), (True, [], []), "result")


finish()
