#!/bin/sh
set -eu
cp "$(dirname "$0")/migrate.py" /app/migrate.py
python3 /app/migrate.py /app/library.db
