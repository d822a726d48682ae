#!/bin/bash
# The backlog arrives in the inbox, as it does in the office.
set -eu
mkdir -p /app/inbox
mv /app/backlog.txt /app/inbox/backlog.txt
rm /app/setup.sh
