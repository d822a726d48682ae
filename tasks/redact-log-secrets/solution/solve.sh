#!/bin/sh
set -eu
cp "$(dirname "$0")/redact.py" /app/redact.py
