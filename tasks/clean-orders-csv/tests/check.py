"""Run the program on hidden files and compare the rows it writes."""

import csv
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, succeed

HEADER = "order_id,customer,country,amount,ordered_on,updated_at"
GOOD = ["order_id", "customer", "country", "amount", "ordered_on"]
BAD = ["row", "order_id", "reason"]


def rows(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return [row for row in csv.reader(file) if row]


def clean(*lines, bom=False):
    """Return the data rows of OUTPUT and REJECTS for the given input lines."""
    with tempfile.TemporaryDirectory() as folder:
        source, good, bad = (Path(folder) / name for name in ("in.csv", "good.csv", "bad.csv"))
        text = "\n".join([HEADER, *lines]) + "\n"
        source.write_text(text, encoding="utf-8-sig" if bom else "utf-8")
        succeed("python3", "/app/clean.py", str(source), str(good), str(bad), cwd=folder)
        (good_header, *good_rows), (bad_header, *bad_rows) = rows(good), rows(bad)
        equal(good_header, GOOD, "header of OUTPUT")
        equal(bad_header, BAD, "header of REJECTS")
        return good_rows, bad_rows


def each(field, *texts):
    """Clean one row per text, all else being good, and return the cleaned fields or the reasons."""
    lines = []
    for number, text in enumerate(texts, 1):
        row = dict(order_id=str(number), customer="A", country="DE", amount="1.00", ordered_on="2024-01-02")
        lines.append(",".join(f'"{value}"' for value in (row | {field: text}).values()) + ",2024-01-01T00:00:00")
    good, bad = clean(*lines)
    found = {row[0]: row[GOOD.index(field)] for row in good} | {row[1]: row[2] for row in bad}
    equal(len(good) + len(bad), len(texts), "number of rows written")
    return {text: found.get(str(number)) for number, text in enumerate(texts, 1)}


@check
def delivered_files_are_right():
    equal(
        rows("/app/data/clean.csv")[1:],
        [
            ["998", "Lindt, Erben", "AT", "89.90", "2024-03-01"],
            ["1007", "Weber GmbH", "DE", "1334.50", "2024-03-09"],
            ["1012", "Dupont et fils", "FR", "12.00", "2024-03-11"],
            ["1016", "Peeters", "BE", "2500.00", "2024-02-29"],
        ],
        "clean.csv",
    )
    equal(
        rows("/app/data/rejects.csv")[1:],
        [
            ["5", "A-13", "bad_id"],
            ["6", "1013", "bad_amount"],
            ["7", "1014", "unknown_country"],
            ["8", "1015", "bad_date"],
            ["10", "1007", "bad_amount"],
        ],
        "rejects.csv",
    )


@check
def amounts_are_read():
    want = {
        "1,234,567.05": "1234567.05",
        "€ 7": "7.00",
        "7,00€": "7.00",
        "12.345": "12345.00",
        "123456,78": "123456.78",
    }
    equal(each("amount", *want), want, "amounts")


@check
def bad_amounts_are_rejected():
    texts = ("", "-3.00", "1.23.4", "1234.567", ".50", "1,23,456", "12.", "7 $", "1e3", "€")
    equal(each("amount", *texts), dict.fromkeys(texts, "bad_amount"), "amounts")


@check
def dates_are_read():
    want = {"31.12.2023": "2023-12-31", "12/31/2023": "2023-12-31", "2024-02-29": "2024-02-29"}
    want |= dict.fromkeys(("31/12/2023", "2023-02-29", "12.31.2023", "yesterday", ""), "bad_date")
    equal(each("ordered_on", *want), want, "dates")


@check
def countries_are_looked_up():
    want = {"nl": "NL", "NETHERLANDS": "NL", "  Italy ": "IT", "XX": "unknown_country", "": "unknown_country"}
    equal(each("country", *want), want, "countries")


@check
def first_reason_wins():
    _, bad = clean(
        "x,A,?,?,?,2024-01-01T00:00:00",
        "2,A,?,?,?,2024-01-01T00:00:00",
        "3,A,DE,?,?,2024-01-01T00:00:00",
        "4,A,DE,1.00,?,2024-01-01T00:00:00",
    )
    equal([row[2] for row in bad], ["bad_id", "unknown_country", "bad_amount", "bad_date"], "reasons")


@check
def latest_good_row_is_kept():
    good, bad = clean(
        "0020,old,DE,1.00,2024-01-02,2024-01-02T10:00:00",
        "3,other,DE,1.00,2024-01-02,2024-01-02T10:00:00",
        "20,newest,DE,2.00,2024-01-02,2024-01-03T10:00:00",
        "20,older,DE,3.00,2024-01-02,2024-01-01T10:00:00",
        "020,bad,DE,oops,2024-01-02,2024-09-01T10:00:00",
        "100,tie one,DE,1.00,2024-01-02,2024-01-02T10:00:00",
        "100,tie two,DE,1.00,2024-01-02,2024-01-02T10:00:00",
    )
    equal([row[:2] for row in good], [["3", "other"], ["20", "newest"], ["100", "tie two"]], "rows kept")
    equal(bad, [["5", "020", "bad_amount"]], "rows rejected")


@check
def quoting_blank_lines_and_mark_are_handled():
    good, bad = clean(
        "",
        '9,"Say ""hi"",\tplease",DE,"1,00",2024-01-02,2024-01-01T00:00:00',
        "",
        " x ,Ärzte,DE,1.00,2024-01-02,2024-01-01T00:00:00",
        bom=True,
    )
    equal(good, [["9", 'Say "hi", please', "DE", "1.00", "2024-01-02"]], "rows kept")
    equal(bad, [["2", "x", "bad_id"]], "rows rejected")


finish()
