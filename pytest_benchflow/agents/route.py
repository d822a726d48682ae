"""Which provider serves the model an agent is asked for, by which protocol, and where. Pure decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_benchflow.agents.manifest import AgentManifest
from pytest_benchflow.agents.providers import (
    PROVIDERS,
    Protocol,
    Provider,
    at_root,
    base_url,
    provider_of_bare,
    split_model,
    usual_url,
)
from pytest_benchflow.agents.sources import Sources
from pytest_benchflow.errors import UsageError

#: Protocols of clouds, which few agents speak themselves; those that do know the address.
CLOUDS = frozenset({"vertex-gemini", "vertex-anthropic", "bedrock"})


@dataclass(frozen=True, slots=True)
class Route:
    """The way from an agent to its model."""

    provider: Provider
    protocol: Protocol
    asked: str | None
    """The model as the user wrote it."""
    model: str | None
    """The model as the provider calls it."""
    base_url: str
    is_usual: bool
    """Whether this is the provider's own address."""
    by_prefix: bool
    """Whether the name of the model says who serves it."""


def find_route(manifest: AgentManifest, asked: str | None, sources: Sources) -> Route:
    """Return the way to a model; what speaks no common protocol is an error."""
    named, model = (None, None) if asked is None else split_model(asked)
    provider = named or _chosen(manifest, model, sources)
    if provider is None:
        raise UsageError(
            f"no provider is known for model {asked!r} of agent {manifest.name!r}",
            advice="write PROVIDER/MODEL, for example openai/gpt-5.2",
        )
    protocol = next(_common(manifest, provider), None)
    if protocol is None:
        raise _mismatch(manifest, provider, asked)
    usual = usual_url(provider, protocol)
    generic = sources.given(manifest.generic.base_url)
    if generic is None and named is None and manifest.generic.base_url:
        generic = sources.look(manifest.generic.base_url)
    url = at_root(generic, protocol) if generic else base_url(provider, protocol, asked, sources.look)
    return Route(provider, protocol, asked, model, url, url == usual, named is not None)


def _chosen(manifest: AgentManifest, model: str | None, sources: Sources) -> Provider | None:
    """Return who serves a model without a prefix: whose models are called so, else the agent's own provider."""
    own = None if manifest.provider is None else PROVIDERS[manifest.provider]
    likely = None if model is None else provider_of_bare(model)
    if likely is None or next(_common(manifest, likely), None) is not None or own is None:
        return likely or own
    # A server of the user's own may serve any model under the agent's protocol.
    return own if _is_moved(manifest, own, sources) else likely


def _is_moved(manifest: AgentManifest, provider: Provider, sources: Sources) -> bool:
    protocol = next(_common(manifest, provider), None)
    return protocol is not None and base_url(provider, protocol, None, sources.look) != usual_url(provider, protocol)


def _common(manifest: AgentManifest, provider: Provider) -> Iterator[Protocol]:
    """Yield the protocols that both speak, the provider's best first."""
    return (protocol for protocol in provider.endpoints if protocol in manifest.protocols)


def _mismatch(manifest: AgentManifest, provider: Provider, asked: str | None) -> UsageError:
    if provider.endpoints.keys() <= CLOUDS:
        return UsageError(
            f"Provider {provider.name!r} for model {asked!r} needs a model gateway between it and agent "
            f"{manifest.name!r} (extra 'gateway'), which this release does not start itself",
            advice="run LiteLLM and ask for litellm/MODEL with LITELLM_BASE_URL and LITELLM_API_KEY",
        )
    return UsageError(
        f"Agent {manifest.name!r} speaks {', '.join(manifest.protocols)}, but provider {provider.name!r} for model "
        f"{asked!r} supports only: {', '.join(provider.endpoints)}",
        advice="choose another agent or another provider",
    )
