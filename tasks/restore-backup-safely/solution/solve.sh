#!/bin/sh
set -eu
cp "$(dirname "$0")/restore.py" /app/restore.py
python3 /app/restore.py /app/backup.tar /app/restored /app/report.json
