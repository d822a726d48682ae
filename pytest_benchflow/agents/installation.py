"""Where an agent's programs come from: a bundle made once on the host, a command in the sandbox, or the image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents.log import AgentLog, log_name
from pytest_benchflow.agents.manifest import AgentManifest
from pytest_benchflow.core.errors import InstallError
from pytest_benchflow.core.text import one_line

if TYPE_CHECKING:
    from pytest_benchflow.agents.base import AgentContext
    from pytest_benchflow.agents.bundles.bundle import Bundle, BundleSpec
    from pytest_benchflow.agents.bundles.store import BundleStore
    from pytest_benchflow.sandboxes import Mount, Sandbox


class Installation:
    """The programs of one agent in any number of sandboxes."""

    def __init__(self, manifest: AgentManifest, store: BundleStore | None = None) -> None:
        self._manifest = manifest
        self._store = store
        self._bundle: Bundle | None = None
        self._prefixes: dict[str, str] = {}

    @property
    def spec(self) -> BundleSpec | None:
        """The bundle that holds the programs, if they come as packages."""
        from pytest_benchflow.agents.bundles.bundle import BundleSpec

        manifest, install = self._manifest, self._manifest.install
        if not install.npm and not install.pip:
            return None
        return BundleSpec(
            agent=manifest.name,
            version=manifest.version or "0",
            node=install.node,
            npm=install.npm,
            python=install.python,
            pip=install.pip,
            programs=manifest.programs,
        )

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        """Make the bundle, unless it is there, and return how a sandbox shows it."""
        self._bundle = None  # asked for anew, so that every rollout keeps what the installation printed
        bundle = await self._provided(log_dir)
        return () if bundle is None else (bundle.mount(),)

    async def deploy(self, context: AgentContext) -> None:
        """Make the programs ready in a sandbox, once."""
        if context.sandbox.id in self._prefixes:
            return
        bundle = await self._provided(context.log_dir)
        if bundle is not None:
            self._prefixes[context.sandbox.id] = await bundle.deploy(context.sandbox, log=self._log(context.log_dir))
        elif self._manifest.install.command is not None:
            await self._run(self._manifest.install.command, context)
            self._prefixes[context.sandbox.id] = ""

    def program(self, name: str, context: AgentContext) -> str:
        """Return how a program is called in a sandbox."""
        prefix = self._prefixes.get(context.sandbox.id)
        return f"{prefix}/bin/{name}" if prefix and name in self._manifest.programs else name

    async def _provided(self, log_dir: Path) -> Bundle | None:
        spec = self.spec
        if spec is None:
            return None
        if self._bundle is None:
            if self._store is None:
                from pytest_benchflow.agents.bundles.store import BundleStore

                self._store = BundleStore()
            self._bundle = await self._store.provide(spec, log=self._log(log_dir))
        return self._bundle

    async def _run(self, command: str, context: AgentContext) -> None:
        """Run the manifest's own command as root."""
        path = self._log(context.log_dir)

        def write_log(output: str) -> None:
            log = AgentLog(path, context.access.secrets)
            log.write(output.encode("utf-8", "replace"))
            log.close()

        await exec_install(
            context.sandbox,
            f"{command} 2>&1",
            self._manifest.name,
            timeout_sec=self._manifest.install.timeout_sec,
            log=write_log,
            explain=lambda lines: " ".join(lines[-3:]),
        )

    def _log(self, log_dir: Path) -> Path:
        """Return where the installation's output goes; a second agent of the rollout gets a file of its own."""
        plain = log_dir / "install-stdout.txt"
        own = log_dir / f"install-{log_name(self._manifest.name).removesuffix('.txt')}-stdout.txt"
        return own if plain.exists() else plain


async def exec_install(
    sandbox: Sandbox,
    script: str,
    agent: str,
    *,
    timeout_sec: float,
    log: Callable[[str], None],
    explain: Callable[[list[str]], str],
    cwd: str | None = None,
    advice: str | None = None,
) -> None:
    """Install an agent by a script of root, with its output in a log; `explain` finds the reason in its lines."""
    try:
        result = await sandbox.exec(script, user=0, cwd=cwd, timeout_sec=timeout_sec)
    except TimeoutError:
        raise InstallError(f"Agent {agent} install took longer than {timeout_sec:g} s", advice=advice) from None
    output = result.stdout + result.stderr
    log(output)
    if result.return_code:
        reason = one_line(explain([line for line in output.splitlines() if line.strip()]), 300)
        raise InstallError(f"Agent {agent} install failed (rc={result.return_code}): {reason}", advice=advice)
