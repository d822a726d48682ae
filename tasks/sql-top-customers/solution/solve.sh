#!/bin/sh
set -eu
cp "$(dirname "$0")/query.sql" /app/query.sql
