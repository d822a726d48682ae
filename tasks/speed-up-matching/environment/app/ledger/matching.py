"""Match invoices with payments by their references."""

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
    pairs: list[tuple[int, int]] = []
    unpaid: list[int] = []
    used: list[int] = []
    for position, invoice in enumerate(invoices):
        for place, payment in enumerate(payments):
            if payment.reference == invoice.reference and payment.cents == invoice.cents and place not in used:
                pairs.append((position, place))
                used.append(place)
                break
        else:
            unpaid.append(position)
    unknown = []
    for place, payment in enumerate(payments):
        if not any(invoice.reference == payment.reference for invoice in invoices):
            unknown.append(place)
    return Result(pairs, unpaid, unknown)


def duplicates(entries: Sequence[Entry]) -> list[int]:
    """Return the positions of entries whose reference and amount both occurred before, ascending."""
    found = []
    for position, entry in enumerate(entries):
        for earlier in entries[:position]:
            if earlier.reference == entry.reference and earlier.cents == entry.cents:
                found.append(position)
                break
    return found
