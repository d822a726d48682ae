"""Who serves a model: the prefix of its name chooses provider, protocol and address. Only data and pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from pytest_benchflow.core.errors import CredentialsError

WireProtocol = Literal[
    "anthropic-messages",
    "openai-completions",
    "openai-responses",
    "gemini",
    "vertex-gemini",
    "vertex-anthropic",
    "bedrock",
]
Lookup = Callable[[str], str | None]
"""Return the value of a variable, None if it is unset or blank."""

_VARIABLE = re.compile(r"\{([A-Z_]+)\}")
_AZURE_HOST = re.compile(r"([a-z0-9][a-z0-9-]*)\.(?:openai\.azure|services\.ai\.azure|cognitiveservices\.azure)\.com")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One place that serves models."""

    name: str
    endpoints: Mapping[WireProtocol, str]
    """Addresses by protocol; `{VARIABLE}` stands for a variable of the environment."""
    key: str | None = None
    """Variable that holds the key; None means that it takes none of that kind."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """What variables are where nothing else is said."""
    other_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Other spellings of variables, tried after the first."""
    prefixes: tuple[str, ...] = ()
    """Other prefixes than its name."""
    models: tuple[str, ...] = ()
    """How names of models begin that need no prefix."""

    def value(self, variable: str, look: Lookup) -> str | None:
        """Return a variable, by any of its names, or its default."""
        values = (look(name) for name in (variable, *self.other_names.get(variable, ())))
        return next((value for value in values if value), None) or self.defaults.get(variable)

    def key_names(self) -> tuple[str, ...]:
        """Return every variable that may hold the key."""
        return () if self.key is None else (self.key, *self.other_names.get(self.key, ()))


_CHAT: WireProtocol = "openai-completions"
_RESPONSES: WireProtocol = "openai-responses"
_MESSAGES: WireProtocol = "anthropic-messages"


def _compatible(name: str, variable: str, *, key: str | None = None, default: str | None = None) -> Provider:
    """Return a provider that serves the OpenAI chat API at `<VARIABLE>_BASE_URL`."""
    base = f"{variable}_BASE_URL"
    return Provider(
        name=name,
        endpoints={_CHAT: f"{{{base}}}"},
        key=key or f"{variable}_API_KEY",
        defaults={} if default is None else {base: default},
    )


def _also(provider: Provider, prefix: str, own: str, other: str) -> Provider:
    names = {f"{own}_{part}": (f"{other}_{part}",) for part in ("API_KEY", "BASE_URL")}
    return Provider(
        name=provider.name,
        endpoints=provider.endpoints,
        key=provider.key,
        defaults=provider.defaults,
        other_names=names,
        prefixes=(prefix,),
    )


_AZURE = {"AZURE_API_VERSION": "preview"}
_VERTEX = "https://aiplatform.googleapis.com/v1/projects/{GOOGLE_CLOUD_PROJECT}/locations/{GOOGLE_CLOUD_LOCATION}"
_DOUBAO = "{DOUBAO_VOLCES_BASE_URL}"

PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            name="openai",
            endpoints={_CHAT: "{OPENAI_BASE_URL}", _RESPONSES: "{OPENAI_BASE_URL}"},
            key="OPENAI_API_KEY",
            defaults={"OPENAI_BASE_URL": "https://api.openai.com/v1"},
            models=("gpt", "o1", "o3", "o4"),
        ),
        Provider(
            name="us-openai",
            endpoints={_CHAT: "https://us.api.openai.com/v1", _RESPONSES: "https://us.api.openai.com/v1"},
            key="OPENAI_API_KEY",
        ),
        Provider(
            name="anthropic",
            endpoints={_MESSAGES: "{ANTHROPIC_BASE_URL}"},
            key="ANTHROPIC_API_KEY",
            defaults={"ANTHROPIC_BASE_URL": "https://api.anthropic.com"},
            models=("claude", "haiku", "sonnet", "opus"),
        ),
        Provider(
            name="gemini",
            endpoints={"gemini": "{GOOGLE_GEMINI_BASE_URL}", _CHAT: "{GOOGLE_GEMINI_BASE_URL}/v1beta/openai"},
            key="GEMINI_API_KEY",
            defaults={"GOOGLE_GEMINI_BASE_URL": "https://generativelanguage.googleapis.com"},
            other_names={"GEMINI_API_KEY": ("GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY")},
            models=("gemini",),
        ),
        Provider(
            name="azure-foundry-openai",
            endpoints={
                _CHAT: "https://{AZURE_RESOURCE}.openai.azure.com/openai/v1",
                _RESPONSES: "https://{AZURE_RESOURCE}.openai.azure.com/openai/v1",
            },
            key="AZURE_API_KEY",
            defaults=_AZURE,
        ),
        Provider(
            name="azure-foundry-anthropic",
            endpoints={_MESSAGES: "https://{AZURE_RESOURCE}.services.ai.azure.com/anthropic"},
            key="AZURE_API_KEY",
        ),
        Provider(
            name="google-vertex", endpoints={"vertex-gemini": _VERTEX}, defaults={"GOOGLE_CLOUD_LOCATION": "global"}
        ),
        Provider(
            name="anthropic-vertex",
            endpoints={"vertex-anthropic": _VERTEX},
            defaults={"GOOGLE_CLOUD_LOCATION": "global"},
        ),
        Provider(
            name="aws-bedrock",
            endpoints={"bedrock": "https://bedrock-runtime.{AWS_REGION}.amazonaws.com"},
            key="AWS_BEARER_TOKEN_BEDROCK",
            other_names={"AWS_REGION": ("AWS_DEFAULT_REGION",)},
        ),
        Provider(
            name="zai",
            endpoints={_CHAT: "{ZAI_BASE_URL}/api/paas/v4", _MESSAGES: "{ZAI_BASE_URL}/api/anthropic"},
            key="ZAI_API_KEY",
            defaults={"ZAI_BASE_URL": "https://api.z.ai"},
        ),
        Provider(
            name="zai-coding",
            endpoints={_CHAT: "{ZAI_BASE_URL}/api/coding/paas/v4"},
            key="ZAI_API_KEY",
            defaults={"ZAI_BASE_URL": "https://api.z.ai"},
        ),
        _compatible("deepseek", "DEEPSEEK", default="https://api.deepseek.com/v1"),
        _compatible("glm", "GLM"),
        _also(_compatible("kimi", "KIMI"), "moonshot", "KIMI", "MOONSHOT"),
        _compatible("minimax", "MINIMAX"),
        _compatible("hunyuan", "HUNYUAN"),
        _compatible("qwen-dashscope", "QWEN"),
        _also(_compatible("xiaomi", "XIAOMI"), "mimo", "XIAOMI", "MIMO"),
        Provider(name="doubao-seed-2-lite", endpoints={_CHAT: _DOUBAO}, key="DOUBAO_SEED_2_LITE_API_KEY"),
        Provider(name="doubao-seed-2-pro", endpoints={_CHAT: _DOUBAO}, key="DOUBAO_SEED_2_PRO_API_KEY"),
        _compatible("openrouter", "OPENROUTER", default="https://openrouter.ai/api/v1"),
        Provider(name="github-models", endpoints={_CHAT: "https://models.github.ai/inference"}, key="GITHUB_TOKEN"),
        Provider(
            name="vllm",
            endpoints={_CHAT: "{BF_PROVIDER_BASE_URL}", _RESPONSES: "{BF_PROVIDER_BASE_URL}"},
            key="OPENAI_API_KEY",
            other_names={"BF_PROVIDER_BASE_URL": ("BENCHFLOW_PROVIDER_BASE_URL",)},
        ),
        Provider(
            name="litellm",
            endpoints=dict.fromkeys((_CHAT, _RESPONSES, _MESSAGES), "{LITELLM_BASE_URL}"),
            key="LITELLM_API_KEY",
        ),
        Provider(
            name="xai",
            endpoints={_CHAT: "{XAI_BASE_URL}", _RESPONSES: "{XAI_BASE_URL}"},
            key="XAI_API_KEY",
            defaults={"XAI_BASE_URL": "https://api.x.ai/v1"},
            models=("grok",),
        ),
        _compatible("mistral", "MISTRAL", default="https://api.mistral.ai/v1"),
    )
}

_BY_PREFIX = {prefix: provider for provider in PROVIDERS.values() for prefix in (provider.name, *provider.prefixes)}


def split_model(model: str) -> tuple[Provider | None, str]:
    """Return the provider that a model's prefix names, and the rest; any other prefix is part of the name."""
    prefix, slash, rest = model.partition("/")
    provider = _BY_PREFIX.get(prefix) if slash and rest else None
    return (None, model) if provider is None else (provider, rest)


def provider_of_bare(model: str) -> Provider | None:
    """Return the provider whose models are called like this one."""
    name = model.lower()
    return next((provider for provider in PROVIDERS.values() if name.startswith(provider.models)), None)


def base_url(provider: Provider, protocol: WireProtocol, model: str | None, look: Lookup) -> str:
    """Return the provider's address for a protocol; a variable that is missing is an error that names it."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        text = _azure_resource(look) if name == "AZURE_RESOURCE" else provider.value(name, look)
        if text is None:
            raise CredentialsError(_missing(provider, name, model))
        return text.rstrip("/")

    return at_root(_VARIABLE.sub(value, provider.endpoints[protocol]), protocol)


def usual_url(provider: Provider, protocol: WireProtocol) -> str | None:
    """Return the provider's address where the environment says nothing, None if it has none."""
    try:
        return base_url(provider, protocol, None, lambda name: None)
    except CredentialsError:
        return None


def at_root(url: str, protocol: WireProtocol) -> str:
    """Return a base URL without the version that clients of the protocol add themselves."""
    tail = {"anthropic-messages": "/v1", "gemini": "/v1beta"}.get(protocol)
    return url.rstrip("/").removesuffix(tail) if tail else url.rstrip("/")


def _missing(provider: Provider, variable: str, model: str | None) -> str:
    if variable == "GOOGLE_CLOUD_PROJECT":
        return f"GOOGLE_CLOUD_PROJECT required for Vertex model {model!r} but not set."
    if variable == "AWS_REGION":
        return f"AWS_REGION or AWS_DEFAULT_REGION required for Bedrock model {model!r} but not set."
    named = "AZURE_API_ENDPOINT" if variable == "AZURE_RESOURCE" else variable
    return f"Provider {provider.name!r} for model {model!r} requires {named} to build the provider base URL."


def _azure_resource(look: Lookup) -> str | None:
    """Return the name of the Azure resource: given, or the first label of its endpoint's host."""
    endpoint = look("AZURE_API_ENDPOINT")
    if endpoint is None:
        return look("AZURE_RESOURCE")
    host = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}").hostname or ""
    match = _AZURE_HOST.fullmatch(host)
    if match is None:
        raise CredentialsError(
            f"AZURE_API_ENDPOINT is {endpoint!r}", advice="give https://RESOURCE.openai.azure.com as in the portal"
        )
    return match[1]
