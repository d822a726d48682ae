"""Work out how an agent reaches the model it is asked for: from a manifest and the sources of variables to `Access`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from pytest_benchflow.agents.base import AgentRequest, ModelAccess
from pytest_benchflow.agents.manifest import AgentManifest
from pytest_benchflow.agents.template import Values, fill, fill_env, fill_tree, names_in, render
from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.network import Endpoint
from pytest_benchflow.core.secrets import secret_values
from pytest_benchflow.providers import (
    CLOUDS,
    Credential,
    HomeFile,
    ModelRoute,
    Sources,
    find_credential,
    find_route,
    provider_of_bare,
    required_variables,
    split_model,
)


def resolve_access(manifest: AgentManifest, request: AgentRequest, sources: Sources) -> ModelAccess:
    """Return what the agent gets; what is missing or cannot work is an error before anything starts."""
    if request.effort is not None and manifest.effort is None:
        raise UsageError(f"agent {manifest.name!r} offers no choice of effort", advice="leave --bf-effort out")
    asked = request.model or _generic_model(manifest, sources) or manifest.model.default
    if asked is None and manifest.model.required:
        raise UsageError(f"Agent {manifest.name!r} has no default model", advice="pass --bf-model")
    required = required_variables(manifest, sources)
    if not manifest.protocols:
        return _unguided(manifest, asked, request, sources, required)
    named, asked = asked, _full_name(manifest, asked)
    route = find_route(manifest, asked, sources)
    credential = find_credential(manifest, route, sources)
    dialect = manifest.protocols[route.protocol]
    values = _values(manifest, route, credential, request, sources)
    in_dialect = "api_key" in names_in(dialect.env)
    env = (
        fill_env(manifest.env, values)
        | fill_env(dialect.env, values)
        | ({} if in_dialect else credential.env)
        | required
    )
    return ModelAccess(
        env=_with_explicit(env, request.env),
        files=_files(manifest, values, credential.files),
        secrets=credential.secrets | secret_values(request.env) | {*required.values()} | _url_secrets(route.base_url),
        model=None if route.model is None else fill(manifest.model.name, values),
        notes=tuple(_notes(manifest, named, asked, credential)),
        auth_method=credential.auth_method or dialect.auth_method or manifest.auth_method,
        if_refused=credential.if_refused,
        endpoints=_endpoints({"BASE_URL": route.base_url, **env, **request.env}),
    )


#: How variables are called that lead to a model; other URLs may be those of servers in the sandbox.
_LEADING = ("BASE_URL", "API_BASE", "ENDPOINT")


def _endpoints(variables: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Return the servers that an agent reaches its models at."""
    urls = [value for name, value in variables.items() if name.endswith(_LEADING)]
    return tuple(dict.fromkeys(filter(None, map(Endpoint.of_url, urls))))


def _generic_model(manifest: AgentManifest, sources: Sources) -> str | None:
    return sources.look(manifest.generic.model) if manifest.generic.model else None


def _full_name(manifest: AgentManifest, asked: str | None) -> str | None:
    """Return a model by its full name, where it has the short one that the agent would resolve itself."""
    prefix, slash, name = (asked or "").rpartition("/")
    if prefix not in ("", manifest.provider) or name not in manifest.model.aliases:
        return asked
    return f"{prefix}{slash}{manifest.model.aliases[name]}"


def _notes(manifest: AgentManifest, named: str | None, asked: str | None, credential: Credential) -> Iterator[str]:
    if named != asked:
        yield f"{manifest.name}: {named} stands for {asked}"
    if credential.note is not None:
        yield credential.note


def _values(
    manifest: AgentManifest, route: ModelRoute, credential: Credential, request: AgentRequest, sources: Sources
) -> Values:
    """Return what the placeholders of a manifest stand for."""
    dialect = manifest.protocols[route.protocol]
    at_home = route.protocol in CLOUDS or (route.is_usual and route.provider.name == manifest.provider)
    url = route.base_url if route.base_url.endswith(dialect.suffix) else route.base_url + dialect.suffix
    provider = route.provider
    return {
        "model": route.model,
        "base_url": url,
        "other_base_url": None if at_home else url,
        "api_key": credential.api_key,
        "api": dialect.api,
        "provider": provider.name,
        "effort": request.effort,
        "api_version": provider.value("AZURE_API_VERSION", sources.look) if "azure" in provider.name else None,
        "project": provider.value("GOOGLE_CLOUD_PROJECT", sources.look),
        "location": provider.value("GOOGLE_CLOUD_LOCATION", sources.look),
        "region": provider.value("AWS_REGION", sources.look),
    }


def _files(manifest: AgentManifest, values: Values, granted: Iterable[HomeFile]) -> tuple[HomeFile, ...]:
    """Return the files of the manifest and of the credential, which counts where both have one."""
    files: dict[str, HomeFile] = {}
    for template in manifest.files:
        content = fill_tree(template.content, values)
        if content is not None:
            files[template.path] = HomeFile(template.path, render(content, template.format), template.variable)
    return tuple((files | {file.path: file for file in granted}).values())


def _unguided(
    manifest: AgentManifest, asked: str | None, request: AgentRequest, sources: Sources, required: dict[str, str]
) -> ModelAccess:
    """Return the access of an agent that cannot be told where to go: variables by the names its provider has."""
    provider = None if asked is None else split_model(asked)[0] or provider_of_bare(asked)
    names = [] if provider is None else [*provider.key_names(), *provider.defaults]
    passed = {name: value for name in names if (value := sources.look(name)) is not None}
    keys = set() if provider is None else {passed[name] for name in provider.key_names() if name in passed}
    values: Values = {"model": asked, "effort": request.effort}
    files: dict[str, HomeFile] = {}
    for way in manifest.credentials:
        if way.path is not None and (content := sources.look(way.env)) is not None:
            files[way.path] = HomeFile(way.path, content.encode("utf-8", "surrogateescape"))
            keys.add(content)
    env = _with_explicit(fill_env(manifest.env, values) | passed | required, request.env)
    return ModelAccess(
        env=env,
        files=_files(manifest, values, files.values()),
        secrets=frozenset(keys) | secret_values(request.env) | {*required.values()},
        model=asked,
        auth_method=manifest.auth_method,
        endpoints=_endpoints(env),
    )


def _with_explicit(env: dict[str, str], explicit: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with those given on purpose over them; a blank one changes nothing."""
    return {**explicit, **env, **{name: value for name, value in explicit.items() if value.strip()}}


def _url_secrets(url: str) -> frozenset[str]:
    password = urlsplit(url).password
    return frozenset() if password is None else frozenset({password})
