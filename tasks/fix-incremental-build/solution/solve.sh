#!/bin/sh
set -eu
cp "$(dirname "$0")/forge.py" /app/forge.py
