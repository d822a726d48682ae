"""A directory of manifests: agents of a team or a project, which may replace built-in ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_benchflow.agents.builtin import OWNERS
from pytest_benchflow.agents.manifest_file import read_manifest
from pytest_benchflow.errors import UsageError

if TYPE_CHECKING:
    from pytest_benchflow.agents.manifest import AgentManifest


def read_directory(directory: Path) -> dict[str, AgentManifest]:
    """Return the manifests in a directory and below it; a word that means two agents is an error."""
    if not directory.is_dir():
        raise UsageError(f"BF_AGENTS_DIR: {directory} is no directory")
    found: dict[str, AgentManifest] = {}
    words: dict[str, Path] = {}
    for path in sorted(directory.rglob("*.toml")):
        manifest = read_manifest(path)
        for word in (manifest.name, *manifest.aliases):
            other = words.get(word) or _built_in(word, manifest)
            if other is not None:
                raise UsageError(f"{path}: {word!r} is taken by {other}", advice="choose another name")
            words[word] = path
        found[manifest.name] = manifest
    return found


def _built_in(word: str, manifest: AgentManifest) -> str | None:
    """Return which other built-in agent a word means."""
    owner = OWNERS.get(word, word if word in ("oracle", "nop") else None)
    return None if owner in (None, manifest.name) and word not in ("oracle", "nop") else f"the built-in agent {owner}"
