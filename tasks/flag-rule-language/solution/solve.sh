#!/bin/sh
set -eu
cp "$(dirname "$0")/flagrule.py" /app/flagrule.py
