"""A sandbox of your own, here the local one with the company's settings in it.

Name it in your package's pyproject.toml:

    [project.entry-points."pytest_benchflow.sandboxes"]
    company = "company_sandbox:CompanyBackend"

It then has what the sandboxes of this package have:

    pytest tasks --bf-sandbox company --bf-sandbox-option company.zone=west
    bf cleanup      # lists the settings that killed runs left, under "company"
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from pytest_benchflow.core.errors import SandboxError
from pytest_benchflow.sandboxes import BackendOption, Capabilities, Leftover, Leftovers, Mount, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend

PREFIX = "company-sandbox-"


class CompanyBackend:
    """Makes sandboxes that know in which of the company's zones they are."""

    name = "company"
    options = (BackendOption("zone", "which machines are near", choices=("east", "west"), default="east"),)

    def __init__(self) -> None:
        self._local = LocalBackend()
        self._zone = ""
        self._settings: Path | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self._local.capabilities

    def configure(self, values: Mapping[str, str]) -> None:
        self._zone = values["zone"]

    async def preflight(self) -> None:
        await self._local.preflight()
        try:
            self._settings = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
            (self._settings / "company.toml").write_text(f'zone = "{self._zone}"\n')
        except OSError as error:
            advice = "set TMPDIR to a directory that can be written to"
            raise SandboxError(f"company: the settings cannot be written: {error}", advice=advice) from None

    def create(self, spec: SandboxSpec) -> Sandbox:
        assert self._settings is not None, "await preflight() first"
        mount = Mount(self._settings, "/etc/company", key=f"company-{self._settings.name}")
        env = {"COMPANY_SETTINGS": "/etc/company/company.toml", **spec.env}
        return self._local.create(replace(spec, env=env, mounts=(*spec.mounts, mount)))

    def leftovers(self, *, unused_for_sec: float | None = None) -> Sequence[Leftovers]:
        # What local sandboxes leave, the backend `local` finds itself.
        return [SettingsDirectories()]

    async def aclose(self) -> None:
        await self._local.aclose()
        if self._settings is not None:
            shutil.rmtree(self._settings, ignore_errors=True)


class SettingsDirectories:
    """The directories that `preflight` makes; those of a killed run stay."""

    title = "company"
    is_cache = False
    has_runs = False

    async def __aenter__(self) -> SettingsDirectories:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A backend that talks to a server closes its connection here."""

    async def find(self) -> list[Leftover]:
        return [leftover(path) for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"))]

    async def remove(self, leftovers: Sequence[Leftover]) -> list[Leftover]:
        for item in leftovers:
            shutil.rmtree(item.id, ignore_errors=True)
        return [item for item in leftovers if not os.path.exists(item.id)]


def leftover(path: Path) -> Leftover:
    pid = path.name.removeprefix(PREFIX).partition("-")[0]
    is_running = os.path.exists(f"/proc/{pid}")
    owner = f"of process {pid}, which {'is running' if is_running else 'is gone'}"
    return Leftover("settings", str(path), path.name, owner, path.stat().st_mtime, abandoned=not is_running)
