"""What agents need, and what of it is missing here; nothing is started and no network is used."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_benchflow.agents.access import resolve_access
from pytest_benchflow.agents.base import AgentRequest
from pytest_benchflow.agents.installation import Installation
from pytest_benchflow.agents.manifest import AgentManifest
from pytest_benchflow.core.errors import BenchflowError, CredentialsError, InstallError
from pytest_benchflow.providers import PROVIDERS, Provider, Sources, base_url

if TYPE_CHECKING:
    from pytest_benchflow.agents.base import Agent
    from pytest_benchflow.agents.bundles.bundle import BundleSpec
    from pytest_benchflow.agents.registry import AgentRegistry
    from pytest_benchflow.tasks import Task


READY = "ready"


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent in a few words."""

    name: str
    aliases: tuple[str, ...] = ()
    protocol: str = "-"
    version: str = "-"
    auth: str = "none"
    here: str = READY
    """`ready`, or what is missing."""


def statuses(registry: AgentRegistry) -> list[AgentStatus]:
    """Return the status of every agent that a registry knows, by name."""
    sources, installed = Sources.here({}), installed_specs()
    described = {manifest.name: manifest for manifest in registry.manifests()}
    return [
        _status(described[name], sources, installed) if name in described else AgentStatus(name)
        for name in registry.names()
    ]


def describe(manifest: AgentManifest) -> Iterator[tuple[str, str]]:
    """Yield everything worth knowing about an agent; of variables only whether they are set."""
    sources = Sources.here({})
    status = _status(manifest, sources, installed_specs())
    yield "agent", manifest.name
    yield "aliases", ", ".join(manifest.aliases)
    yield "description", manifest.description
    yield "protocol", manifest.protocol
    yield "version", status.version
    yield from _install_lines(manifest)
    yield "launch", manifest.launch_cmd
    yield "mode", manifest.mode or ""
    default = f"default {manifest.model.default or 'its own'}"
    yield "model", f"by {manifest.model.by}, {'has to be chosen' if manifest.model.required else default}"
    yield "effort", f"by {manifest.effort.by}" if manifest.effort is not None else "none to choose"
    yield "speaks", ", ".join(manifest.protocols)
    yield "own provider", manifest.provider or ""
    yield from (("variable", f"{name} ({_set(sources, name)})") for name in _variables(manifest))
    if manifest.login is not None:
        exists = (sources.home / manifest.login.detect).is_file()
        yield "host login", f"~/{manifest.login.detect} ({'found' if exists else 'not found'})"
    yield "providers", ", ".join(provider.name for provider in usable_providers(manifest, sources))
    yield "files", ", ".join(f"~/{file.path}" for file in manifest.files)
    yield "skills", ", ".join(manifest.skill_dirs)
    yield "here", status.here


def installed_specs() -> list[BundleSpec]:
    """Return what is installed on this machine."""
    from pytest_benchflow.agents.bundles.store import BundleStore

    try:
        return [bundle.spec for bundle in BundleStore().installed()]
    except InstallError:
        return []


def usable_providers(manifest: AgentManifest, sources: Sources) -> list[Provider]:
    """Return the providers that the agent can speak with and whose key is set."""
    return [provider for provider in PROVIDERS.values() if _is_usable(provider, manifest, sources)]


def _status(manifest: AgentManifest, sources: Sources, installed: Collection[BundleSpec]) -> AgentStatus:
    return AgentStatus(
        manifest.name,
        manifest.aliases,
        manifest.protocol,
        manifest.version or "-",
        _auth(manifest),
        "; ".join(_lacking(manifest, sources, installed)) or _ready(manifest),
    )


def _ready(manifest: AgentManifest) -> str:
    return f"{READY} with --bf-model" if manifest.model.required else READY


def _auth(manifest: AgentManifest) -> str:
    """Say in a few words what lets the agent in."""
    if manifest.requires_env:
        return ", ".join(manifest.requires_env)
    if not manifest.protocols:
        return "what it is given"
    if manifest.model.required or manifest.provider is None:
        return "key of the model's provider"
    key = PROVIDERS[manifest.provider].key or "key of its provider"
    return f"{key} or host login" if manifest.login is not None else key


def _lacking(manifest: AgentManifest, sources: Sources, installed: Collection[BundleSpec]) -> Iterator[str]:
    yield from _missing_access(manifest, sources)
    spec = Installation(manifest).spec
    if spec is not None and spec not in installed:
        yield "not installed yet"


def _missing_access(manifest: AgentManifest, sources: Sources) -> Iterator[str]:
    generic = manifest.generic.api_key
    if manifest.model.required:
        if not usable_providers(manifest, sources) and not (generic and sources.look(generic)):
            own = PROVIDERS[manifest.provider].key if manifest.provider else "OPENAI_API_KEY"
            yield f"no provider's key is set, for example {own}"
        return
    try:
        resolve_access(manifest, AgentRequest(), sources)
    except CredentialsError as error:
        word = error.message.split()[0]
        login = ", no host login" if manifest.login is not None else ""
        yield f"{word} not set{login}" if word.isupper() else error.message
    except BenchflowError as error:
        yield error.message


def _install_lines(manifest: AgentManifest) -> Iterator[tuple[str, str]]:
    install = manifest.install
    yield "packages", ", ".join((*install.npm, *install.pip))
    if install.node is not None:
        yield "runtime", f"node {install.node}"
    if install.python is not None:
        yield "runtime", f"python {install.python}"
    yield "installs by", install.command or ""


def _variables(manifest: AgentManifest) -> list[str]:
    """Return the variables that let the agent in at its own provider, or that it requires."""
    names = [name for way in manifest.credentials for name in (way.env, *way.aliases)]
    if manifest.provider is not None and not names:
        names = [*PROVIDERS[manifest.provider].key_names()]
    if manifest.generic.api_key is not None:
        names.append(manifest.generic.api_key)
    return [*dict.fromkeys((*names, *manifest.requires_env))]


def _set(sources: Sources, name: str) -> str:
    return "set" if sources.look(name) is not None else "not set"


def _is_usable(provider: Provider, manifest: AgentManifest, sources: Sources) -> bool:
    protocol = next((name for name in provider.endpoints if name in manifest.protocols), None)
    if protocol is None or sources.first(provider.key_names()) is None:
        return False
    try:
        base_url(provider, protocol, None, sources.look)
    except CredentialsError:
        return False
    return True


def missing_access(agent: Agent, task: Task, request: AgentRequest) -> BenchflowError | None:
    """Return what an agent lacks to do as it is asked, None if nothing; nothing is started or written for it."""
    try:
        agent.access(task, request)
    except BenchflowError as error:
        return error
    return None
