#!/bin/sh
set -eu
cp "$(dirname "$0")/dates.py" /app/dates.py
