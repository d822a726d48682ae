"""Bring a library database from version 1 to version 2, all or nothing: migrate.py DATABASE."""

import sqlite3
import sys
from pathlib import Path

SCHEMA = Path(__file__).parent / "schema_v2.sql"
FILL = [
    "INSERT INTO authors (name) SELECT DISTINCT author FROM old_loans",
    """INSERT INTO books (title, author_id)
       SELECT DISTINCT title, authors.id FROM old_loans JOIN authors ON authors.name = author""",
    """INSERT INTO borrowers (name, email)
       SELECT borrower, lower(email) FROM (
           SELECT *, row_number() OVER (PARTITION BY lower(email) ORDER BY lent_on DESC, id DESC) AS place
           FROM old_loans)
       WHERE place = 1""",
    """INSERT INTO loans
       SELECT old.id, books.id, borrowers.id, lent_on, returned_on
       FROM old_loans AS old
       JOIN authors ON authors.name = old.author
       JOIN books ON books.title = old.title AND books.author_id = authors.id
       JOIN borrowers ON borrowers.email = lower(old.email)""",
    "DROP TABLE old_loans",
    "PRAGMA user_version = 2",
]


def statements(script: str) -> list[str]:
    """Split a script into complete statements; executescript would commit."""
    found, text = [], ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            found.append(text)
            text = ""
    return found


def migrate(connection: sqlite3.Connection) -> str | None:
    """Migrate, or return what forbids it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 2:
        return None
    if version != 1:
        return f"cannot migrate version {version}"
    bad = connection.execute(
        "SELECT id FROM loans WHERE coalesce(email, '') = '' OR returned_on < lent_on ORDER BY id"
    ).fetchone()
    if bad:
        return f"loan {bad[0]} has no e-mail address or was returned before it was lent"
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        connection.execute("ALTER TABLE loans RENAME TO old_loans")
        for statement in [*statements(SCHEMA.read_text(encoding="utf-8")), *FILL]:
            connection.execute(statement)
    return None


if __name__ == "__main__":
    database = sqlite3.connect(sys.argv[1], isolation_level=None)
    sys.exit(migrate(database))
