#!/bin/sh
set -eu
cp "$(dirname "$0")/relay.toml" /app/config/relay.toml
python3 /app/bin/check-config /app/config/relay.toml
