"""What this host and this caller mean for local sandboxes: privileges, interpreter, and where layers can lie."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.core.files import spare_layers, temporary_name
from pytest_benchflow.sandboxes.base import Capabilities

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Directories of the host that every sandbox sees.
VISIBLE = ("/usr", "/etc", "/opt", "/bin", "/sbin", "/lib")
_CAP_SYS_ADMIN = 21

#: Where trusted certificates lie; the host's system is the sandbox's, and so are these.
_CERTIFICATES = (
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
#: What changes whenever the system's packages do: of Debian, older and newer Fedora, Arch, Alpine.
_SYSTEM_STATE = (
    "/etc/os-release",
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/var/lib/pacman/local",
    "/lib/apk/db/installed",
)


@dataclass(frozen=True)
class Host:
    """The host as seen by one caller."""

    privileged: bool
    python_prefix: str | None
    """Where the running interpreter lives, if no system directory shows it."""
    lends_python: bool
    """Whether that interpreter is the only one a sandbox can have."""
    environ: Mapping[str, str]
    pid: int
    writes_to_memory: bool = True
    """Whether memory can hold what a sandbox writes; otherwise it goes to the layer cache."""

    @classmethod
    def detect(cls) -> Host:
        """Examine the host."""
        prefix = os.path.realpath(sys.base_prefix)
        hidden = not any(prefix == top or prefix.startswith(f"{top}/") for top in VISIBLE)
        has_python = any(os.access(f"{place}/python3", os.X_OK) for place in SYSTEM_PATH.split(":"))
        privileged = _is_privileged()
        return cls(
            privileged=privileged,
            python_prefix=prefix if hidden else None,
            lends_python=hidden and not has_python,
            environ=dict(os.environ),
            pid=os.getpid(),
            writes_to_memory=memory_holds_writes(privileged=privileged),
        )

    @cached_property
    def capabilities(self) -> Capabilities:
        """What sandboxes of this caller can do."""
        return Capabilities(
            no_network=True,
            allowlist=True,
            users=self.privileged,
            mounts=True,
            snapshots=True,
            terminals=True,
            custody=True,
        )

    @property
    def path(self) -> str:
        """The PATH of programs that are given none."""
        return f"{SYSTEM_PATH}:{self.python_prefix}/bin" if self.lends_python else SYSTEM_PATH

    @cached_property
    def bash(self) -> str:
        """Where bash is, whatever PATH a program is given."""
        return shutil.which("bash", path=self.path) or "bash"

    def variables(self) -> dict[str, str]:
        """Return the environment that every program starts from."""
        variables = {"PATH": self.path, "LANG": "C.UTF-8"}
        for name in _CERTIFICATES:
            value = self.environ.get(name, "")
            if any(value.startswith(f"{top}/") for top in VISIBLE):
                variables[name] = value
        return variables

    def identity(self) -> list[str]:
        """Return what cached layers depend on besides their Dockerfile: whose they are and on what they lie."""
        facts = ["privileged" if self.privileged else "user", os.uname().machine, self.python_prefix or ""]
        for path in _SYSTEM_STATE:
            try:
                facts.append(f"{path} {Path(path).stat().st_mtime_ns}")
            except OSError:
                continue
        return facts


def _is_privileged() -> bool:
    """Return whether we may mount; the root of a user namespace is treated as the ordinary user he is outside."""
    is_initial = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    return is_initial and bool(capabilities >> _CAP_SYS_ADMIN & 1)


_WHITEOUT = os.makedev(0, 0)


def memory_holds_writes(*, privileged: bool) -> bool:
    """Return whether tmpfs has the attributes that mark replaced directories; it has those of users since Linux 6.6."""
    with open(os.memfd_create("bf-probe", os.MFD_CLOEXEC)) as file:
        return _takes_attribute(file.fileno(), privileged=privileged)


def directory_holds_writes(directory: Path, *, privileged: bool) -> bool:
    """Return whether a file system has attributes and whiteouts: not NFS, not FUSE, not another overlay."""
    from pytest_benchflow.sandboxes.local.guest import libc

    file, moved, whiteout = (directory / f"{temporary_name()}-probe{number}" for number in range(3))
    try:
        file.touch(mode=0o600)
        os.mknod(whiteout, stat.S_IFCHR, _WHITEOUT)
        libc.rename_leaving_whiteout(str(file), str(moved))
        return _takes_attribute(moved, privileged=privileged)
    except OSError:
        return False
    finally:
        for path in (file, moved, whiteout):
            # What could not be made cannot be removed, and a read-only file system does not say that it is missing.
            with contextlib.suppress(OSError):
                path.unlink()


def _takes_attribute(file: int | Path, *, privileged: bool) -> bool:
    try:
        os.setxattr(file, f"{'trusted' if privileged else 'user'}.overlay.probe", b"y")
    except OSError:
        return False
    return True


_ADVICE = "set BF_CACHE_DIR to a directory of your own"


@dataclass(frozen=True, slots=True)
class LayerDirectory:
    """The directory of the layers."""

    path: Path
    holds_writes: bool = True
    """Whether sandboxes can write there; otherwise layers can be read but not built."""
    notes: tuple[str, ...] = ()


def choose_layer_directory(wanted: Path, *, privileged: bool) -> LayerDirectory:
    """Return `wanted` if it will do, else a directory on the local disk, else memory in its place if we may mount."""
    failure = None
    try:
        _make(wanted)
    except OSError as error:
        failure = SandboxError(f"the layer cache {wanted} cannot be made: {error.strerror}", advice=_ADVICE)
    else:
        if _is_open(wanted.stat()):
            # Whoever can write there could put anything into our sandboxes.
            raise SandboxError(f"others can write to the layer cache {wanted}", advice=_ADVICE)
        if directory_holds_writes(wanted, privileged=privileged):
            return LayerDirectory(wanted)
        if not os.access(wanted, os.W_OK):
            failure = SandboxError(f"the layer cache {wanted} cannot be written to", advice=_ADVICE)
    unfit = f"layers cannot be built in {wanted}"
    spare = spare_layers()
    if _is_ours(spare) and directory_holds_writes(spare, privileged=privileged):
        return LayerDirectory(spare, notes=(f"{unfit}: they are in {spare}",))
    if failure is not None:
        raise failure
    if privileged and _cover_with_memory(wanted):
        return LayerDirectory(
            wanted, notes=(f"{unfit}, on this file system: they are in memory, give BF_CACHE_DIR a volume",)
        )
    return LayerDirectory(wanted, holds_writes=False)


def _make(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)


def _is_open(status: os.stat_result) -> bool:
    return status.st_uid != os.geteuid() or bool(status.st_mode & 0o022)


def _is_ours(path: Path) -> bool:
    """Make a directory where everybody may; what somebody else put there under its name, or a link, will not do."""
    try:
        _make(path)
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and not _is_open(status)


def _cover_with_memory(path: Path) -> bool:
    """Mount a tmpfs on `path` for as long as the container lives, shared by all its processes."""
    from filelock import FileLock

    from pytest_benchflow.sandboxes.local.guest import libc

    with contextlib.suppress(OSError), FileLock(path.with_suffix(".lock")):
        # Another process may have done it meanwhile.
        if not directory_holds_writes(path, privileged=True):
            libc.mount("tmpfs", str(path), "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=700")
        return True
    return False
