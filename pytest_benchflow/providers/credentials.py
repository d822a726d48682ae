"""Credentials for a provider: a key, a token, or a login on the host. Only what is used is passed on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_benchflow.core.errors import CredentialsError
from pytest_benchflow.core.secrets import SHORTEST_SECRET, is_secret_name
from pytest_benchflow.providers.model_client import CredentialOption, HomeFile, Login, ModelClient
from pytest_benchflow.providers.routes import ModelRoute
from pytest_benchflow.providers.variables import Sources

#: Long enough to be no word, and without what addresses and sentences have.
_RANDOM = re.compile(r"[A-Za-z0-9_\-.+/=~|]{32,}")


@dataclass(frozen=True, slots=True)
class HostLogin:
    """The files of a login."""

    files: tuple[HomeFile, ...]
    secrets: frozenset[str]


def find_login(login: Login, home: Path) -> HostLogin | None:
    """Return the login if its telling file is there."""
    if not (home / login.detect).is_file():
        return None
    files = []
    for path in login.files:
        try:
            files.append(HomeFile(path, (home / path).read_bytes()))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CredentialsError(f"the login file {home / path} cannot be read: {error.strerror}") from None
    return HostLogin(tuple(files), frozenset(secret for file in files for secret in secrets_in(file.content)))


def secrets_in(content: bytes) -> Iterator[str]:
    """Yield what must not be shown of a file: values with telling names, long random ones, or all of it."""
    text = content.decode("utf-8", "replace").strip()
    try:
        yield from _secret_leaves("", json.loads(text))
    except ValueError:
        if text:
            yield text


def _secret_leaves(name: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _secret_leaves(str(key), item)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_leaves(name, item)
    elif isinstance(value, str) and (
        (is_secret_name(name) and len(value) >= SHORTEST_SECRET) or _RANDOM.fullmatch(value) is not None
    ):
        yield value


_ADC = ".config/gcloud/application_default_credentials.json"
_ADC_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential that was chosen, and how it goes in."""

    api_key: str | None = field(default=None, repr=False)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    files: tuple[HomeFile, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    auth_method: str | None = None
    note: str | None = None
    if_refused: str | None = None


def find_credential(client: ModelClient, route: ModelRoute, sources: Sources) -> Credential:
    """Return the best credential there is for a route; none is an error that says how to give one."""
    if route.protocol in ("vertex-gemini", "vertex-anthropic"):
        return _application_default(route, sources)
    for credential in _candidates(client, route, sources):
        if credential is not None:
            return replace(credential, if_refused=_instead(client, route, credential, sources))
    raise CredentialsError(missing_text(client, route))


def required_variables(client: ModelClient, sources: Sources) -> dict[str, str]:
    """Return the variables that an agent cannot do without."""
    values = {name: sources.look(name) for name in client.requires_env}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise CredentialsError(" ".join(_text(name, f"agent {client.name!r}") for name in missing))
    return {name: value for name, value in values.items() if value is not None}


def missing_text(client: ModelClient, route: ModelRoute) -> str:
    """Say which variable is missing, for what, and where it can be given."""
    own = client.provider == route.provider.name
    key = route.provider.key or (client.credentials[0].env if client.credentials else "a key")
    text = _text(key, f"model {route.asked!r}" if route.asked else f"agent {client.name!r}")
    if own and client.login is not None and route.is_usual:
        text += f" There is no login on this host either: ~/{client.login.detect} does not exist."
    return text


def _text(key: str, what: str) -> str:
    return (
        f"{key} required for {what} but not set. Pass it explicitly (for example via --bf-agent-env {key}=VALUE, or "
        "agent_env in Python) or define it in .env."
    )


def _candidates(client: ModelClient, route: ModelRoute, sources: Sources) -> Iterator[Credential | None]:
    """Yield what there is, the best first."""
    own = client.provider == route.provider.name
    generic = client.generic.api_key
    for name in (generic, client.key_env):
        yield _key(client.key_env, sources.explicit_value(name))
    if own and client.credentials:
        yield _of_credentials(client, route, sources)
    else:
        pair = sources.first(route.provider.key_names())
        yield _key(client.key_env, None if pair is None else pair[1])
    if generic and not route.by_prefix:
        yield _key(client.key_env, sources.look(generic))
    if own and route.is_usual:
        yield _of_login(client, route, sources)


def _key(variable: str | None, value: str | None) -> Credential | None:
    """Return a key, in the variable that the agent takes it from, if any."""
    if value is None:
        return None
    return Credential(value, {} if variable is None else {variable: value}, (), frozenset({value}))


def _of_credentials(client: ModelClient, route: ModelRoute, sources: Sources) -> Credential | None:
    """Return the agent's best credential for its own provider."""
    ways: dict[str, CredentialOption] = {}
    for way in client.credentials:
        # A token or a file of a subscription belongs to the provider and to nobody else.
        if way.kind == "key" or route.is_usual:
            ways |= {name: way for name in (way.env, *way.aliases) if name not in ways}
    pair = sources.first(ways)
    if pair is None:
        return None
    way, value = ways[pair[0]], pair[1]
    if way.kind == "key":
        return Credential(value, {way.env: value}, (), frozenset({value}), way.auth_method)
    if way.path is None:
        return Credential(None, {way.env: value}, (), frozenset({value}), way.auth_method)
    content = value.encode("utf-8", "surrogateescape")
    secrets = frozenset({value, *secrets_in(content)})
    return Credential(None, {}, (HomeFile(way.path, content),), secrets, way.auth_method)


def _instead(client: ModelClient, route: ModelRoute, credential: Credential, sources: Sources) -> str | None:
    """Say what could be used in place of a key that hides a login."""
    own = client.provider == route.provider.name and route.is_usual
    if credential.api_key is None or client.login is None or not own:
        return None
    if not (sources.home / client.login.detect).is_file():
        return None
    name = next(iter(credential.env), route.provider.key)
    return (
        f"{name} was rejected as invalid, but subscription credentials exist in ~/{client.login.detect}: "
        f"unset {name} to use them"
    )


def _of_login(client: ModelClient, route: ModelRoute, sources: Sources) -> Credential | None:
    if client.login is None or (login := find_login(client.login, sources.home)) is None:
        return None
    note = f"{client.name}: Using host subscription auth (no {route.provider.key} set)"
    return Credential(None, {}, login.files, login.secrets, client.login.auth_method, note)


def _application_default(route: ModelRoute, sources: Sources) -> Credential:
    """Return the credentials that gcloud keeps for programs."""
    chosen = sources.look(_ADC_VARIABLE)
    path = Path(chosen) if chosen else sources.home / _ADC
    try:
        content = path.read_bytes()
    except OSError:
        raise CredentialsError(
            f"Application Default Credentials required for Vertex model {route.asked!r} but there is no {path}",
            advice="run: gcloud auth application-default login",
        ) from None
    return Credential(None, {}, (HomeFile(_ADC, content, _ADC_VARIABLE),), frozenset(secrets_in(content)))
