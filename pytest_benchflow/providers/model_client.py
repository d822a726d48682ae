"""What whoever wants a model says about itself: an agent, a judge, a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pytest_benchflow.providers.providers import WireProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialOption:
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
class GenericVariables:
    """Variables that give access to whatever model the agent is to use."""

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class HomeFile:
    """A file the agent finds in its home directory; only its user may read it."""

    path: str
    """Relative to the home directory."""
    content: bytes = field(repr=False)
    variable: str | None = None
    """Variable that is to hold its absolute path."""


class ModelClient(Protocol):
    """What has to be known of a client to find its way to a model; the manifest of an agent is one."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def provider(self) -> str | None:
        """Its own provider, used for models whose name tells no other."""

    @property
    def protocols(self) -> Mapping[WireProtocol, object]:
        """What it speaks with models."""

    @property
    def key_env(self) -> str | None:
        """Variable that takes the key, unless a credential of its own has another name."""

    @property
    def credentials(self) -> tuple[CredentialOption, ...]:
        """Ways into its own provider, the best first."""

    @property
    def login(self) -> Login | None:
        """A login on the host."""

    @property
    def generic(self) -> GenericVariables:
        """Variables for whatever model it is to use."""

    @property
    def requires_env(self) -> tuple[str, ...]:
        """Variables that have to be set."""
