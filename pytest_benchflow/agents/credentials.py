"""What lets an agent in at its provider: a key, a token, a login on the host. Only what is used is passed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_benchflow.agents.base import HomeFile
from pytest_benchflow.agents.logins import find_login, secrets_in
from pytest_benchflow.agents.manifest import AgentManifest, Credential
from pytest_benchflow.agents.route import Route
from pytest_benchflow.agents.sources import Sources
from pytest_benchflow.errors import CredentialsError

_ADC = ".config/gcloud/application_default_credentials.json"
_ADC_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


@dataclass(frozen=True, slots=True)
class Grant:
    """The credential that was chosen, and how it goes in."""

    api_key: str | None = field(default=None, repr=False)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    files: tuple[HomeFile, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    auth_method: str | None = None
    note: str | None = None
    if_refused: str | None = None


def find_grant(manifest: AgentManifest, route: Route, sources: Sources) -> Grant:
    """Return the best credential there is for a route; none is an error that says how to give one."""
    if route.protocol in ("vertex-gemini", "vertex-anthropic"):
        return _application_default(route, sources)
    for grant in _candidates(manifest, route, sources):
        if grant is not None:
            return replace(grant, if_refused=_instead(manifest, route, grant, sources))
    raise CredentialsError(missing_text(manifest, route))


def required_variables(manifest: AgentManifest, sources: Sources) -> dict[str, str]:
    """Return the variables that an agent cannot do without."""
    found = {name: sources.look(name) for name in manifest.requires_env}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise CredentialsError(" ".join(_text(name, f"agent {manifest.name!r}") for name in missing))
    return {name: value for name, value in found.items() if value is not None}


def missing_text(manifest: AgentManifest, route: Route) -> str:
    """Say which variable is missing, for what, and where it can be given."""
    own = manifest.provider == route.provider.name
    key = route.provider.key or (manifest.credentials[0].env if manifest.credentials else "a key")
    text = _text(key, f"model {route.asked!r}" if route.asked else f"agent {manifest.name!r}")
    if own and manifest.login is not None and route.is_usual:
        text += f" There is no login on this host either: ~/{manifest.login.detect} does not exist."
    return text


def _text(key: str, what: str) -> str:
    return (
        f"{key} required for {what} but not set. Pass it explicitly (for example via --agent-env/agent_env) or define "
        f"it in .env. With pytest the option is --bf-agent-env {key}=VALUE."
    )


def _candidates(manifest: AgentManifest, route: Route, sources: Sources) -> Iterator[Grant | None]:
    """Yield what there is, the best first."""
    own = manifest.provider == route.provider.name
    generic = manifest.generic.api_key
    for name in (generic, manifest.key_env):
        yield _key(manifest.key_env, sources.given(name))
    if own and manifest.credentials:
        yield _of_credentials(manifest, route, sources)
    else:
        found = sources.first(route.provider.key_names())
        yield _key(manifest.key_env, None if found is None else found[1])
    if generic and not route.by_prefix:
        yield _key(manifest.key_env, sources.look(generic))
    if own and route.is_usual:
        yield _of_login(manifest, route, sources)


def _key(variable: str | None, value: str | None) -> Grant | None:
    """Return a key, in the variable that the agent takes it from, if any."""
    if value is None:
        return None
    return Grant(value, {} if variable is None else {variable: value}, (), frozenset({value}))


def _of_credentials(manifest: AgentManifest, route: Route, sources: Sources) -> Grant | None:
    """Return the agent's best credential for its own provider."""
    ways: dict[str, Credential] = {}
    for way in manifest.credentials:
        # A token or a file of a subscription belongs to the provider and to nobody else.
        if way.kind == "key" or route.is_usual:
            ways |= {name: way for name in (way.env, *way.aliases) if name not in ways}
    found = sources.first(ways)
    if found is None:
        return None
    way, value = ways[found[0]], found[1]
    if way.kind == "key":
        return Grant(value, {way.env: value}, (), frozenset({value}), way.auth_method)
    if way.path is None:
        return Grant(None, {way.env: value}, (), frozenset({value}), way.auth_method)
    content = value.encode("utf-8", "surrogateescape")
    secrets = frozenset({value, *secrets_in(content)})
    return Grant(None, {}, (HomeFile(way.path, content),), secrets, way.auth_method)


def _instead(manifest: AgentManifest, route: Route, grant: Grant, sources: Sources) -> str | None:
    """Say what could be used in place of a key that hides a login."""
    own = manifest.provider == route.provider.name and route.is_usual
    if grant.api_key is None or manifest.login is None or not own:
        return None
    if not (sources.home / manifest.login.detect).is_file():
        return None
    name = next(iter(grant.env), route.provider.key)
    return (
        f"{name} was rejected as invalid, but subscription credentials exist in ~/{manifest.login.detect}: "
        f"unset {name} to use them"
    )


def _of_login(manifest: AgentManifest, route: Route, sources: Sources) -> Grant | None:
    if manifest.login is None or (login := find_login(manifest.login, sources.home)) is None:
        return None
    note = f"{manifest.name}: Using host subscription auth (no {route.provider.key} set)"
    return Grant(None, {}, login.files, login.secrets, manifest.login.auth_method, note)


def _application_default(route: Route, sources: Sources) -> Grant:
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
    return Grant(None, {}, (HomeFile(_ADC, content, _ADC_VARIABLE),), frozenset(secrets_in(content)))
