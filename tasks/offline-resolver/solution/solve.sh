#!/bin/sh
set -eu
cp "$(dirname "$0")/resolve.py" /app/resolve.py
python3 /app/resolve.py /app/index /app/requirements.json >/app/lock.json
