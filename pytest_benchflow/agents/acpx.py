"""`acpx/NAME`: an agent driven by the `acpx` client instead of by us; all else stays as its manifest says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_benchflow.agents.acp_agent import AcpAgent
from pytest_benchflow.agents.acpx_bridge import DRIVER, VERSION, AcpxBridge, Offer
from pytest_benchflow.agents.base import AgentContext, HomeFile
from pytest_benchflow.agents.home_files import write_home_files
from pytest_benchflow.agents.manifest import AgentManifest
from pytest_benchflow.agents.template import render

if TYPE_CHECKING:
    from pytest_benchflow.agents.bundles import BundleStore
    from pytest_benchflow.sandboxes import Process

_NODE = "22.23.3"
_OLDEST_NODE = 22
_SERVERS = ".acpx/servers.json"


def behind_acpx(manifest: AgentManifest) -> AgentManifest:
    """Return the manifest of an agent that comes with acpx; a name of its own keeps its bundle apart."""
    install = manifest.install
    old = install.node is None or int(install.node.partition(".")[0]) < _OLDEST_NODE
    own = manifest.programs if install.npm or install.pip else ()
    return replace(
        manifest,
        name=f"acpx/{manifest.name}",
        aliases=(),
        # Each session starts the agent more than once.
        handshake_timeout_sec=3 * manifest.handshake_timeout_sec,
        install=replace(
            install,
            node=_NODE if old else install.node,
            npm=(*install.npm, f"acpx@{VERSION}"),
            programs=(*own, "acpx"),
        ),
    )


class AcpxAgent(AcpAgent):
    """An agent behind acpx."""

    def __init__(self, manifest: AgentManifest, store: BundleStore | None = None) -> None:
        super().__init__(behind_acpx(manifest), store)

    async def install(self, context: AgentContext) -> None:
        """Make its programs ready, write its files and what acpx has to know."""
        await super().install(context)
        if servers := self._plan(context).mcp_servers:
            content = render({"mcpServers": [*servers]}, "json")
            await write_home_files(context, [HomeFile(_SERVERS, content)], self.name)

    async def _open(self, argv: Sequence[str], context: AgentContext, env: Mapping[str, str]) -> Process:
        """Start the shell that acpx runs below."""
        driver = await context.sandbox.open_process(DRIVER, user=context.user, cwd=context.cwd, env=env)
        effort = self.manifest.effort
        asks = context.request.effort is not None and effort is not None and effort.by == "config-option"
        option = (effort.option or "effort") if effort is not None and asks else None
        return AcpxBridge(driver, self._acpx(argv, context), Offer(self.manifest.mode, option))

    def _acpx(self, argv: Sequence[str], context: AgentContext) -> list[str]:
        """Return the command with what every call of it needs."""
        words = [self.installation.program("acpx", context), "--format", "json", "--json-strict", "--approve-all"]
        words += ["--no-fs", "--no-terminal", "--ttl", "0", "--cwd", context.cwd]
        plan = self._plan(context)
        if plan.mcp_servers:
            words += ["--mcp-config", f"{context.home}/{_SERVERS}"]
        if plan.model is not None and plan.model_by != "launch":
            words += ["--model", plan.model]
        return [*words, "--agent", shlex.join(argv)]
