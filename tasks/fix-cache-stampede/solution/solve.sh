#!/bin/sh
set -eu
cp "$(dirname "$0")/memo.py" /app/memo.py
