"""A sandbox of your own, here the local one with the company's settings in it.

Name it in your package's pyproject.toml, and `--bf-sandbox company` runs tasks in it:

    [project.entry-points."pytest_benchflow.sandboxes"]
    company = "company_sandbox:CompanyBackend"
"""

from __future__ import annotations

from dataclasses import replace

from pytest_benchflow.sandboxes import Capabilities, Sandbox, SandboxSpec
from pytest_benchflow.sandboxes.local.backend import LocalBackend


class CompanyBackend:
    """Makes sandboxes that know where the company's packages are."""

    name = "company"

    def __init__(self) -> None:
        self._local = LocalBackend()

    @property
    def capabilities(self) -> Capabilities:
        return self._local.capabilities

    async def preflight(self) -> None:
        await self._local.preflight()

    def create(self, spec: SandboxSpec) -> Sandbox:
        return self._local.create(replace(spec, env={"PIP_INDEX_URL": "file:///srv/packages", **spec.env}))

    async def aclose(self) -> None:
        await self._local.aclose()
