"""What this host and this caller mean for local sandboxes: privileges, interpreter, settings that travel."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_benchflow.sandboxes.base import Capabilities

from .uppers import memory_holds_writes

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
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


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
    def look(cls) -> Host:
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
        return Capabilities(no_network=True, users=self.privileged, mounts=True, snapshots=True)

    @property
    def path(self) -> str:
        """The PATH of programs that are given none."""
        return f"{SYSTEM_PATH}:{self.python_prefix}/bin" if self.lends_python else SYSTEM_PATH

    @cached_property
    def bash(self) -> str:
        """Where bash is, whatever PATH a program is given."""
        return shutil.which("bash", path=self.path) or "bash"

    def variables(self, *, network: bool) -> dict[str, str]:
        """Return the environment that every program starts from."""
        found = {"PATH": self.path, "LANG": "C.UTF-8"}
        for name in _CERTIFICATES:
            value = self.environ.get(name, "")
            if any(value.startswith(f"{top}/") for top in VISIBLE):
                found[name] = value
        for name in (*_PROXIES, *(proxy.upper() for proxy in _PROXIES)) if network else ():
            value = self.environ.get(name, "")
            # A proxy that carries a password is a secret of the caller.
            if value and "@" not in value:
                found[name] = value
        return found

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
    """Say whether we may mount; the root of a user namespace is treated as the ordinary user he is outside."""
    is_initial = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    return is_initial and bool(capabilities >> _CAP_SYS_ADMIN & 1)
