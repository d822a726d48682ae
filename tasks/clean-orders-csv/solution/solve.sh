#!/bin/sh
set -eu
cp "$(dirname "$0")/clean.py" /app/clean.py
python3 /app/clean.py /app/data/orders.csv /app/data/clean.csv /app/data/rejects.csv
