"""Providers: whom a model's name means, at which address, and what is said when that cannot be."""

from __future__ import annotations

import re
from functools import cache

import pytest

from pytest_benchflow.agents import AgentManifest, AgentRequest
from pytest_benchflow.agents.access import resolve_access
from pytest_benchflow.agents.registry import built_in_manifest
from pytest_benchflow.core.errors import BenchflowError, CredentialsError, UsageError
from pytest_benchflow.providers.providers import (
    PROVIDERS,
    WireProtocol,
    base_url,
    provider_of_bare,
    split_model,
    usual_url,
)
from pytest_benchflow.providers.routes import find_route
from pytest_benchflow.providers.variables import Sources

manifest = cache(built_in_manifest)


def refusal(agent: str | AgentManifest, model: str | None, **environ: str) -> BenchflowError:
    found = manifest(agent) if isinstance(agent, str) else agent
    with pytest.raises(BenchflowError) as error:
        resolve_access(found, AgentRequest(model), Sources(environ=environ))
    return error.value


@pytest.mark.parametrize(
    ("model", "provider", "rest"),
    [
        ("openai/gpt-5.2", "openai", "gpt-5.2"),
        ("openrouter/anthropic/claude-x", "openrouter", "anthropic/claude-x"),
        ("moonshot/kimi-k2", "kimi", "kimi-k2"),
        ("mimo/v2", "xiaomi", "v2"),
        ("zai-coding/glm-5", "zai-coding", "glm-5"),
        ("vllm/org/model", "vllm", "org/model"),
        ("org/model", None, "org/model"),
        ("google/gemma-3", None, "google/gemma-3"),
        ("openai/", None, "openai/"),
        ("gpt-5.2", None, "gpt-5.2"),
    ],
)
def test_only_a_registered_prefix_is_taken_off(model: str, provider: str | None, rest: str) -> None:
    found, name = split_model(model)
    assert (found and found.name, name) == (provider, rest)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gemini-2.5-flash", "gemini"),
        ("gpt-5.2", "openai"),
        ("o1-mini", "openai"),
        ("o3", "openai"),
        ("claude-haiku-4-5", "anthropic"),
        ("haiku", "anthropic"),
        ("sonnet", "anthropic"),
        ("opus", "anthropic"),
        ("grok-4.6", "xai"),
        ("mock-model", None),
    ],
)
def test_some_models_need_no_prefix(model: str, provider: str | None) -> None:
    found = provider_of_bare(model)
    assert (found and found.name) == provider


@pytest.mark.parametrize(
    ("provider", "protocol", "environ", "url"),
    [
        ("openai", "openai-responses", {}, "https://api.openai.com/v1"),
        ("openai", "openai-completions", {"OPENAI_BASE_URL": "http://here:1/v1/"}, "http://here:1/v1"),
        ("us-openai", "openai-completions", {}, "https://us.api.openai.com/v1"),
        ("anthropic", "anthropic-messages", {}, "https://api.anthropic.com"),
        ("anthropic", "anthropic-messages", {"ANTHROPIC_BASE_URL": "http://here:1/v1"}, "http://here:1"),
        ("gemini", "gemini", {"GOOGLE_GEMINI_BASE_URL": "http://here:1"}, "http://here:1"),
        ("gemini", "openai-completions", {}, "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("zai", "openai-completions", {}, "https://api.z.ai/api/paas/v4"),
        ("zai", "anthropic-messages", {}, "https://api.z.ai/api/anthropic"),
        ("zai-coding", "openai-completions", {}, "https://api.z.ai/api/coding/paas/v4"),
        ("deepseek", "openai-completions", {}, "https://api.deepseek.com/v1"),
        ("kimi", "openai-completions", {"KIMI_BASE_URL": "http://k/v1"}, "http://k/v1"),
        ("kimi", "openai-completions", {"MOONSHOT_BASE_URL": "http://m/v1"}, "http://m/v1"),
        ("openrouter", "openai-completions", {}, "https://openrouter.ai/api/v1"),
        ("github-models", "openai-completions", {}, "https://models.github.ai/inference"),
        ("litellm", "openai-responses", {"LITELLM_BASE_URL": "http://l:4000/v1"}, "http://l:4000/v1"),
        ("litellm", "anthropic-messages", {"LITELLM_BASE_URL": "http://l:4000/v1"}, "http://l:4000"),
        ("vllm", "openai-completions", {"BENCHFLOW_PROVIDER_BASE_URL": "http://v/v1"}, "http://v/v1"),
        ("doubao-seed-2-pro", "openai-completions", {"DOUBAO_VOLCES_BASE_URL": "http://d"}, "http://d"),
        (
            "azure-foundry-openai",
            "openai-responses",
            {"AZURE_API_ENDPOINT": "https://my-res.openai.azure.com/"},
            "https://my-res.openai.azure.com/openai/v1",
        ),
        (
            "azure-foundry-openai",
            "openai-completions",
            {"AZURE_API_ENDPOINT": "my-res.services.ai.azure.com"},
            "https://my-res.openai.azure.com/openai/v1",
        ),
        (
            "azure-foundry-anthropic",
            "anthropic-messages",
            {"AZURE_API_ENDPOINT": "https://my-res.openai.azure.com", "AZURE_RESOURCE": "ignored"},
            "https://my-res.services.ai.azure.com/anthropic",
        ),
        ("azure-foundry-openai", "openai-completions", {"AZURE_RESOURCE": "r"}, "https://r.openai.azure.com/openai/v1"),
        (
            "google-vertex",
            "vertex-gemini",
            {"GOOGLE_CLOUD_PROJECT": "p"},
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global",
        ),
        (
            "aws-bedrock",
            "bedrock",
            {"AWS_DEFAULT_REGION": "eu-west-1"},
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
        ),
    ],
)
def test_a_provider_has_an_address(provider: str, protocol: WireProtocol, environ: dict[str, str], url: str) -> None:
    assert base_url(PROVIDERS[provider], protocol, "m", environ.get) == url


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("kimi/k2", "Provider 'kimi' for model 'kimi/k2' requires KIMI_BASE_URL to build the provider base URL."),
        ("glm/x", "Provider 'glm' for model 'glm/x' requires GLM_BASE_URL to build the provider base URL."),
        (
            "qwen-dashscope/q",
            "Provider 'qwen-dashscope' for model 'qwen-dashscope/q' requires QWEN_BASE_URL to build the provider base "
            "URL.",
        ),
        (
            "azure-foundry-openai/gpt",
            "Provider 'azure-foundry-openai' for model 'azure-foundry-openai/gpt' requires AZURE_API_ENDPOINT to build "
            "the provider base URL.",
        ),
    ],
)
def test_a_missing_address_is_said_in_the_known_words(model: str, message: str) -> None:
    error = refusal("opencode", model)
    assert isinstance(error, CredentialsError)
    assert str(error) == message


def test_an_endpoint_that_is_not_azures_is_refused() -> None:
    error = refusal("opencode", "azure-foundry-openai/x", AZURE_API_ENDPOINT="https://example.com")
    assert "AZURE_API_ENDPOINT is 'https://example.com'; give https://RESOURCE.openai.azure.com" in str(error)


def test_protocols_that_do_not_match_are_both_named() -> None:
    error = refusal("codex-acp", "deepseek/chat", DEEPSEEK_API_KEY="k" * 20)
    assert isinstance(error, UsageError)
    assert str(error) == (
        "Agent 'codex-acp' speaks openai-responses, but provider 'deepseek' for model 'deepseek/chat' supports only: "
        "openai-completions; choose another agent or another provider"
    )


@pytest.mark.parametrize("model", ["aws-bedrock/claude", "google-vertex/gemini", "anthropic-vertex/claude"])
def test_what_needs_a_gateway_says_so(model: str) -> None:
    text = str(refusal("opencode", model, AWS_BEARER_TOKEN_BEDROCK="t" * 20, AWS_REGION="r"))
    assert re.search(r"needs a model gateway .*\(extra 'gateway'\).*litellm/MODEL with LITELLM_BASE_URL", text)


def test_an_unknown_model_belongs_to_the_agents_own_provider() -> None:
    for agent, provider in [("gemini", "gemini"), ("claude-agent-acp", "anthropic"), ("opencode", "openai")]:
        assert find_route(manifest(agent), "mock-model", Sources()).provider.name == provider


def test_a_known_model_chooses_its_provider_where_the_agent_can_speak_with_it() -> None:
    assert find_route(manifest("opencode"), "claude-haiku-4-5", Sources()).protocol == "anthropic-messages"
    assert find_route(manifest("pi-acp"), "gemini-2.5-flash", Sources()).protocol == "gemini"
    assert find_route(manifest("qwen"), "gemini-2.5-flash", Sources()).protocol == "openai-completions"


def test_a_server_of_ones_own_may_serve_any_model() -> None:
    with pytest.raises(UsageError, match="speaks openai-responses, but provider 'anthropic'"):
        find_route(manifest("codex-acp"), "claude-haiku-4-5", Sources())
    own = Sources(environ={"OPENAI_BASE_URL": "http://here/v1"})
    route = find_route(manifest("codex-acp"), "claude-haiku-4-5", own)
    assert (route.provider.name, route.model, route.base_url) == ("openai", "claude-haiku-4-5", "http://here/v1")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_is_complete(provider: str) -> None:
    found = PROVIDERS[provider]
    assert found.endpoints
    assert found.key or "vertex" in provider
    for protocol in found.endpoints:
        assert (usual_url(found, protocol) or "https://").startswith("https://")
