"""Make the mask layer of an area: whiteouts over what is private, and the files of /etc that must be our own."""

from __future__ import annotations

import contextlib
import os
import stat

from .hostview import Area

#: Character device 0:0 in an overlay's lower layer hides the name in the layers below it.
_WHITEOUT = os.makedev(0, 0)
#: Where only root exists, apt cannot download as a user of its own, nor can man-db index pages as its.
_PACKAGE_SETTINGS = {
    "apt/apt.conf.d": 'APT::Sandbox::User "root";\n',
    "dpkg/dpkg.cfg.d": "path-exclude=/usr/share/man/*\n",
}


def make_mask(area: Area, top: str, hostname: str, *, privileged: bool) -> str | None:
    """Write the mask of `area` to the new directory `top`; None if it needs none."""
    if not area.hidden and area.path != "etc":
        return None
    os.mkdir(top)
    _copy_mode(f"/{area.path}", top)
    for path in area.hidden:
        # What the host has removed since it was looked at needs no hiding.
        with contextlib.suppress(FileNotFoundError):
            _make_parents(f"/{area.path}", top, path)
            os.mknod(f"{top}/{path}", stat.S_IFCHR, _WHITEOUT)
    if area.path == "etc":
        _write_own_files(top, hostname)
        for directory, text in _PACKAGE_SETTINGS.items():
            if not privileged and os.path.isdir(f"/etc/{directory}"):
                _make_parents("/etc", top, f"{directory}/zz-sandbox")
                _write(f"{top}/{directory}/zz-sandbox", text, 0o644)
    return top


def _write_own_files(top: str, hostname: str) -> None:
    # Login tools need shadow files: everyone gets an entry that no password opens.
    accounts = "".join(f"{name}:*:1:0:99999:7:::\n" for name in _names("/etc/passwd"))
    groups = "".join(f"{name}:*::\n" for name in _names("/etc/group"))
    files = {
        "hostname": (f"{hostname}\n", 0o644),
        "hosts": (f"{_text('/etc/hosts').rstrip()}\n127.0.0.1 {hostname}\n", 0o644),
        # Often a link into /run, which the sandbox does not see.
        "resolv.conf": (_text("/etc/resolv.conf"), 0o644),
        "shadow": (accounts, 0o640),
        "gshadow": (groups, 0o640),
    }
    for name, (text, mode) in files.items():
        _write(f"{top}/{name}", text, mode)


def _write(path: str, text: str, mode: int) -> None:
    if os.path.lexists(path):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", errors="surrogateescape") as file:
        file.write(text)


def _names(path: str) -> list[str]:
    return [line.split(":", 1)[0] for line in _text(path).splitlines() if ":" in line]


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
