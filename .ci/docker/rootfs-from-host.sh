#!/bin/bash
# A system out of the packages that this machine already has: nothing is downloaded. A tar stream on stdout.
# usage: rootfs-from-host.sh [PACKAGE...]
set -euo pipefail
default="base-files base-passwd bash coreutils dash debianutils diffutils findutils grep gzip hostname libc-bin mawk sed
tar util-linux procps login passwd dpkg apt debian-archive-keyring ca-certificates openssl curl python3 python3-pip
python3-venv git"
read -r -d '' -a packages <<<"${*:-$default}" || true
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
  --no-enhances "${packages[@]}" | grep -E '^[a-z0-9]' | sort -u >"$tmp/closure"
(xargs -a "$tmp/closure" dpkg-query -W -f '${binary:Package}\t${db:Status-Abbrev}\n' 2>/dev/null || :) |
  awk '$2=="ii"{print $1}' | sort -u >"$tmp/installed"

# Packages still record files under /bin and /lib, which are links into /usr.
xargs -a "$tmp/installed" dpkg -L 2>/dev/null | grep '^/' |
  grep -vE '^/usr/share/(doc|man|info|locale|lintian|bug|bash-completion)/.' |
  sed -E 's,^/,,; s,^$,.,; s,^(bin|sbin|lib|lib32|lib64|libx32)(/|$),usr/\1\2,' | sort -u >"$tmp/owned"
{
  cat "$tmp/owned"
  # What maintainer scripts made, and the machine's own certificates and package settings.
  printf '%s\n' bin sbin lib lib64 etc/nsswitch.conf etc/ld.so.cache \
    etc/alternatives etc/ssl/certs etc/apt var/cache/apt var/lib/apt etc/localtime etc/timezone etc/ld.so.conf \
    etc/ld.so.conf.d etc/ca-certificates.conf etc/debian_version etc/os-release usr/local/share/ca-certificates \
    etc/pip.conf etc/npmrc usr/etc/npmrc
  cd /
  find etc/alternatives etc/ssl/certs etc/apt/apt.conf.d etc/apt/sources.list.d etc/apt/trusted.gpg.d \
    etc/ld.so.conf.d usr/local/share/ca-certificates -maxdepth 1 \( -type f -o -type l \)
  find usr/bin usr/sbin -maxdepth 1 -type l -lname '/etc/alternatives/*'
} | (cd / && while IFS= read -r name; do if [ -e "$name" ] || [ -L "$name" ]; then echo "$name"; fi; done) |
  sort -u >"$tmp/files"

# The package database of just these packages, so that apt and dpkg inside know the truth.
new=$tmp/new
for directory in var/lib/dpkg/info tmp proc sys dev run root var/tmp var/lib/apt/lists/partial \
  var/cache/apt/archives/partial var/log/apt mnt opt srv media home usr/local/bin usr/local/sbin usr/local/lib; do
  mkdir -p "$new/$directory"
done
chmod 1777 "$new/tmp" "$new/var/tmp"
chmod 700 "$new/root"
# What the packages' scripts make of their own files on a fresh system; that of other packages fails without it.
mkdir -p "$new/etc"
# No accounts of this machine's people: images have none, and Dockerfiles give their numbers to users of their own.
people=$(awk -F: '$3 >= 1000 && $3 < 60000 { print $1 }' /etc/passwd /etc/group | sort -u)
for name in passwd group shadow gshadow; do
  grep -vE "^(${people//$'\n'/|}):" "/etc/$name" >"$new/etc/$name"
  chmod --reference="/etc/$name" "$new/etc/$name"
done
cp /usr/share/debianutils/shells "$new/etc/shells"
xargs -a "$tmp/installed" dpkg-query -s 2>/dev/null | sed '/^---$/d' >"$new/var/lib/dpkg/status"
: >"$new/var/lib/dpkg/available"
while read -r package; do
  for file in /var/lib/dpkg/info/"$package".* /var/lib/dpkg/info/"${package%%:*}".*; do
    if [ -e "$file" ]; then cp -p "$file" "$new/var/lib/dpkg/info/"; fi
  done
done <"$tmp/installed"
cp /var/lib/dpkg/info/format "$new/var/lib/dpkg/info/"

# One stream without a path twice: docker import refuses duplicates.
(cd "$new" && find . -mindepth 1 | sed 's,^\./,,') | sort >"$tmp/made"
comm -23 "$tmp/files" "$tmp/made" | grep -vxF . >"$tmp/copied"
tar --no-recursion --numeric-owner -cf - -C / -T "$tmp/copied" -C "$new" -T "$tmp/made"
