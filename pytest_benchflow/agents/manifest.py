"""What there is to know about an agent, as plain data: nothing here does anything."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_benchflow.agents.providers import Protocol
from pytest_benchflow.agents.template import FileFormat

#: Names that templates of a manifest may use: what is known before anything starts, and what only a session knows.
EARLY_NAMES = frozenset(
    {
        "model",
        "base_url",
        "other_base_url",
        "api_key",
        "api",
        "provider",
        "effort",
        "api_version",
        "project",
        "location",
        "region",
    }
)
LATE_NAMES = frozenset({"home", "cwd", "port", "token"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """Where the agent's programs come from: pinned packages on the host, a command in the sandbox, or the image."""

    node: str | None = None
    npm: tuple[str, ...] = ()
    python: str | None = None
    pip: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    """Programs of the packages that are called by name; none means the one that is launched."""
    command: str | None = None
    timeout_sec: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """How the agent is told which model to use."""

    by: Literal["auto", "config-option", "set-model", "env", "flag", "file"] = "auto"
    option: str = "model"
    name: str = "{model}"
    """How the agent spells a model."""
    default: str | None = None
    required: bool = False
    """Whether it cannot start without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortChoice:
    """How the agent is told how hard to think."""

    by: Literal["config-option", "env", "flag", "file"] = "config-option"
    option: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One protocol that the agent speaks with models."""

    api: str | None = None
    """The agent's own word for it, `{api}` in templates."""
    suffix: str = ""
    """What the agent wants at the end of the base URL."""
    auth_method: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A variable that gives access to the agent's own provider."""

    env: str
    aliases: tuple[str, ...] = ()
    kind: Literal["key", "token", "file"] = "key"
    """A key is `{api_key}` in templates; a token is passed on and no more; a file is the content of `path`."""
    path: str | None = None
    auth_method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A login on the host that serves where no variable does; valid only at the provider's own address."""

    detect: str
    """File in the host's home directory that tells of it."""
    files: tuple[str, ...]
    auth_method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generic:
    """Variables that give access to whatever model the agent is to use."""

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTemplate:
    """A file in the agent's home directory."""

    path: str
    format: FileFormat
    content: Mapping[str, object] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A program that has to run beside the agent and listen on `{port}` before it starts."""

    launch: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """For both programs."""
    ready_timeout_sec: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentManifest:
    """One agent that speaks ACP."""

    name: str
    launch: tuple[str, ...]
    """Program and arguments; without packages the program is one of the image."""
    aliases: tuple[str, ...] = ()
    description: str = ""
    protocol: Literal["acp"] = "acp"
    version: str | None = None
    install: Install = Install()
    env: Mapping[str, str] = field(default_factory=dict)
    auth_method: str | None = None
    mode: str | None = None
    """Session mode in which it asks for no permission."""
    model: ModelChoice = ModelChoice()
    effort: EffortChoice | None = None
    """None means that no effort can be chosen."""
    provider: str | None = None
    """Its own provider, used for models whose name tells no other."""
    key_env: str | None = None
    """Variable that takes the key, unless a credential of its own has another name."""
    protocols: Mapping[Protocol, Dialect] = field(default_factory=dict)
    """What it speaks with models; none means that it cannot be pointed anywhere."""
    credentials: tuple[Credential, ...] = ()
    """Ways into its own provider, the best first."""
    login: Login | None = None
    generic: Generic = Generic()
    requires_env: tuple[str, ...] = ()
    """Variables that have to be set, and are passed on."""
    files: tuple[FileTemplate, ...] = ()
    skill_dirs: tuple[str, ...] = ()
    """Where it looks for skills, with $HOME and $WORKSPACE."""
    home_dirs: tuple[str, ...] = ()
    companion: Companion | None = None
    handshake_timeout_sec: float = 120.0

    @property
    def programs(self) -> tuple[str, ...]:
        """What its packages have to provide."""
        return self.install.programs or self.launch[:1]

    @property
    def launch_cmd(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.launch)
