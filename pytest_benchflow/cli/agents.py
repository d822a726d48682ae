"""`bf agents` and `bf agents show NAME`: which agents there are, and what each lacks to run here."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pytest_benchflow.errors import BenchflowError

_HEAD = ("agent", "aliases", "protocol", "version", "auth", "here")


def list_agents() -> int:
    """Print every agent with what is missing for it; 2 if a manifest or `.env` cannot be read."""
    from pytest_benchflow.agents import AgentRegistry, statuses

    try:
        registry = AgentRegistry()
        registry.load_entry_points()
        found = statuses(registry)
    except BenchflowError as error:
        print(error, file=sys.stderr)
        return 2
    rows = [(one.name, ", ".join(one.aliases), one.protocol, one.version, one.auth, one.here) for one in found]
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
