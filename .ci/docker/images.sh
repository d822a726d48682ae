#!/bin/bash
# Stand-ins for the base images that task Dockerfiles name, for machines that can reach no registry.
# An image that is already there is never replaced.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bundle=/etc/ssl/certs/ca-certificates.crt
certificates="SSL_CERT_FILE=$bundle REQUESTS_CA_BUNDLE=$bundle PIP_CERT=$bundle CURL_CA_BUNDLE=$bundle"
certificates="$certificates NODE_EXTRA_CA_CERTS=$bundle GIT_SSL_CAINFO=$bundle"
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

have() { docker image inspect "$1" >/dev/null 2>&1; }

if ! have debian:bookworm-slim; then
  "$here/rootfs-from-host.sh" |
    docker import -c 'CMD ["/bin/bash"]' -c "ENV PATH=$path LANG=C.UTF-8 $certificates" - debian:bookworm-slim
fi
have ubuntu:24.04 || docker tag debian:bookworm-slim ubuntu:24.04
# A registry's image has `python` and `pip` first in PATH; which version they are is up to this machine.
if ! have python:3.13-slim; then
  printf '%s\n' 'FROM debian:bookworm-slim' \
    'RUN ln -s /usr/bin/python3 /usr/local/bin/python3 && ln -s python3 /usr/local/bin/python' 'CMD ["python3"]' |
    DOCKER_BUILDKIT=0 docker build -q -t python:3.13-slim -
fi
if ! have bf-test/busybox:1; then
  "$here/rootfs-busybox.sh" | docker import -c 'CMD ["/bin/sh"]' -c "ENV PATH=$path" - bf-test/busybox:1
fi
