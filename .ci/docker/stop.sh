#!/bin/bash
# Stop the daemon that start.sh started; one that was already there is left alone.
set -euo pipefail
state=${BF_DOCKER_STATE:-/run/bf-docker}
[ -e "$state/dockerd.pid" ] || { echo "start.sh started no daemon here"; exit 0; }
pid=$(cat "$state/dockerd.pid")
kill -TERM "$pid" 2>/dev/null || true
for _ in $(seq 150); do
  kill -0 "$pid" 2>/dev/null || { rm -f "$state/dockerd.pid"; exit 0; }
  sleep 0.2
done
echo "dockerd ($pid) did not stop within 30 s" >&2
exit 1
