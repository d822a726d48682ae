#!/bin/sh
set -eu
cp "$(dirname "$0")/report.py" /app/report.py
python3 /app/report.py "$(cat /app/run/url)" >/app/report.json
