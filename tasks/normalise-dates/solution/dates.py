"""Turn dates as people write them into ISO form: dates.py TODAY < lines > lines."""

import re
import sys
from datetime import date, timedelta

MONTHS = "january february march april may june july august september october november december".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
DAY = r"(?P<day>\d{1,2})(?P<ending>st|nd|rd|th)?"
WRITTEN = [rf"{DAY} (?:of )?(?P<month>[a-z]+) (?P<year>\d{{4}})", rf"(?P<month>[a-z]+) {DAY} (?P<year>\d{{4}})"]


def position(name: str, names: list[str]) -> int | None:
    """Find a name by its full form or its first three letters."""
    return next((n for n, full in enumerate(names) if name in (full, full[:3])), None)


def ending(number: int) -> str:
    return "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def numeric(text: str) -> date | None:
    if match := re.fullmatch(r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})", text):
        return date(int(match[1]), int(match[3]), int(match[4]))
    if match := re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{4}|\d\d)", text):
        year = int(match[3])
        if len(match[3]) == 2:
            year += 1900 if year >= 70 else 2000
        return date(year, int(match[2]), int(match[1]))
    return None


def written(text: str) -> date | None:
    text = re.sub(r"\s*,\s*|\s+", " ", text)
    first, _, rest = text.partition(" ")
    weekday = position(first, DAYS)
    for pattern in WRITTEN:
        match = re.fullmatch(pattern, text if weekday is None else rest)
        month = match and position(match["month"], MONTHS)
        if month is not None:
            found = date(int(match["year"]), month + 1, int(match["day"]))
            fits = match["ending"] in (None, ending(found.day)) and weekday in (None, found.weekday())
            return found if fits else None
    return None


def week(text: str) -> date | None:
    if match := re.fullmatch(r"(\d{4})-w(\d\d)-(\d)", text):
        return date.fromisocalendar(*map(int, match.groups()))
    if match := re.fullmatch(r"(\d{4})-(\d{3})", text):
        found = date(int(match[1]), 1, 1) + timedelta(days=int(match[2]) - 1)
        return found if found.year == int(match[1]) else None
    return None


def relative(text: str, today: date) -> date | None:
    words = {"today": 0, "yesterday": -1, "tomorrow": 1}
    if text in words:
        return today + timedelta(days=words[text])
    if match := re.fullmatch(r"(in )?(\d+) (day|week)s?( ago)?", text):
        if bool(match[1]) is bool(match[4]):
            return None
        days = int(match[2]) * (7 if match[3] == "week" else 1)
        return today + timedelta(days=days if match[1] else -days)
    if match := re.fullmatch(r"(next|last) ([a-z]+)", text):
        if match[2] in DAYS:
            away = DAYS.index(match[2]) - today.weekday()
            return today + timedelta(days=(away - 1) % 7 + 1 if match[1] == "next" else -((-away - 1) % 7 + 1))
    return None


def read(line: str, today: date) -> str:
    text = " ".join(line.lower().split())
    try:
        found = numeric(text) or written(text) or week(text) or relative(text, today)
    except (ValueError, OverflowError):
        found = None
    return found.isoformat() if found else "?"


if __name__ == "__main__":
    now = date.fromisoformat(sys.argv[1])
    for each in sys.stdin:
        print(read(each, now))
