#!/bin/bash
# Run a command on Debian's own kernel, in an emulated machine that sees this one's files but cannot write to them:
#
#     tests/vm/run.sh .venv/bin/pytest tests/sandboxes/test_sandbox_limits.py
#
# There cgroup v2 is real, and tmpfs has no user attributes. /var/tmp is an empty disk; /tmp and /run are memory.
# Needs Debian and root, installs nothing, takes minutes: without KVM everything is some twenty times slower.
set -euo pipefail

project=$(realpath "$(dirname "$0")/../..")
tools=${BF_VM_DIR:-/var/tmp/bf-vm}
modules="virtio_pci virtio_blk 9pnet_virtio 9p overlay crc32c_generic ext4"

if [ ! -e "$tools/complete" ]; then
    mkdir -p "$tools/debs/partial"
    apt-get install -y -q --no-install-recommends --download-only -o Dir::Cache::archives="$tools/debs" \
        qemu-system-x86 linux-image-amd64 busybox-static >&2
    for package in "$tools"/debs/*.deb; do dpkg-deb -x "$package" "$tools"; done
    touch "$tools/complete"
fi
kernel=$(basename "$tools"/lib/modules/*)
busybox=$(find "$tools" -name busybox -type f -perm -1 | head -1)
work=$(mktemp -d /var/tmp/bf-vm-run.XXXXXX)
trap 'rm -rf "$work"' EXIT

root=$work/root
mkdir -p "$root"/{bin,dev,host,proc,"lib/modules/$kernel"}
cp "$busybox" "$root/bin/"
find "$tools/lib/modules/$kernel" -regextype posix-extended \
    -regex '.*/(virtio[a-z_]*|9p[a-z_]*|netfs|fscache|overlay|ext4|jbd2|mbcache|crc16|crc32c[a-z_]*|libcrc32c)\.ko' \
    -exec cp {} "$root/lib/modules/$kernel/" \;
"$busybox" depmod -b "$root" "$kernel" 2>/dev/null
cat >"$root/init" <<END
#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
for module in $modules; do busybox modprobe \$module; done
busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose host /host
busybox mount -t tmpfs tmpfs /host/run
busybox cp /command /host/run/
busybox umount /proc
exec busybox switch_root /host /bin/bash /run/command
END
cat >"$root/command" <<END
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t ext4 /dev/vda /var/tmp
chmod 1777 /tmp /var/tmp
mkdir /var/tmp/home
cd $(printf %q "$project")
env -i PATH=$(printf %q "$PATH") HOME=/var/tmp/home TMPDIR=/var/tmp PYTHONDONTWRITEBYTECODE=1$(printf ' %q' "$@")
echo "exit status \$?"
echo b >/proc/sysrq-trigger
END
chmod +x "$root/init"
(cd "$root" && find . | "$busybox" cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"
truncate -s 4G "$work/disk"
mke2fs -q -t ext4 "$work/disk"

LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu:$tools/lib/x86_64-linux-gnu nice "$tools/usr/bin/qemu-system-x86_64" \
    -L "$tools/usr/share/qemu" -L "$tools/usr/share/seabios" -cpu max -m 2048 \
    -nographic -no-reboot -nic none -monitor none -serial stdio \
    -kernel "$tools/boot/vmlinuz-$kernel" -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1" \
    -drive "file=$work/disk,if=virtio,format=raw,cache=unsafe" \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap </dev/null | tee "$work/log"
grep -q '^exit status 0' "$work/log"
