"""Feed hidden lines of each group; every group is one check and one part of the reward."""

import sys
from datetime import date, timedelta
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, succeed

MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def expect(today, cases):
    """Compare what the program prints for each line."""
    text = "".join(line + "\n" for line in cases)
    got = succeed("python3", "/app/dates.py", today, stdin=text).splitlines()
    equal(len(got), len(cases), "number of lines")
    for (line, want), value in zip(cases.items(), got):
        equal(value, want, f"{line!r} on {today}")


def ordinal(number):
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def sample_days():
    """Return days all over the calendar, the ends of months among them."""
    days = [date(2000, 2, 29), date(2024, 12, 31), date(1999, 1, 1), date(2021, 1, 3), date(2020, 12, 31)]
    return days + [date(2022, 1, 1) + timedelta(days=37 * step) for step in range(40)]


@check
def numeric():
    cases = {"1.2.70": "1970-02-01", "31.12.69": "2069-12-31", " 29.02.00 ": "2000-02-29"}
    for day in sample_days():
        iso = day.isoformat()
        cases |= {iso: iso, f"{day.year}/{day.month}/{day.day}": iso, f"{day.day}.{day.month}.{day.year}": iso}
    expect("2024-03-09", cases)


@check
def written():
    cases = {}
    for day in sample_days():
        month, weekday, iso = MONTHS[day.month - 1], DAYS[day.weekday()], day.isoformat()
        cases |= {
            f"{day.day} {month} {day.year}": iso,
            f"{month} {ordinal(day.day)}, {day.year}": iso,
            f"{ordinal(day.day)} of {month.upper()} {day.year}": iso,
            f"{weekday[:3]}, {day.day} {month[:3]} {day.year}": iso,
            f"{weekday.lower()} {month[:3].lower()} {day.day} {day.year}": iso,
        }
    expect("2024-03-09", cases)


@check
def week():
    cases = {}
    for day in sample_days():
        year, number, weekday = day.isocalendar()
        cases |= {f"{year}-W{number:02}-{weekday}": day.isoformat(), day.strftime("%Y-%j"): day.isoformat()}
    expect("2024-03-09", cases | {"2020-w53-7": "2021-01-03"})


@check
def relative():
    for today in (date(2024, 3, 1), date(2023, 12, 31), date(2024, 3, 4)):
        cases = {"Today": 0, "yesterday": -1, " TOMORROW": 1, "3 days ago": -3, "1 day ago": -1, "in 1 day": 1}
        cases |= {"in 2 weeks": 14, "1 week ago": -7, "in 400 days": 400}
        for number, name in enumerate(DAYS):
            ahead = (number - today.weekday() - 1) % 7 + 1
            cases |= {f"next {name}": ahead, f"last {name.lower()}": -((today.weekday() - number - 1) % 7 + 1)}
        expect(today.isoformat(), {line: (today + timedelta(days=n)).isoformat() for line, n in cases.items()})


@check
def refused():
    lines = ["", "soon", "30.2.2024", "2023-02-29", "2023-366", "2024-000", "2021-W53-1", "2024-W10-8", "2024-W00-1"]
    lines += [
        "Sun, 9 Mar 2024",
        "32 March 2024",
        "9 Marchember 2024",
        "2st March 2024",
        "11st of May 2024",
        "2024-13-01",
    ]
    lines += [
        "next day",
        "in two weeks",
        "9.3.202",
        "2024-3",
        "2024-03-09 12:00",
        "last someday",
        "3 days",
        "March 2024",
    ]
    cases = dict.fromkeys(lines, "?")
    # A line that can be read shows that the program does more than refuse.
    expect("2024-03-09", cases | {"2024-03-09": "2024-03-09"})


def score(passed):
    """Give each group its own key and the mean as the reward."""
    parts = {name: float(value) for name, value in passed.items()}
    return {"reward": sum(parts.values()) / len(parts), **parts}


finish(score)
