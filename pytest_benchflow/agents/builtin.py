"""The manifests that come with the package, each read when its agent is first named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
