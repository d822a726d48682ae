"""Which provider serves the model a client is asked for, by which protocol, and where. Pure decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.providers.model_client import ModelClient
from pytest_benchflow.providers.providers import (
    PROVIDERS,
    Provider,
    WireProtocol,
    at_root,
    base_url,
    provider_of_bare,
    split_model,
    usual_url,
)
from pytest_benchflow.providers.variables import Sources

#: Protocols of clouds, which few agents speak themselves; those that do know the address.
CLOUDS = frozenset({"vertex-gemini", "vertex-anthropic", "bedrock"})


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """The way from an agent to its model."""

    provider: Provider
    protocol: WireProtocol
    asked: str | None
    """The model as the user wrote it."""
    model: str | None
    """The model as the provider calls it."""
    base_url: str
    is_usual: bool
    """Whether this is the provider's own address."""
    by_prefix: bool
    """Whether the name of the model says who serves it."""


def find_route(client: ModelClient, asked: str | None, sources: Sources) -> ModelRoute:
    """Return the way to a model; what speaks no common protocol is an error."""
    named, model = (None, None) if asked is None else split_model(asked)
    provider = named or _chosen(client, model, sources)
    if provider is None:
        raise UsageError(
            f"no provider is known for model {asked!r} of agent {client.name!r}",
            advice="write PROVIDER/MODEL, for example openai/gpt-5.2",
        )
    protocol = next(_common(client, provider), None)
    if protocol is None:
        raise _mismatch(client, provider, asked)
    usual = usual_url(provider, protocol)
    generic = sources.explicit_value(client.generic.base_url)
    if generic is None and named is None and client.generic.base_url:
        generic = sources.look(client.generic.base_url)
    url = at_root(generic, protocol) if generic else base_url(provider, protocol, asked, sources.look)
    return ModelRoute(provider, protocol, asked, model, url, url == usual, named is not None)


def _chosen(client: ModelClient, model: str | None, sources: Sources) -> Provider | None:
    """Return who serves a model without a prefix: whose models are called so, else the agent's own provider."""
    own = None if client.provider is None else PROVIDERS[client.provider]
    likely = None if model is None else provider_of_bare(model)
    if likely is None or next(_common(client, likely), None) is not None or own is None:
        return likely or own
    # A server of the user's own may serve any model under the agent's protocol.
    return own if _is_moved(client, own, sources) else likely


def _is_moved(client: ModelClient, provider: Provider, sources: Sources) -> bool:
    protocol = next(_common(client, provider), None)
    return protocol is not None and base_url(provider, protocol, None, sources.look) != usual_url(provider, protocol)


def _common(client: ModelClient, provider: Provider) -> Iterator[WireProtocol]:
    """Yield the protocols that both speak, the provider's best first."""
    return (protocol for protocol in provider.endpoints if protocol in client.protocols)


def _mismatch(client: ModelClient, provider: Provider, asked: str | None) -> UsageError:
    if provider.endpoints.keys() <= CLOUDS:
        return UsageError(
            f"Provider {provider.name!r} for model {asked!r} needs a model gateway between it and agent "
            f"{client.name!r} (extra 'gateway'), which this release does not start itself",
            advice="run LiteLLM and ask for litellm/MODEL with LITELLM_BASE_URL and LITELLM_API_KEY",
        )
    return UsageError(
        f"Agent {client.name!r} speaks {', '.join(client.protocols)}, but provider {provider.name!r} for model "
        f"{asked!r} supports only: {', '.join(provider.endpoints)}",
        advice="choose another agent or another provider",
    )
