"""The `[environment]` table: image, resources, network, health check, MCP servers."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from .values import Count, Cpus, Env, Host, Megabytes, NetworkMode, NonEmpty, Seconds, Table, User, quoted, refuse


class Healthcheck(Table):
    """A command that must succeed before the agent starts."""

    command: NonEmpty
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Count = 3


def _topology(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"\d+(x\d+)+", value):
        raise refuse(f"is {quoted(value)}", "give the chips per dimension, for example 2x4")
    return value


class Tpu(Table):
    """An accelerator slice."""

    type: NonEmpty
    topology: Annotated[str, BeforeValidator(_topology)]


def _transport(value: object) -> object:
    return "streamable-http" if value == "http" else value


_CREDENTIAL = re.compile(r"auth|token|secret|api-?_?key|password|cookie|credential", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}")


class McpServer(Table):
    """A server the agent is told about; nothing here starts it."""

    name: NonEmpty
    transport: Annotated[Literal["sse", "stdio", "streamable-http"], BeforeValidator(_transport)] = "sse"
    url: NonEmpty | None = None
    command: NonEmpty | None = None
    args: tuple[str, ...] = ()
    cwd: str | None = None
    env: Env = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    include_tags: tuple[str, ...] | None = None
    exclude_tags: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.transport == "stdio" and self.command is None:
            raise refuse("is missing", "a stdio server needs the command that starts it", "command")
        if self.transport != "stdio" and self.url is None:
            raise refuse("is missing", f"a server with transport {self.transport} needs its url", "url")
        for name, value in self.headers.items():
            if _CREDENTIAL.search(name) and not _REFERENCE.search(value):
                fix = f'name a variable of the host instead, for example {name} = "${{MY_TOKEN}}"'
                raise refuse(f"holds a literal credential in {name}", fix, "headers")
        return self


class SetupCommand(Table):
    """A command that prepares the sandbox once it is up."""

    command: NonEmpty
    timeout_sec: Seconds = 600.0
    cwd: str | None = None
    env: Env = Field(default_factory=dict)
    user: User | None = None
    service: NonEmpty = "main"
    host_lock: str | None = None
    capture_dir: str | None = None


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class EnvironmentConfig(Table):
    """Where agent and verifier run; None everywhere means the backend's own default, usually no limit."""

    network_mode: NetworkMode = "public"
    allowed_hosts: tuple[Host, ...] | None = None
    blocked_hosts: tuple[Host, ...] | None = None
    blocked_urls: tuple[str, ...] | None = None
    build_timeout_sec: Seconds = 600.0
    docker_image: NonEmpty | None = None
    os: Annotated[Literal["linux", "windows"], BeforeValidator(_lower)] = "linux"
    cpus: Cpus | None = None
    memory_mb: Megabytes | None = None
    storage_mb: Megabytes | None = None
    gpus: Count | None = None
    gpu_types: tuple[str, ...] | None = None
    tpu: Tpu | None = None
    mcp_servers: tuple[McpServer, ...] = ()
    env: Env = Field(default_factory=dict)
    skills_dir: NonEmpty | None = None
    healthcheck: Healthcheck | None = None
    workdir: NonEmpty | None = None
    setup_commands: tuple[SetupCommand, ...] = ()

    @model_validator(mode="after")
    def _hosts_match_mode(self) -> Self:
        check_hosts(self.network_mode, self.allowed_hosts)
        for key in ("blocked_hosts", "blocked_urls"):
            if getattr(self, key) is not None and self.network_mode != "denylist":
                raise refuse("needs a deny list", 'add network_mode = "denylist" or remove it', key)
        return self


def check_hosts(mode: str | None, hosts: tuple[str, ...] | None) -> None:
    """Refuse hosts that the network mode would ignore."""
    if hosts is not None and mode != "allowlist":
        raise refuse("needs an allow list", 'add network_mode = "allowlist" or remove it', "allowed_hosts")
