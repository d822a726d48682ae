"""Find out whether a local sandbox can start here, and say exactly what forbids it if not."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pytest_benchflow.errors import SandboxError

from .environment import Host
from .launcher import Launcher
from .machine import Machine, MachineConfig

_DOCKER = "or use --bf-sandbox docker"
#: A kernel setting, the value that forbids user namespaces, and how to allow them.
_SETTINGS = (
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "15000"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
)
#: The first kernel on which ordinary users can mount overlays.
_OVERLAYS_FOR_ALL = (5, 11)


async def check(host: Host, launcher: Launcher) -> None:
    """Start a sandbox and stop it again; SandboxError tells why that is not possible."""
    try:
        machine = await Machine.start(launcher, MachineConfig("preflight", host.privileged, network=False))
    except SandboxError as error:
        raise explain(error.message, host) from None
    except OSError as error:
        raise SandboxError(f"the local sandbox cannot start: {error}", retryable=False) from None
    await machine.stop()


def explain(
    failure: str, host: Host, settings: Path = Path("/proc/sys"), release: str = os.uname().release
) -> SandboxError:
    """Turn the failure of a first sandbox into its cause and the command that cures it."""
    if not host.privileged:
        for name, forbidding, allowing in _SETTINGS:
            path = settings / name
            if path.exists() and path.read_text().strip() == forbidding:
                key = name.replace("/", ".")
                return SandboxError(
                    f"the local sandbox cannot start: {key} = {forbidding} forbids user namespaces",
                    advice=f"allow them with: sudo sysctl -w {key}={allowing} {_DOCKER}",
                    retryable=False,
                )
        version = tuple(map(int, re.findall(r"\d+", release)[:2]))
        if "mount overlay" in failure and version < _OVERLAYS_FOR_ALL:
            return SandboxError(
                f"the local sandbox cannot start: Linux {release} lets only root mount overlays; 5.11 lets everyone",
                advice=f"run pytest as root, {_DOCKER}",
                retryable=False,
            )
    return SandboxError(
        f"the local sandbox cannot start: {failure}",
        advice=f"inside a container it needs the right to mount (docker run --privileged), {_DOCKER}",
        retryable=False,
    )
