"""Shifts of people, and who is on duty when."""

from dataclasses import dataclass

from shiftplan.intervals import Interval, gaps

DAY = 24 * 60


@dataclass(frozen=True)
class Shift:
    """One person's daily shift; a night shift ends after DAY."""

    name: str
    start: int
    end: int


def parse_shift(line: str) -> Shift:
    """Parse `NAME HH:MM-HH:MM`.

    NAME may contain spaces. A shift that ends at or before its start runs into the next day:
    `Ada 22:00-06:00` is Shift("Ada", 1320, 1800). `24:00` is allowed as an end. Raises ValueError for
    anything else, such as a missing name or a minute of 60.
    """
    name, times = line.split()
    start, end = (_minutes(part) for part in times.split("-"))
    if end < start:
        end += DAY
    return Shift(name, start, end)


def on_duty(shifts: list[Shift], minute: int) -> list[str]:
    """Return the names of the people on duty at a minute of the day (0 to 1439), sorted, each name once.

    Shifts repeat every day, so a night shift counts before and after midnight.
    """
    return sorted(shift.name for shift in shifts if shift.start <= minute <= shift.end)


def uncovered(shifts: list[Shift]) -> list[Interval]:
    """Return the parts of a day on which nobody is on duty, taking daily repetition into account."""
    return gaps([(shift.start, shift.end) for shift in shifts], 0, DAY)


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)
