"""Match invoices with payments by their references."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """An invoice or a payment. References can be compared, ordered and hashed."""

    reference: Any
    cents: int


@dataclass(frozen=True)
class Result:
    """Positions in the two lists."""

    pairs: list[tuple[int, int]]
    unpaid: list[int]
    unknown: list[int]


def match(invoices: Sequence[Entry], payments: Sequence[Entry]) -> Result:
    """Pair each invoice, in order, with the first unused payment of the same reference and amount.

    `pairs` holds (invoice, payment) positions in the order of the invoices, `unpaid` the invoices that are left, and
    `unknown` the payments whose reference occurs in no invoice at all. Both lists of positions ascend.
    """
    places: dict[tuple[Any, int], deque[int]] = defaultdict(deque)
    for place, payment in enumerate(payments):
        places[payment.reference, payment.cents].append(place)
    pairs: list[tuple[int, int]] = []
    unpaid: list[int] = []
    for position, invoice in enumerate(invoices):
        waiting = places.get((invoice.reference, invoice.cents))
        if waiting:
            pairs.append((position, waiting.popleft()))
        else:
            unpaid.append(position)
    known = {invoice.reference for invoice in invoices}
    unknown = [place for place, payment in enumerate(payments) if payment.reference not in known]
    return Result(pairs, unpaid, unknown)


def duplicates(entries: Sequence[Entry]) -> list[int]:
    """Return the positions of entries whose reference and amount both occurred before, ascending."""
    seen: set[tuple[Any, int]] = set()
    found = []
    for position, entry in enumerate(entries):
        key = (entry.reference, entry.cents)
        if key in seen:
            found.append(position)
        seen.add(key)
    return found
