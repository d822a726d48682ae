"""Migrate hidden databases and look at what comes out."""

import sqlite3
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from checks import check, equal, finish, run, succeed

OLD = """
CREATE TABLE loans (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, author TEXT NOT NULL, borrower TEXT NOT NULL, email TEXT,
    lent_on TEXT NOT NULL, returned_on TEXT);
PRAGMA user_version = 1;
"""
FLAT = """
SELECT loans.id, title, authors.name, email, lent_on, returned_on
FROM loans JOIN books ON books.id = book_id JOIN authors ON authors.id = author_id
JOIN borrowers ON borrowers.id = borrower_id ORDER BY loans.id
"""
LOANS = [
    (10, "Emma", "Jane Austen", "Lia", "lia@example.org", "2023-05-01", "2023-05-01"),
    (7, "Emma", "A. McCall Smith", "Lia Q.", "LIA@example.org", "2023-06-01", None),
    (8, "Emma", "Jane Austen", "Lia Quist", "Lia@Example.org", "2023-06-01", "2023-07-09"),
    (30, "Persuasion", "Jane Austen", "O'Brien", "ob@example.org", "2022-01-01", None),
    (2, "emma", "Jane Austen", "O'Brien; DROP TABLE loans", "OB@example.org", "2021-01-01", None),
]


def make(path, loans, version=1):
    connection = sqlite3.connect(path)
    connection.executescript(OLD)
    connection.executemany("INSERT INTO loans VALUES (?, ?, ?, ?, ?, ?, ?)", loans)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


def query(path, sql, *args):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(sql, args).fetchall()
    finally:
        connection.close()


def dump(path):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return [*connection.iterdump(), connection.execute("PRAGMA user_version").fetchone()]
    finally:
        connection.close()


def migrated(loans, then=lambda path: None):
    """Migrate a new database and return what `then` reads from it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hidden.db"
        make(path, loans)
        succeed("python3", "/app/migrate.py", str(path), cwd=folder)
        return then(path)


def refused(loans, mention, version=1):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hidden.db"
        make(path, loans, version)
        before = dump(path)
        done = run("python3", "/app/migrate.py", str(path), cwd=folder)
        equal(done.returncode, 1, "exit status")
        assert mention in done.stderr, f"standard error does not mention {mention}: {done.stderr[-200:]!r}"
        equal(dump(path), before, "database after a refused migration")


@check
def library_db_is_migrated():
    path = "/app/library.db"
    equal(query(path, "PRAGMA user_version"), [(2,)], "user_version")
    equal(
        query(path, FLAT),
        [
            (1, "The Dispossessed", "Ursula K. Le Guin", "nora@example.org", "2024-01-03", "2024-01-20"),
            (2, "Solaris", "Stanisław Lem", "ivo@example.org", "2024-01-05", None),
            (3, "The Dispossessed", "Ursula K. Le Guin", "ivo@example.org", "2024-02-01", "2024-02-11"),
            (5, "Ubik", "Philip K. Dick", "nora@example.org", "2024-02-15", None),
        ],
        "loans",
    )


@check
def loans_survive_unchanged():
    want = sorted((n, title, author, email.lower(), *dates) for n, title, author, _, email, *dates in LOANS)
    equal(migrated(LOANS, lambda path: query(path, FLAT)), want, "loans")


@check
def latest_name_of_a_borrower_counts():
    got = migrated(LOANS, lambda path: query(path, "SELECT email, name FROM borrowers ORDER BY email"))
    equal(got, [("lia@example.org", "Lia Quist"), ("ob@example.org", "O'Brien")], "borrowers")


@check
def authors_and_books_are_not_repeated():
    books = migrated(LOANS, lambda path: query(path, "SELECT title FROM books ORDER BY title"))
    equal([title for (title,) in books], ["Emma", "Emma", "Persuasion", "emma"], "books")
    authors = migrated(LOANS, lambda path: query(path, "SELECT name FROM authors ORDER BY name"))
    equal([name for (name,) in authors], ["A. McCall Smith", "Jane Austen"], "authors")


@check
def schema_is_the_new_one():
    names = migrated(LOANS, lambda path: query(path, "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
    equal(sorted(name for (name,) in names), ["authors", "books", "borrowers", "loans", "loans_open"], "schema")


@check
def constraints_hold():
    def violate(path):
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA foreign_keys = ON")
        equal(connection.execute("PRAGMA foreign_key_check").fetchall(), [], "foreign_key_check")
        book, borrower = connection.execute("SELECT book_id, borrower_id FROM loans").fetchone()
        for statement in (
            "INSERT INTO authors (name) SELECT name FROM authors",
            "INSERT INTO books (title, author_id) SELECT title, author_id FROM books",
            "INSERT INTO borrowers (name, email) SELECT name, email FROM borrowers",
            f"INSERT INTO loans (book_id, borrower_id, lent_on) VALUES (999, {borrower}, '2024-01-01')",
            f"INSERT INTO loans (book_id, borrower_id, lent_on) VALUES ({book}, 999, '2024-01-01')",
            f"INSERT INTO loans (book_id, borrower_id, lent_on, returned_on) "
            f"VALUES ({book}, {borrower}, '2024-01-02', '2024-01-01')",
        ):
            try:
                connection.execute(statement)
            except sqlite3.IntegrityError:
                continue
            raise AssertionError(f"the schema allows: {statement}")
        connection.close()

    migrated(LOANS, violate)


@check
def second_run_changes_nothing():
    def again(path):
        before = dump(path)
        succeed("python3", "/app/migrate.py", str(path))
        equal(dump(path), before, "database after the second run")

    migrated(LOANS, again)


@check
def empty_table_is_migrated():
    equal(migrated([], lambda path: query(path, "PRAGMA user_version")), [(2,)], "user_version")


@check
def impossible_loans_leave_all_as_it_was():
    refused([*LOANS, (4711, "Ubik", "P. K. Dick", "Max", None, "2024-01-01", None)], "4711")
    refused([*LOANS, (4712, "Ubik", "P. K. Dick", "Max", "", "2024-01-01", None)], "4712")
    refused([*LOANS, (4713, "Ubik", "P. K. Dick", "Max", "max@example.org", "2024-01-02", "2024-01-01")], "4713")


@check
def unknown_version_is_refused():
    refused(LOANS, "37", version=37)


finish()
