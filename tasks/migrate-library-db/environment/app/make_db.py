"""Make an SQLite database from a dump: make_db.py DUMP DATABASE."""

import sqlite3
import sys
from pathlib import Path

with sqlite3.connect(sys.argv[2]) as connection:
    connection.executescript(Path(sys.argv[1]).read_text(encoding="utf-8"))
