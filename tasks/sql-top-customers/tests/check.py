"""Run the query, read-only, on hidden databases in the same schema."""

import random
import sqlite3
import sys
from collections import defaultdict
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id),
    placed_at TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('paid', 'cancelled')));
CREATE TABLE order_lines (
    order_id INTEGER NOT NULL REFERENCES orders (id), quantity INTEGER NOT NULL, unit_cents INTEGER NOT NULL);
CREATE TABLE refunds (
    order_id INTEGER NOT NULL REFERENCES orders (id), refunded_at TEXT NOT NULL, cents INTEGER NOT NULL);
"""
READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def answer(customers, orders, lines, refunds):
    """Run the query on these tables and return (column names, rows)."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    for table, rows in zip(("customers", "orders", "order_lines", "refunds"), (customers, orders, lines, refunds)):
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    connection.commit()
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY)
    steps = iter(range(2000))
    connection.set_progress_handler(lambda: next(steps, None) is None, 10_000)
    cursor = connection.execute(Path("/app/query.sql").read_text(encoding="utf-8"))
    return [column[0] for column in cursor.description], cursor.fetchall()


def expected(customers, orders, lines, refunds):
    """Work the answer out in Python."""
    names = dict(customers)
    worth = defaultdict(int)
    for order, quantity, cents in lines:
        worth[order] += quantity * cents
    for order, _, cents in refunds:
        worth[order] -= cents
    months = defaultdict(lambda: defaultdict(int))
    for order, customer, placed, status in orders:
        if status == "paid":
            months[placed[:7]][names[customer]] += worth[order]
    found = []
    for month, revenue in sorted(months.items()):
        total = sum(revenue.values())
        if total > 0:
            best = min(revenue, key=lambda name: (-revenue[name], name))
            found.append((month, best, revenue[best], 100 * revenue[best] / total))
    return found


def compare(*tables):
    _, rows = answer(*tables)
    want = expected(*tables)
    equal([row[:3] for row in rows], [row[:3] for row in want], "month, customer and revenue")
    for row, exact in zip(rows, want):
        equal(row[3], round(row[3], 1), f"share of {row[0]}, as rounded")
        if abs(row[3] - exact[3]) > 0.05001:
            raise AssertionError(f"share of {row[0]}: expected about {exact[3]:.2f}, got {row[3]}")


PEOPLE = [(1, "Zuse"), (2, "Abel"), (3, "Möller")]


@check
def columns_have_their_names():
    columns, _ = answer(PEOPLE, [(1, 1, "2024-05-01 00:00:00", "paid")], [(1, 1, 100)], [])
    equal(columns, ["month", "customer", "revenue_cents", "share"], "columns")


@check
def several_lines_and_refunds_do_not_multiply():
    orders = [(1, 1, "2024-05-01 00:00:00", "paid"), (2, 2, "2024-05-31 23:59:59", "paid")]
    lines = [(1, 2, 1000), (1, 1, 500), (1, 3, 100), (2, 1, 2350)]
    compare(PEOPLE, orders, lines, [(1, "2024-05-02 00:00:00", 100), (1, "2024-07-01 00:00:00", 200)])


@check
def ties_go_to_the_first_name():
    orders = [(n, n, "2023-12-01 08:00:00", "paid") for n in (1, 2, 3)]
    compare(PEOPLE, orders, [(1, 1, 300), (2, 3, 100), (3, 1, 300)], [])


@check
def cancelled_orders_and_their_refunds_are_ignored():
    orders = [(1, 1, "2024-05-01 00:00:00", "paid"), (2, 2, "2024-05-02 00:00:00", "cancelled")]
    compare(PEOPLE, orders, [(1, 1, 100), (2, 1, 9900)], [(2, "2024-05-03 00:00:00", 9900)])


@check
def months_without_revenue_are_left_out():
    orders = [
        (1, 1, "2024-01-01 00:00:00", "paid"),
        (2, 1, "2024-02-01 00:00:00", "paid"),
        (3, 2, "2024-03-01 00:00:00", "cancelled"),
        (4, 2, "2024-04-01 00:00:00", "paid"),
    ]
    lines = [(1, 1, 500), (2, 1, 500), (3, 1, 500), (4, 2, 250)]
    compare(PEOPLE, orders, lines, [(1, "2024-01-02 00:00:00", 500), (2, "2024-01-02 00:00:00", 700)])


@check
def orders_without_lines_are_survived():
    orders = [(1, 1, "2024-05-01 00:00:00", "paid"), (2, 2, "2024-05-02 00:00:00", "paid")]
    compare(PEOPLE, orders, [(2, 1, 100)], [(1, "2024-05-03 00:00:00", 40)])


@check
def a_year_of_random_orders_agrees():
    rng = random.Random(2024)
    people = [(n, f"Customer {n:02}") for n in range(1, 13)]
    orders, lines, refunds = [], [], []
    for order in range(1, 401):
        placed = f"{rng.choice((2023, 2024))}-{rng.randrange(1, 13):02}-{rng.randrange(1, 28):02} 10:00:00"
        orders.append((order, rng.randrange(1, 13), placed, rng.choice(("paid", "paid", "cancelled"))))
        lines += [(order, rng.randrange(1, 5), rng.randrange(1, 60) * 100) for _ in range(rng.randrange(4))]
        refunds += [(order, "2024-12-31 00:00:00", rng.randrange(1, 3000)) for _ in range(rng.choice((0, 0, 1, 2)))]
    compare(people, orders, lines, refunds)


finish()
