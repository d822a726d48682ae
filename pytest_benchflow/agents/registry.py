"""The agents a run knows: built in, raw commands, registered, from a directory of manifests, packages and hooks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pytest_benchflow.agents.base import Agent
from pytest_benchflow.agents.builtin import NopAgent, OracleAgent
from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.registry import installed_entries
from pytest_benchflow.core.text import closest

if TYPE_CHECKING:
    from pytest_benchflow.agents.manifest import AgentManifest


#: Names and aliases, known without reading thirteen files; a test holds them to what the files say.
BUILT_IN: dict[str, tuple[str, ...]] = {
    "claude-agent-acp": ("claude",),
    "codex-acp": ("codex",),
    "copilot": (),
    "gemini": (),
    "grok": (),
    "hermes": (),
    "kimi-code": (),
    "openclaw": (),
    "opencode": (),
    "openhands": ("oh",),
    "pi-acp": ("pi",),
    "qwen": (),
    "vibe": (),
}
OWNERS = {word: name for name, aliases in BUILT_IN.items() for word in (name, *aliases)}
"""The built-in agent that a name or alias means."""


def built_in_manifest(name: str) -> AgentManifest:
    """Return the manifest of a built-in agent."""
    from pytest_benchflow.agents.manifest_file import read_manifest

    return read_manifest(Path(__file__).parent / "manifests" / f"{name}.toml")


REGISTERED: dict[str, AgentManifest] = {}
"""Agents that Python code made known to the whole process."""


def list_agents() -> list[AgentManifest]:
    """Return every agent that speaks ACP: built in, from BF_AGENTS_DIR, registered; by name."""
    return AgentRegistry().manifests()


def get_agent(name: str) -> AgentManifest:
    """Return the manifest that a name or an alias means; an unknown one is answered with the nearest known."""
    return AgentRegistry().manifest(name)


ENTRY_POINT_GROUP = "pytest_benchflow.agents"
FREE_AGENTS = frozenset({"oracle", "nop"})
"""Agents that call no model, so running them costs nothing."""
_COMMAND = "cmd:"
_ACPX = "acpx/"
_ACP = "acp/"


class AgentRegistry:
    """Look agents up by name; an unknown one is answered with the nearest known."""

    def __init__(self, directory: Path | None = None) -> None:
        """Take manifests from `directory` too; without one, from the directory that BF_AGENTS_DIR names."""
        chosen = os.environ.get("BF_AGENTS_DIR", "").strip()
        self._directory = directory or (Path(chosen) if chosen else None)
        self._read: dict[str, AgentManifest] | None = None
        self._registered: dict[str, Agent | AgentManifest] = {"oracle": OracleAgent(), "nop": NopAgent()}
        self._made: dict[str, Agent] = {}

    def register(self, agent: Agent | AgentManifest, *, replace: bool = False) -> None:
        """Add an agent, or one that a manifest describes; a name can be taken once unless it is to be replaced."""
        for word in (agent.name, *getattr(agent, "aliases", ())):
            if not replace and (word in OWNERS or any(word in _words(other) for other in self._registered.values())):
                raise UsageError(f"agent {word!r} is registered twice", advice="give one of them another name")
        self._registered[agent.name] = agent
        self._made.clear()

    def load_entry_points(self) -> None:
        """Add what installed packages offer: each entry point names a callable that returns an agent or a manifest."""
        for _, make in installed_entries(ENTRY_POINT_GROUP):
            self.register(cast("Agent | AgentManifest", make()))

    def names(self) -> list[str]:
        """Return every known name, sorted; aliases are not among them."""
        return sorted({*self._registered, *self._manifests(), *BUILT_IN})

    def get(self, name: str) -> Agent:
        """Return the agent that a user's word means: a name, an alias, `acpx/NAME`, a manifest's path, `cmd: …`."""
        name = name.strip()
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def manifest(self, name: str) -> AgentManifest:
        """Return the manifest behind a user's word; an agent without one is an error."""
        from pytest_benchflow.agents.manifest import AgentManifest

        entry = self._find(name.strip())
        if not isinstance(entry, AgentManifest):
            raise UsageError(f"agent {entry.name!r} has no manifest", advice="it is made of Python alone")
        return entry

    def manifests(self) -> list[AgentManifest]:
        """Return every manifest, by name."""
        from pytest_benchflow.agents.manifest import AgentManifest

        return [entry for name in self.names() if isinstance(entry := self._find(name), AgentManifest)]

    def _make(self, name: str) -> Agent:
        if name.startswith(_ACP):
            return self.get(name.removeprefix(_ACP))
        if name.startswith(_ACPX):
            return self._behind_acpx(name)
        entry = self._find(name)
        if name in _words(entry):
            return self._made.setdefault(entry.name, _agent(entry))
        return _agent(entry)

    def _find(self, name: str) -> Agent | AgentManifest:
        registered = next((one for one in self._registered.values() if name in _words(one)), None)
        if registered is not None:
            return registered
        if name.startswith(_COMMAND):
            from pytest_benchflow.agents.custom import raw_manifest

            return raw_manifest(name.removeprefix(_COMMAND))
        if name.endswith(".toml"):
            from pytest_benchflow.agents.manifest_file import read_manifest

            return read_manifest(Path(name))
        known = self._manifests()
        own = next((one for one in known.values() if name in _words(one)), None)
        if own is not None:
            return own
        if name not in OWNERS:
            raise self._unknown(name)
        return known.get(OWNERS[name]) or built_in_manifest(OWNERS[name])

    def _behind_acpx(self, name: str) -> Agent:
        from pytest_benchflow.agents.acp_agent import AcpAgent
        from pytest_benchflow.agents.acpx import AcpxAgent

        agent = self.get(name.removeprefix(_ACPX))
        if not isinstance(agent, AcpAgent) or isinstance(agent, AcpxAgent):
            raise UsageError(f"{name!r}: {agent.name} does not speak ACP", advice="acpx drives only agents that do")
        return self._made.setdefault(f"{_ACPX}{agent.name}", AcpxAgent(agent.manifest))

    def _manifests(self) -> dict[str, AgentManifest]:
        """Return what the directory holds and what was registered for the whole process."""
        if self._read is None:
            if self._directory is None:
                self._read = {}
            else:
                from pytest_benchflow.agents.custom import read_directory

                self._read = read_directory(self._directory)
        return {**self._read, **REGISTERED}

    def _unknown(self, name: str) -> UsageError:
        known = {*OWNERS}.union(*map(_words, (*self._registered.values(), *self._manifests().values())))
        near = closest(name, known)
        hint = f"Did you mean: {near!r}?" if near else f"Available: {', '.join(sorted(known))}"
        return UsageError(f"Unknown agent: {name!r}. {hint}")


def _words(agent: Agent | AgentManifest) -> tuple[str, ...]:
    aliases: tuple[str, ...] = getattr(agent, "aliases", ())
    return (agent.name, *aliases)


def _agent(entry: Agent | AgentManifest) -> Agent:
    if entry.name in FREE_AGENTS and not hasattr(entry, "launch"):
        return entry
    from pytest_benchflow.agents.acp_agent import AcpAgent
    from pytest_benchflow.agents.manifest import AgentManifest

    return AcpAgent(entry) if isinstance(entry, AgentManifest) else entry
