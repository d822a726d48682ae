"""Agents that users bring: a raw command, a directory of manifests, or a call of `register_agent`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_benchflow.agents.legacy import AgentConfig, CredentialFile, SubscriptionAuth, command_argv, manifest_of
from pytest_benchflow.agents.manifest import AgentManifest, EffortChoice
from pytest_benchflow.agents.manifest_file import check_manifest, read_manifest
from pytest_benchflow.agents.registry import OWNERS, REGISTERED
from pytest_benchflow.core.errors import UsageError


def raw_manifest(command: str) -> AgentManifest:
    """Return the manifest of a command: nothing to install, model and effort by what its session offers."""
    command = command.strip()
    argv = command_argv(command)
    if not argv:
        raise UsageError("'cmd:' names no command", advice='write "cmd: PROGRAM ARGUMENTS"')
    return AgentManifest(name=f"cmd: {command}", launch=argv, description=command, effort=EffortChoice())


def read_directory(directory: Path) -> dict[str, AgentManifest]:
    """Return the manifests in a directory and below it; a word that means two agents is an error."""
    if not directory.is_dir():
        raise UsageError(f"BF_AGENTS_DIR: {directory} is not a directory")
    manifests: dict[str, AgentManifest] = {}
    words: dict[str, Path] = {}
    for path in sorted(directory.rglob("*.toml")):
        manifest = read_manifest(path)
        for word in (manifest.name, *manifest.aliases):
            other = words.get(word) or _built_in(word, manifest)
            if other is not None:
                raise UsageError(f"{path}: {word!r} is taken by {other}", advice="choose another name")
            words[word] = path
        manifests[manifest.name] = manifest
    return manifests


def _built_in(word: str, manifest: AgentManifest) -> str | None:
    """Return which other built-in agent a word means."""
    owner = OWNERS.get(word, word if word in ("oracle", "nop") else None)
    return None if owner in (None, manifest.name) and word not in ("oracle", "nop") else f"the built-in agent {owner}"


def register_agent(
    name: str,
    install_cmd: str = "",
    launch_cmd: str = "",
    *,
    aliases: Sequence[str] = (),
    protocol: str = "acp",
    requires_env: Sequence[str] = (),
    description: str = "",
    skill_paths: Sequence[str] = (),
    install_timeout: float = 900.0,
    default_model: str | None = None,
    api_protocol: str = "",
    env_mapping: Mapping[str, str] | None = None,
    credential_files: Sequence[CredentialFile] = (),
    home_dirs: Sequence[str] = (),
    acp_model_format: str = "bare",
    subscription_auth: SubscriptionAuth | None = None,
    supports_acp_set_model: bool = True,
    acp_model_config_id: str | None = None,
    acp_effort_config_id: str | None = None,
) -> AgentManifest:
    """Make an agent known: how it is installed in a sandbox, and the command that speaks ACP."""
    if not launch_cmd.strip():
        raise UsageError(f"register_agent({name!r}) has no launch_cmd", advice="give the command that speaks ACP")
    config = AgentConfig(
        name=name,
        launch_cmd=launch_cmd,
        install_cmd=install_cmd,
        aliases=tuple(aliases),
        protocol=protocol,
        requires_env=tuple(requires_env),
        description=description,
        skill_paths=tuple(skill_paths),
        install_timeout=install_timeout,
        default_model=default_model,
        api_protocol=api_protocol,
        env_mapping=env_mapping or {},
        credential_files=tuple(credential_files),
        home_dirs=tuple(home_dirs),
        acp_model_format=acp_model_format,
        subscription_auth=subscription_auth,
        supports_acp_set_model=supports_acp_set_model,
        acp_model_config_id=acp_model_config_id,
        acp_effort_config_id=acp_effort_config_id,
    )
    problems: list[str] = []
    manifest = manifest_of(config, problems)
    if manifest is None:
        raise UsageError("\n".join(f"register_agent({name!r}): {problem}" for problem in problems))
    check_manifest(manifest, f"register_agent({name!r})")
    REGISTERED[name] = manifest
    return manifest
