"""An installed agent: where it lies on the host, and how it gets into a sandbox."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .spec import BundleSpec

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Mount, Sandbox

FACTS = "bundle.json"
#: Holds the bundle's key: a sandbox that shows it has the whole bundle.
KEY = "bundle.key"


@dataclass(frozen=True, slots=True)
class Bundle:
    """One agent of one version, complete and never changed again."""

    spec: BundleSpec
    path: Path
    key: str
    """Names the content: another installation of the same spec may differ in it."""
    files: int
    size: int
    """Bytes, those of a file with several names counted once."""
    seconds: float
    """How long the installation took."""
    runtimes: tuple[str, ...] = ()
    """What runs its programs, for example `node v22.23.3`."""

    @property
    def target(self) -> str:
        """The prefix inside a sandbox; programs are in its `bin`."""
        return self.spec.target

    @property
    def used(self) -> float:
        """When it was last asked for, in seconds since 1970; 0 if it is gone."""
        try:
            return self.path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def mount(self) -> Mount:
        """Return what makes a sandbox show the bundle from its start."""
        from pytest_benchflow.sandboxes import Mount

        return Mount(self.path, self.target, self.key)

    async def put_in(self, sandbox: Sandbox, *, log: Path | None = None) -> str:
        """Make the programs ready in a started sandbox and return their prefix there; they are in its `bin`.

        That is `target` unless the bundle cannot run there: then the image's own npm or pip installs the agent.
        """
        from .inside import put_in

        return await put_in(self, sandbox, log)

    def facts(self) -> str:
        """Return what `read` needs, as text."""
        spec = {name: getattr(self.spec, name) for name in BundleSpec.__slots__}
        facts = {name: getattr(self, name) for name in ("key", "files", "size", "seconds", "runtimes")}
        return json.dumps({"spec": spec, **facts}, indent=2) + "\n"


def read(path: Path) -> Bundle | None:
    """Return the bundle in a directory, None if there is none that this version can use."""
    try:
        facts = json.loads((path / FACTS).read_text("utf-8"))
        spec = facts["spec"]
        spec |= {name: tuple(spec[name]) for name in ("npm", "pip", "programs")}
        return Bundle(
            BundleSpec(**spec),
            path,
            key=facts["key"],
            files=facts["files"],
            size=facts["size"],
            seconds=facts["seconds"],
            runtimes=tuple(facts["runtimes"]),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
