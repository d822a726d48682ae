#!/bin/bash
# The smallest system with bash: busybox and bash, static, from two packages. A tar stream on stdout.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
apt-get download -qq -o APT::Sandbox::User=root busybox-static bash-static >&2
for package in *.deb; do dpkg-deb -x "$package" unpacked; done
mkdir -p root/bin root/etc root/tmp root/root root/proc root/sys root/dev root/usr root/var/tmp
chmod 1777 root/tmp root/var/tmp
cp unpacked/bin/busybox unpacked/bin/bash-static root/bin/
ln -s ../bin root/usr/bin
ln -s bin root/sbin
ln -s bash-static root/bin/bash
for applet in $(root/bin/busybox --list); do [ -e "root/bin/$applet" ] || ln -s busybox "root/bin/$applet"; done
echo 'root:x:0:0:root:/root:/bin/bash' >root/etc/passwd
echo 'root:x:0:' >root/etc/group
tar -C root --numeric-owner --owner=0 --group=0 -cf - .
