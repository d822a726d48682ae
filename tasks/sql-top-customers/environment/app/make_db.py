"""Make an SQLite database: make_db.py SCHEMA DATA DATABASE."""

import sqlite3
import sys
from pathlib import Path

schema, data, database = map(Path, sys.argv[1:])
with sqlite3.connect(database) as connection:
    connection.executescript(schema.read_text(encoding="utf-8") + data.read_text(encoding="utf-8"))
