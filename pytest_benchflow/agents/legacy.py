"""Agents described the way BenchFlow does: shell commands that install and launch, variables to map."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

from pytest_benchflow.agents.manifest import AgentManifest, Dialect, EffortChoice, Install, ModelChoice, build
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.providers import CredentialOption, Login, WireProtocol

#: What a command needs a shell for.
_SHELL = re.compile(r"[|&;<>()$`\n*?\[#~]|^\s*\w+=")
_PREFIXES = ("BENCHFLOW_PROVIDER_", "BF_PROVIDER_")
_MAPPED = {"BASE_URL": "{base_url}", "API_KEY": "{api_key}", "MODEL": "{model}", "NAME": "{provider}"}


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """A file in the sandbox that holds the value of a variable."""

    path: str
    env_source: str


@dataclass(frozen=True, slots=True)
class HostAuthFile:
    """A file of a login on the host, and where the agent looks for it."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class SubscriptionAuth:
    """A login on the host that stands in for a key."""

    replaces_env: str
    detect_file: str
    files: tuple[HostAuthFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """An agent in BenchFlow's words."""

    name: str
    launch_cmd: str
    install_cmd: str = ""
    contract_version: str = "1.0"
    aliases: tuple[str, ...] = ()
    protocol: str = "acp"
    requires_env: tuple[str, ...] = ()
    description: str = ""
    skill_paths: tuple[str, ...] = ()
    install_timeout: float = 900.0
    default_model: str | None = None
    api_protocol: str = ""
    env_mapping: Mapping[str, str] = field(default_factory=dict)
    credential_files: tuple[CredentialFile, ...] = ()
    home_dirs: tuple[str, ...] = ()
    acp_model_format: str = "bare"
    subscription_auth: SubscriptionAuth | None = None
    supports_acp_set_model: bool = True
    acp_model_config_id: str | None = None
    acp_effort_config_id: str | None = None


def is_config(data: Mapping[str, object]) -> bool:
    """Return whether a table describes an agent in BenchFlow's words."""
    return "launch_cmd" in data or "contract_version" in data


def from_config(data: Mapping[str, object], problems: list[str]) -> AgentManifest | None:
    """Return the manifest that says the same; what is wrong is added to `problems`."""
    config = build(AgentConfig, data, problems)
    return None if config is None else manifest_of(config, problems)


def manifest_of(config: AgentConfig, problems: list[str]) -> AgentManifest | None:
    """Return the manifest that says the same as a configuration."""
    before = len(problems)
    problems += _unknown("protocol", config.protocol, ("acp",))
    problems += _unknown("api_protocol", config.api_protocol, ("", *get_args(WireProtocol)))
    problems += _unknown(
        "acp_model_format", config.acp_model_format, ("bare", "provider/model", "registered-provider/model")
    )
    if config.contract_version.partition(".")[0] != "1":
        problems.append(f"contract_version is {config.contract_version!r}; this version reads 1.x")
    env = {native: _mapped(name, problems) for name, native in config.env_mapping.items()}
    credentials = tuple(
        CredentialOption(env=file.env_source, kind="file", path=_in_home(file.path)) for file in config.credential_files
    )
    if len(problems) > before:
        return None
    return AgentManifest(
        name=config.name,
        launch=command_argv(config.launch_cmd),
        aliases=config.aliases,
        description=config.description,
        install=Install(command=config.install_cmd.strip() or None, timeout_sec=config.install_timeout),
        env=env,
        model=_model(config),
        effort=EffortChoice(option=config.acp_effort_config_id),
        protocols={protocol: Dialect() for protocol in get_args(WireProtocol) if protocol == config.api_protocol},
        credentials=credentials,
        login=_login(config.subscription_auth),
        requires_env=config.requires_env,
        skill_dirs=config.skill_paths,
        home_dirs=config.home_dirs,
    )


def command_argv(command: str) -> tuple[str, ...]:
    """Return what runs a command line: its words, or a shell where it needs one."""
    try:
        return ("bash", "-c", command) if _SHELL.search(command) else tuple(shlex.split(command))
    except ValueError:
        return ("bash", "-c", command)


def _model(config: AgentConfig) -> ModelChoice:
    name = "{model}" if config.acp_model_format == "bare" or not config.api_protocol else "{provider}/{model}"
    if config.acp_model_config_id:
        return ModelChoice(
            by="config-option", option=config.acp_model_config_id, name=name, default=config.default_model
        )
    return ModelChoice(by="auto" if config.supports_acp_set_model else "env", name=name, default=config.default_model)


def _login(auth: SubscriptionAuth | None) -> Login | None:
    if auth is None:
        return None
    files = tuple(_in_home(file.host_path) for file in auth.files) or (_in_home(auth.detect_file),)
    return Login(detect=_in_home(auth.detect_file), files=files)


def _in_home(path: str) -> str:
    return re.sub(r"^(?:~|\{home\}|\$HOME)/", "", path)


def _mapped(name: str, problems: list[str]) -> str:
    short = name
    for prefix in _PREFIXES:
        short = short.removeprefix(prefix)
    problems += _unknown("env_mapping", short, _MAPPED)
    return _MAPPED.get(short, "")


def _unknown(key: str, value: str, known: Iterable[str]) -> list[str]:
    names = [*known]
    return [] if value in names else [f"{key} {value!r} is not known; {did_you_mean(value, filter(None, names))}"]
