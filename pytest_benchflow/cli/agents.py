"""`bf agents`: which agents there are, what each lacks to run here, and their programs on this machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import BenchflowError, UsageError

if TYPE_CHECKING:
    from pytest_benchflow.agents import AgentRegistry, Bundle, BundleSpec


def add_bundle_verbs(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], days: Callable[[str], float], kept_days: float
) -> None:
    """Add both verbs to `bf agents`."""
    install = verbs.add_parser("install", help="install agents on this machine, once for all runs")
    install.add_argument("names", nargs="*", metavar="NAME", help="agents, by name or alias")
    install.add_argument("--all", action="store_true", help="every agent that comes as packages")
    prune = verbs.add_parser("prune", help="list installed agents that nobody uses; removes nothing without --yes")
    prune.add_argument("--yes", action="store_true", help="remove what is listed")
    prune.add_argument(
        "--max-age",
        type=days,
        default=kept_days,
        metavar="DAYS",
        help="only what was not used for so long (default: %(default)g); the last one of each agent always stays",
    )


def install(names: Sequence[str], *, everything: bool) -> int:
    """Install agents one after the other; 1 if any could not be, 2 if a name means none."""
    from pytest_benchflow.agents import AgentRegistry

    registry = AgentRegistry()
    registry.load_entry_points()
    try:
        chosen = {name: _spec(registry, name) for name in names}
        if everything:
            chosen |= {manifest.name: _spec(registry, manifest.name) for manifest in registry.manifests()}
        if not chosen:
            raise UsageError("no agent is named", advice="give names, or --all")
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        return asyncio.run(_install(chosen))
    except KeyboardInterrupt:
        print("interrupted; nothing half-installed is left", file=sys.stderr)
        return 130


def prune(*, remove: bool, max_age_days: float) -> int:
    """List or remove the bundles that nobody has asked for in this time."""
    from pytest_benchflow.agents import BundleStore

    try:
        store = BundleStore()
        unused = store.unused(days=max_age_days)
        lines = [f"  {_told(bundle)}, unused for {_days(bundle)} days" for bundle in unused]
        if remove:
            store.remove(unused)
    except BenchflowError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"agents: {len(unused) or 'nothing'}")
    for line in lines:
        print(f"{line}{'  removed' if remove else ''}")
    if unused and not remove:
        print("nothing was removed; --yes removes what is listed")
    return 0


async def _install(chosen: dict[str, BundleSpec | None]) -> int:
    from pytest_benchflow.agents import BundleStore
    from pytest_benchflow.reporting import work_shown

    store, failed = BundleStore(), 0
    before = {bundle.key for bundle in store.installed()}
    for name, spec in chosen.items():
        if spec is None:
            print(f"{name}: nothing to install")
            continue
        try:
            with work_shown(1):
                bundle = await store.provide(spec)
        except BenchflowError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed += 1
        else:
            how = "already installed" if bundle.key in before else f"installed in {bundle.seconds:.0f} s"
            print(f"{_told(bundle)}, {how}: {bundle.path}", flush=True)
    return 1 if failed else 0


def _spec(registry: AgentRegistry, name: str) -> BundleSpec | None:
    from pytest_benchflow.agents import AcpAgent

    agent = registry.get(name)
    return agent.installation.spec if isinstance(agent, AcpAgent) else None


def _told(bundle: Bundle) -> str:
    runtimes = "".join(f", {runtime}" for runtime in bundle.runtimes)
    return f"{bundle.spec.agent} {bundle.spec.version}{runtimes}, {bundle.size / 1e6:.0f} MB"


def _days(bundle: Bundle) -> str:
    return f"{(time.time() - bundle.used) / 86400:.0f}"


_HEAD = ("agent", "aliases", "protocol", "version", "auth", "here")


def list_agents(*, as_json: bool = False) -> int:
    """Print every agent with what is missing for it; 2 if a manifest or `.env` cannot be read."""
    from pytest_benchflow.agents import AgentRegistry, statuses

    try:
        registry = AgentRegistry()
        registry.load_entry_points()
        agents = statuses(registry)
    except BenchflowError as error:
        print(error, file=sys.stderr)
        return 2
    if as_json:
        print(json.dumps([{key: getattr(one, key) for key in ("name", *_HEAD[1:])} for one in agents], indent=2))
        return 0
    rows = [(one.name, ", ".join(one.aliases), one.protocol, one.version, one.auth, one.here) for one in agents]
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    for row in (_HEAD, *rows):
        print(_line(row, widths))
    return 0


def show_agent(name: str) -> int:
    """Print what is known about one agent; 2 if there is none of that name."""
    from pytest_benchflow.agents import AcpAgent, AgentRegistry, describe

    try:
        registry = AgentRegistry()
        registry.load_entry_points()
        agent = registry.get(name)
        facts = [*describe(agent.manifest)] if isinstance(agent, AcpAgent) else [("agent", agent.name)]
    except BenchflowError as error:
        print(error, file=sys.stderr)
        return 2
    width = max(len(key) for key, _ in facts)
    for key, value in facts:
        if value:
            print(_line((key, value), (width, 0)))
    return 0


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:{width}}" if width else cell for cell, width in zip(row, widths, strict=True)).rstrip()
