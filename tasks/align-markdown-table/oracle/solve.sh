#!/bin/sh
set -eu
cp "$(dirname "$0")/mdtable.py" /app/mdtable.py
