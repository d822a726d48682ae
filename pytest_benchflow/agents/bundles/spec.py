"""What a bundle is made of, and the name that follows from it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from functools import cache
from platform import libc_ver

#: Goes up when bundles of the same spec are laid out in another way.
_FORMAT = 1
#: Where bundles lie inside every sandbox.
PLACE = "/opt/benchflow"


@dataclass(frozen=True, slots=True)
class BundleSpec:
    """The packages of an agent, the runtime they need, and the programs they give."""

    agent: str
    version: str
    node: str | None = None
    """Version of the npm package `node` that runs the npm packages."""
    npm: tuple[str, ...] = ()
    python: str | None = None
    """Version of the Python, such as 3.12, that runs the packages of PyPI."""
    pip: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    """What lands in `bin`; nothing else of the packages can be called by name."""

    @property
    def digest(self) -> str:
        """Name spec and platform together."""
        return hashlib.sha256(json.dumps([_FORMAT, host_platform(), asdict(self)]).encode()).hexdigest()

    @property
    def name(self) -> str:
        """Name the directory of the bundle, on the host and in a sandbox."""
        return f"{_plain(self.agent)}-{_plain(self.version)}-{self.digest[:8]}"

    @property
    def target(self) -> str:
        """The prefix of the bundle inside a sandbox."""
        return f"{PLACE}/{self.name}"


@cache
def host_platform() -> str:
    """Name the kind of system that programs of this host run on."""
    libc = libc_ver()[0] or "musl"
    return f"{sys.platform}-{os.uname().machine}-{libc}"


def _plain(word: str) -> str:
    return re.sub("[^A-Za-z0-9._+]+", "-", word).strip("-.") or "x"
