#!/bin/sh
# check.py runs the named checks and writes the reward and the CTRF report.
exec python3 -I "$(dirname "$0")/check.py"
