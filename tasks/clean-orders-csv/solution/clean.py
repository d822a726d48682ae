"""Bring an order export into one form: clean.py INPUT OUTPUT REJECTS."""

import csv
import re
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path

COUNTRIES = Path(__file__).parent / "data" / "countries.csv"
AMOUNT = re.compile(r"(\d{1,3}(?:[.,]\d{3})+|\d+)(?:[.,](\d\d))?")
DATES = {r"\d{4}-\d\d-\d\d": "%Y-%m-%d", r"\d\d\.\d\d\.\d{4}": "%d.%m.%Y", r"\d\d/\d\d/\d{4}": "%m/%d/%Y"}


class Rejected(Exception):
    """A row that cannot be cleaned; its text is the reason."""


def order_id(text: str) -> int:
    if not re.fullmatch("[0-9]+", text):
        raise Rejected("bad_id")
    return int(text)


def amount(text: str) -> str:
    match = AMOUNT.fullmatch(text.removeprefix("€").removesuffix("€").strip())
    if not match:
        raise Rejected("bad_amount")
    whole, cents = match.groups(default="00")
    return f"{Decimal(re.sub('[.,]', '', whole))}.{cents}"


def date(text: str) -> str:
    for pattern, form in DATES.items():
        if re.fullmatch(pattern, text):
            try:
                return datetime.strptime(text, form).date().isoformat()
            except ValueError:
                break
    raise Rejected("bad_date")


def main(source: str, output: str, rejects: str) -> None:
    codes = {}
    with COUNTRIES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            codes[row["name"].lower()] = codes[row["code"].lower()] = row["code"]
    kept: dict[int, tuple[str, list[object]]] = {}
    rejected = []
    with open(source, encoding="utf-8-sig", newline="") as file:
        for number, raw in enumerate(csv.DictReader(file), 1):
            row = {key: value.strip() for key, value in raw.items()}
            try:
                key = order_id(row["order_id"])
                country = codes.get(row["country"].lower())
                if country is None:
                    raise Rejected("unknown_country")
                customer = " ".join(row["customer"].split())
                cleaned = [key, customer, country, amount(row["amount"]), date(row["ordered_on"])]
            except Rejected as reason:
                rejected.append([number, row["order_id"], str(reason)])
                continue
            if key not in kept or kept[key][0] <= row["updated_at"]:
                kept[key] = (row["updated_at"], cleaned)
    write(output, ["order_id", "customer", "country", "amount", "ordered_on"], [kept[key][1] for key in sorted(kept)])
    write(rejects, ["row", "order_id", "reason"], rejected)


def write(path: str, header: list[str], rows: list[list[object]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
