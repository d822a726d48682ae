"""Shifts of people, and who is on duty when."""

import re
from dataclasses import dataclass

from shiftplan.intervals import Interval, gaps

DAY = 24 * 60
LINE = re.compile(r"(\S.*?) +(\d\d):([0-5]\d)-(\d\d):([0-5]\d)")


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
    match = LINE.fullmatch(line.strip())
    if match is None:
        raise ValueError(f"not a shift: {line!r}")
    name, *numbers = match.groups()
    hours, minutes, end_hours, end_minutes = map(int, numbers)
    start, end = hours * 60 + minutes, end_hours * 60 + end_minutes
    if start >= DAY or end > DAY:
        raise ValueError(f"no such time of day: {line!r}")
    return Shift(name, start, end if end > start else end + DAY)


def on_duty(shifts: list[Shift], minute: int) -> list[str]:
    """Return the names of the people on duty at a minute of the day (0 to 1439), sorted, each name once.

    Shifts repeat every day, so a night shift counts before and after midnight.
    """
    return sorted(
        {shift.name for shift in shifts if shift.start <= minute < shift.end or shift.start <= minute + DAY < shift.end}
    )


def uncovered(shifts: list[Shift]) -> list[Interval]:
    """Return the parts of a day on which nobody is on duty, taking daily repetition into account."""
    today = [(shift.start, shift.end) for shift in shifts]
    yesterday = [(start - DAY, end - DAY) for start, end in today]
    return gaps(today + yesterday, 0, DAY)
