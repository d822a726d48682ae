"""Agents registered from Python, known to every registry of the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_benchflow.agents.legacy import AgentConfig, CredentialFile, SubscriptionAuth, manifest_of
from pytest_benchflow.agents.manifest import AgentManifest
from pytest_benchflow.agents.manifest_file import check_manifest
from pytest_benchflow.errors import UsageError

REGISTERED: dict[str, AgentManifest] = {}


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


def list_agents() -> list[AgentManifest]:
    """Return every agent that speaks ACP: built in, from BF_AGENTS_DIR, registered; by name."""
    from pytest_benchflow.agents.registry import AgentRegistry

    return AgentRegistry().manifests()


def get_agent(name: str) -> AgentManifest:
    """Return the manifest that a name or an alias means; an unknown one is answered with the nearest known."""
    from pytest_benchflow.agents.registry import AgentRegistry

    return AgentRegistry().manifest(name)
