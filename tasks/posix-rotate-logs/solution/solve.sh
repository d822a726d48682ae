#!/bin/sh
set -eu
cp "$(dirname "$0")/rotate.sh" /app/rotate.sh
