"""Assemble the sandbox's root from overlays over the host's system directories, and move into it.

Everything a sandbox writes goes to one tmpfs that only its mount namespace knows, so nothing of it can outlive it.
Where tmpfs will not do, and in builds, it goes to a directory of the layer cache instead. A mask layer per area whites
out what is private, and holds the files of /etc that must be our own.
"""

from __future__ import annotations

import contextlib
import os
import stat

from . import devices, libc
from .hostview import Area, HostView
from .wire import Message

#: Character device 0:0 in an overlay's lower layer hides the name in the layers below it.
WHITEOUT = os.makedev(0, 0)
_OWN_FILES = "/etc/dpkg/sandbox-own-files"
#: The numbers of people, whose accounts would take those that Dockerfiles give to users of their own.
_FIRST_PERSON, _NOBODY = 1000, 65534
#: What a dpkg has not finished: as long as the host's is at work, apt would refuse to do anything here.
_JOURNAL = "/var/lib/dpkg/updates"
#: Where only root exists, apt cannot download as a user of its own, nor can man-db index pages as its.
_PACKAGE_SETTINGS = {
    "apt/apt.conf.d/zz-sandbox": 'APT::Sandbox::User "root";\n',
    "dpkg/dpkg.cfg.d/zz-sandbox": f"path-exclude=/usr/share/man/*\npre-invoke=. {_OWN_FILES}\n",
    # dpkg links to a file before it replaces it, which only the owner of the file may do, and its directories have to
    # be the caller's; those that are not lie too deep to be mirrored.
    _OWN_FILES.removeprefix("/etc/"): r"""
case $DPKG_HOOK_ACTION in install|unpack) ;; *) exit 0 ;; esac
list=$(mktemp) || exit 1
trap 'rm -f "$list" "$list".*' EXIT
tr '\0' '\n' <"/proc/$PPID/cmdline" | while IFS= read -r word; do
  if [ -d "$word" ]; then find "$word" -name '*.deb'; else case $word in *.deb) printf '%s\n' "$word" ;; esac; fi
done >"$list.packages"
while IFS= read -r package; do
  dpkg-deb --fsys-tarfile "$package" | tar -t | sed 's:^\./:/:; s:/$::' >"$list"
  sed 's:/[^/]*$::' "$list" | sort -u | while IFS= read -r directory; do
    if [ -d "$directory" ] && [ ! -w "$directory" ]; then
      echo "$(dpkg-deb -f "$package" Package) cannot be replaced by an ordinary user: $directory is the host's;" \
        "run pytest as root, or use --bf-sandbox docker" >&2
      exit 1
    fi
  done || exit 1
  while IFS= read -r path; do
    [ -f "$path" ] && [ ! -L "$path" ] && [ ! -O "$path" ] && printf '%s\n' "${path#/}"
  done <"$list" >"$list.foreign"
  if [ -s "$list.foreign" ]; then
    tar -C / -cf - --verbatim-files-from -T "$list.foreign" | tar -C / -xpf - --no-same-owner --unlink-first || exit 1
  fi
done <"$list.packages"
""",
}


def make_mask(area: Area, top: str, config: Message) -> str | None:
    """Write the mask of `area` to the new directory `top`; None if it needs none."""
    if not area.hidden and area.path != "etc":
        return None
    os.mkdir(top)
    _copy_mode(f"/{area.path}", top)
    for path in area.hidden:
        # What the host has removed since it was looked at needs no hiding.
        with contextlib.suppress(FileNotFoundError):
            _make_parents(f"/{area.path}", top, path)
            os.mknod(f"{top}/{path}", stat.S_IFCHR, WHITEOUT)
    if area.path == "etc":
        _write_own_files(top, config["hostname"], config["name_server"])
        for path, text in _PACKAGE_SETTINGS.items():
            if not config["privileged"] and os.path.isdir(f"/etc/{os.path.dirname(path)}"):
                _make_parents("/etc", top, path)
                _write(f"{top}/{path}", text, 0o644)
    return top


def _write_own_files(top: str, hostname: str, name_server: str | None) -> None:
    users, groups = _system_entries("/etc/passwd", 7), _system_entries("/etc/group", 4)
    names = {row[0] for row in users}
    for row in groups:
        row[3] = ",".join(name for name in row[3].split(",") if name in names)
    files = {
        "passwd": (_table(users), 0o644),
        "group": (_table(groups), 0o644),
        "hostname": (f"{hostname}\n", 0o644),
        "hosts": (f"{_text('/etc/hosts').rstrip()}\n127.0.0.1 {hostname}\n", 0o644),
        # Often a link into /run, which the sandbox does not see.
        "resolv.conf": (_name_servers(name_server), 0o644),
        # Login tools need shadow files: everyone gets an entry that no password opens.
        "shadow": ("".join(f"{row[0]}:*:1:0:99999:7:::\n" for row in users), 0o640),
        "gshadow": ("".join(f"{row[0]}:*::\n" for row in groups), 0o640),
    }
    for name, (text, mode) in files.items():
        _write(f"{top}/{name}", text, mode)


def _name_servers(own: str | None) -> str:
    """Return how the host finds names, with the sandbox's own server in place of the host's."""
    lines = _text("/etc/resolv.conf").splitlines(keepends=True)
    if own is None:
        return "".join(lines)
    return f"nameserver {own}\n" + "".join(line for line in lines if line.split()[:1] in (["search"], ["options"]))


def _write(path: str, text: str, mode: int) -> None:
    if os.path.lexists(path):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", errors="surrogateescape") as file:
        file.write(text)


def _system_entries(path: str, width: int) -> list[list[str]]:
    """Return the entries of users or groups that an image has too: those of people and services of the host are not."""
    rows = [line.split(":") for line in _text(path).splitlines()]
    return [row for row in rows if len(row) == width and row[2].isdigit() and _is_of_system(int(row[2]))]


def _is_of_system(number: int) -> bool:
    return number < _FIRST_PERSON or number == _NOBODY


def _table(rows: list[list[str]]) -> str:
    return "".join(f"{':'.join(row)}\n" for row in rows)


def _text(path: str) -> str:
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _make_parents(base: str, top: str, path: str) -> None:
    """Make the directories above `path` in the mask as they are on the host: overlays show the topmost one's mode."""
    parts = path.split("/")[:-1]
    for count in range(1, len(parts) + 1):
        parent = "/".join(parts[:count])
        if not os.path.isdir(f"{top}/{parent}"):
            os.mkdir(f"{top}/{parent}")
            _copy_mode(f"{base}/{parent}", f"{top}/{parent}")


def _copy_mode(source: str, target: str) -> None:
    os.chmod(target, stat.S_IMODE(os.stat(source).st_mode))


#: Any host directory will do: the sandbox's tmpfs covers it, in the sandbox's own mount namespace only.
_SCRATCH_PLACES = ("/tmp", "/var/tmp", "/mnt", "/media", "/srv", "/run")  # noqa: S108
_ROOT = "root"
SKELETON = {
    "": 0o755,
    "app": 0o755,
    "boot": 0o755,
    "dev": 0o755,
    "home": 0o755,
    "logs": 0o755,
    "logs/agent": 0o777,
    "logs/artifacts": 0o777,
    "logs/verifier": 0o755,
    "media": 0o755,
    "mnt": 0o755,
    "proc": 0o555,
    "root": 0o700,
    "run": 0o755,
    "run/lock": 0o1777,
    "srv": 0o755,
    "sys": 0o555,
    "tmp": 0o1777,
    "var": 0o755,
    "var/cache": 0o755,
    "var/cache/apt/archives/partial": 0o755,
    "var/cache/debconf": 0o755,
    "var/lib": 0o755,
    "var/lib/misc": 0o755,
    "var/lib/pam": 0o755,
    "var/lib/systemd": 0o755,
    "var/lib/ucf": 0o755,
    "var/local": 0o755,
    "var/log/apt": 0o755,
    "var/mail": 0o755,
    "var/opt": 0o755,
    "var/spool": 0o755,
    "var/tmp": 0o1777,
}
_SKELETON_LINKS = {"var/run": "/run", "var/lock": "/run/lock"}
#: What root's home has in images of Debian and Ubuntu, and where such a host keeps it.
HOME_FILES = {".bashrc": "/usr/share/base-files/dot.bashrc", ".profile": "/usr/share/base-files/dot.profile"}
_FLAGS = libc.MS_NOSUID | libc.MS_NODEV


def _size(config: Message) -> str:
    """Return the option that bounds the files: they are memory, and a full disk is better than a killed program."""
    memory: int | None = config["memory_mb"]
    bounds = [size for size in (config["storage_mb"], memory and memory * 3 // 4) if size]
    return f",size={min(bounds)}m" if bounds else ""


def _shared_memory(config: Message) -> str:
    memory: int | None = config["memory_mb"]
    return f",size={max(1, memory // 8)}m" if memory else ""


def enter(config: Message, host: HostView) -> int:
    """Build the root described by `config`, make it the caller's, and return a descriptor of all that it writes."""
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    # Layers are named relative to here: mount options must fit one memory page, however deep the cache lies.
    os.chdir(config["layers_dir"] or "/")
    prefix = config["python_prefix"]
    prefix_fd = _open_directory(prefix) if prefix else None
    mounts = [(_open_directory(source), target) for source, target in config["mounts"]]
    scratch = next(place for place in _SCRATCH_PLACES if os.path.isdir(place))
    libc.mount("tmpfs", scratch, "tmpfs", _FLAGS, f"mode=755{_size(config)}")

    builder = _Overlays(config, scratch)
    root = f"{scratch}/merged"
    os.mkdir(root)
    _make_skeleton(
        f"{scratch}/skeleton", host, prefix, open_prefix=config["open_prefix"], privileged=config["privileged"]
    )
    builder.mount(_ROOT, f"{scratch}/skeleton", None, root)
    for area in host.seen_by(privileged=config["privileged"]):
        mask = make_mask(area, f"{scratch}/mask-{area.key}", config)
        if area.has_mounts and not config["privileged"]:
            # The kernel refuses an overlay over mounts that a user namespace inherited.
            bind(f"/{area.path}", f"{root}/{area.path}", libc.MS_RDONLY | _FLAGS)
        else:
            builder.mount(area.key, f"/{area.path}", mask, f"{root}/{area.path}")
    if os.path.isdir(root + _JOURNAL):
        libc.mount("tmpfs", root + _JOURNAL, "tmpfs", _FLAGS, "mode=755,size=16m")
    if prefix_fd is not None:
        bind(f"/proc/self/fd/{prefix_fd}", root + prefix, libc.MS_RDONLY | _FLAGS)
        os.close(prefix_fd)
    devices.mount_dev(f"{root}/dev", _shared_memory(config), privileged=config["privileged"])
    devices.mount_proc(f"{root}/proc")

    written = os.open(builder.upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir(root)
    libc.pivot_root(".", ".")
    # By now a link in the target leads to a place inside; once the host's root is gone, nothing of it can be bound.
    for descriptor, target in mounts:
        os.makedirs(target, mode=0o755, exist_ok=True)
        bind(f"/proc/self/fd/{descriptor}", target, libc.MS_RDONLY | _FLAGS)
        os.close(descriptor)
    libc.detach(".")
    os.chdir("/")
    for path in config["dirs"]:
        os.makedirs(path, mode=0o755, exist_ok=True)
    return written


def _open_directory(path: str) -> int:
    """Hold a host directory that what is mounted next may cover."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def bind(source: str, target: str, flags: int) -> None:
    """Show `source` on `target`, with `flags` added to those it has, and to those of what is mounted in it."""
    libc.mount(source, target, flags=libc.MS_BIND | libc.MS_REC)
    if libc.restrict_mounts(target, flags):
        return
    # statvfs reports the same bits as mount takes, except for relatime.
    present = os.statvfs(target).f_flag
    kept = present & (libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC | libc.MS_NOATIME | libc.MS_NODIRATIME)
    if present & os.ST_RELATIME:
        kept |= libc.MS_RELATIME
    libc.mount("none", target, flags=libc.MS_REMOUNT | libc.MS_BIND | flags | kept)


class _Overlays:
    """Mounts one overlay per area, all of the same layers."""

    def __init__(self, config: Message, scratch: str) -> None:
        self._layers: list[str] = config["layers"]
        self._mirror: str | None = config["mirror"]
        self.upper: str = config["write_dir"] or f"{scratch}/upper"
        self._options = "redirect_dir=off,metacopy=off,index=off"
        if not config["privileged"]:
            self._options = "userxattr"
        os.makedirs(f"{self.upper}/.work", exist_ok=True)

    def mount(self, key: str, base: str, mask: str | None, target: str) -> None:
        lowers = [path for layer in self._layers if os.path.isdir(path := f"{layer}/{key}")]
        lowers += [mask] if mask else []
        if self._mirror and os.path.isdir(mirrored := f"{self._mirror}/{key}"):
            lowers.append(mirrored)
        lowers.append(base)
        upper, work = f"{self.upper}/{key}", f"{self.upper}/.work/{key}"
        os.mkdir(work)
        os.mkdir(upper)
        _copy_attributes(lowers[0], upper)
        options = f"lowerdir={':'.join(lowers)},upperdir={upper},workdir={work},{self._options}"
        libc.mount("overlay", target, "overlay", _FLAGS, options)


def _make_skeleton(top: str, host: HostView, prefix: str | None, *, open_prefix: bool, privileged: bool) -> None:
    for path, mode in SKELETON.items():
        os.makedirs(f"{top}/{path}", exist_ok=True)
        os.chmod(f"{top}/{path}", mode)
    for path, mode, uid, gid in host.state:
        os.makedirs(f"{top}/{path}", exist_ok=True)
        os.chmod(f"{top}/{path}", mode)
        if privileged and (uid or gid):
            os.chown(f"{top}/{path}", uid, gid)
    for name, source in HOME_FILES.items():
        if text := _text(source) or _text(f"/etc/skel/{name}"):
            _write(f"{top}/root/{name}", text, 0o644)
    for area in host.areas:
        os.makedirs(f"{top}/{area.path}", mode=0o755, exist_ok=True)
    for name, target in (*host.links, *_SKELETON_LINKS.items()):
        os.symlink(target, f"{top}/{name}")
    if prefix:
        os.makedirs(top + prefix, mode=0o755, exist_ok=True)
        if open_prefix and prefix.startswith("/root/"):
            # The only Python here lives in root's home: let others pass through it, not list it.
            os.chmod(f"{top}/root", 0o711)  # noqa: S103


def _copy_attributes(source: str, target: str) -> None:
    status = os.stat(source)
    os.chmod(target, status.st_mode & 0o7777)
    if os.geteuid() == 0 and (status.st_uid or status.st_gid):
        try:
            os.chown(target, status.st_uid, status.st_gid)
        except OSError:
            # In a user namespace the owner of a host directory has no number of its own.
            return
