#!/bin/bash
# Bring a Debian machine without an init system to a working Docker engine with compose v2 (and buildx, if BUILDX is
# set) and the base images that task Dockerfiles ask for. Everything comes from the machine's own package sources.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
state=${BF_DOCKER_STATE:-/run/bf-docker}
plugins=/usr/local/lib/docker/cli-plugins

install_engine() {
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    docker.io cgroupfs-mount iptables ca-certificates >/dev/null
}

# The stable suite has no compose v2; the next one's binaries need only libc, so they are unpacked, not installed.
install_plugins() {
  local tmp codename next options
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  next=${BF_NEXT_SUITE:-trixie}
  tmp=$(mktemp -d)
  mkdir -p "$tmp/lists/partial" "$tmp/archives/partial"
  cat /etc/apt/sources.list.d/*.sources |
    sed -E "s/^Suites:.*-security.*/Suites: $next-security/; s/^Suites: $codename.*/Suites: $next/" >"$tmp/next.sources"
  options=(-o "Dir::Etc::sourcelist=$tmp/next.sources" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$tmp/lists" -o "Dir::Cache::archives=$tmp/archives" -o APT::Sandbox::User=root)
  (
    cd "$tmp"
    apt-get "${options[@]}" update -qq
    apt-get "${options[@]}" download -qq docker-compose ${BUILDX:+docker-buildx}
    for package in *.deb; do dpkg-deb -x "$package" unpacked; done
  )
  mkdir -p "$plugins"
  cp "$tmp"/unpacked/usr/libexec/docker/cli-plugins/* "$plugins/"
  rm -rf "$tmp"
}

start_daemon() {
  mkdir -p "$state"
  # A daemon that was killed leaves its pid file, and the next one refuses to start.
  [ -e /var/run/docker.pid ] && ! kill -0 "$(cat /var/run/docker.pid)" 2>/dev/null && rm -f /var/run/docker.pid
  # shellcheck disable=SC2086
  setsid nohup dockerd ${DOCKERD_FLAGS:-} >"$state/dockerd.log" 2>&1 </dev/null &
  echo $! >"$state/dockerd.pid"
  for _ in $(seq 150); do
    docker info >/dev/null 2>&1 && return
    kill -0 "$(cat "$state/dockerd.pid")" 2>/dev/null || break
    sleep 0.2
  done
  tail -n 20 "$state/dockerd.log" >&2
  echo "dockerd did not start" >&2
  return 1
}

if ! docker info >/dev/null 2>&1; then
  command -v dockerd >/dev/null || install_engine
  start_daemon
fi
docker compose version >/dev/null 2>&1 && { [ -z "${BUILDX:-}" ] || docker buildx version >/dev/null 2>&1; } || install_plugins
docker info --format 'docker {{.ServerVersion}}, {{.Driver}}, cgroup v{{.CgroupVersion}}'
docker compose version
"$here/images.sh"
