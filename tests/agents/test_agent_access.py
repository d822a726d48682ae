"""From a manifest and the variables around to what an agent gets: which credential, in which form, and nothing else."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pytest_benchflow.agents import AgentManifest, AgentRequest, ModelAccess, parse_manifest
from pytest_benchflow.agents.access import resolve_access
from pytest_benchflow.agents.custom import raw_manifest
from pytest_benchflow.agents.registry import BUILT_IN, built_in_manifest
from pytest_benchflow.core.errors import CredentialsError, UsageError
from pytest_benchflow.providers import HomeFile
from pytest_benchflow.providers.credentials import secrets_in
from pytest_benchflow.providers.variables import Sources

KEY = "sk-0123456789abcdef"
TOKEN = "tok-0123456789abcdef"
manifest = cache(built_in_manifest)


def access(
    agent: str | AgentManifest,
    model: str | None = None,
    *,
    explicit: dict[str, str] | None = None,
    dotenv: dict[str, str] | None = None,
    home: Path | None = None,
    effort: str | None = None,
    **environ: str,
) -> ModelAccess:
    found = manifest(agent) if isinstance(agent, str) else agent
    request = AgentRequest(model, effort, explicit or {})
    sources = Sources(request.env, dotenv or {}, environ, home or Path("/nonexistent"))
    return resolve_access(found, request, sources)


def refusal(agent: str | AgentManifest, model: str | None = None, **environ: str) -> str:
    with pytest.raises(CredentialsError) as error:
        access(agent, model, **environ)
    return str(error.value)


def content(found: ModelAccess, path: str) -> str:
    return next(file.content.decode() for file in found.files if file.path == path)


@pytest.mark.parametrize(
    ("explicit", "dotenv", "environ", "used"),
    [
        ("e", "d", "o", "e"),
        ("", "d", "o", "d"),
        (None, "d", "o", "d"),
        (None, " ", "o", "o"),
        ("  ", None, "o", "o"),
        (None, None, "o", "o"),
    ],
)
def test_given_on_purpose_before_dotenv_before_the_environment(
    explicit: str | None, dotenv: str | None, environ: str, used: str
) -> None:
    def source(value: str | None) -> dict[str, str]:
        return {} if value is None else {"GEMINI_API_KEY": value}

    found = access("gemini", explicit=source(explicit), dotenv=source(dotenv), **source(environ))
    assert found.env["GEMINI_API_KEY"] == used
    assert found.secrets == {used}


def test_a_better_source_counts_more_than_a_better_name() -> None:
    found = access("claude-agent-acp", explicit={"ANTHROPIC_API_KEY": KEY}, ANTHROPIC_AUTH_TOKEN=TOKEN)
    assert found.env["ANTHROPIC_API_KEY"] == KEY
    assert "ANTHROPIC_AUTH_TOKEN" not in found.env


@pytest.mark.parametrize("name", ["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"])
@pytest.mark.parametrize("agent", ["gemini", "opencode", "openhands"])
def test_the_key_of_gemini_has_three_names(name: str, agent: str) -> None:
    found = access(agent, "gemini-2.5-flash", **{name: KEY})
    given = {*found.env.values(), *(file.content.decode() for file in found.files)}
    assert any(KEY in value for value in given)
    assert found.secrets == {KEY}


@pytest.mark.parametrize(
    ("environ", "passed"),
    [
        ({"ANTHROPIC_API_KEY": KEY}, {"ANTHROPIC_API_KEY": KEY}),
        ({"ANTHROPIC_AUTH_TOKEN": TOKEN, "ANTHROPIC_API_KEY": KEY}, {"ANTHROPIC_AUTH_TOKEN": TOKEN}),
        ({"CLAUDE_CODE_OAUTH_TOKEN": TOKEN}, {"CLAUDE_CODE_OAUTH_TOKEN": TOKEN}),
        ({"CLAUDE_OAUTH_TOKEN": TOKEN}, {"CLAUDE_CODE_OAUTH_TOKEN": TOKEN}),
        ({"CLAUDE_CODE_OAUTH_TOKEN": TOKEN, "ANTHROPIC_API_KEY": KEY}, {"ANTHROPIC_API_KEY": KEY}),
    ],
)
def test_claude_takes_a_token_a_key_or_a_subscription(environ: dict[str, str], passed: dict[str, str]) -> None:
    found = access("claude-agent-acp", **environ)
    assert {name: value for name, value in found.env.items() if value in (KEY, TOKEN)} == passed
    assert found.secrets == {*passed.values()}


def test_codex_takes_a_key_by_two_names_and_is_pointed_by_its_file() -> None:
    found = access("codex-acp", "gpt-5.2", effort="low", CODEX_API_KEY=KEY, OPENAI_BASE_URL="http://here/v1")
    assert found.env["OPENAI_API_KEY"] == KEY
    assert "CODEX_API_KEY" not in found.env
    config = tomllib.loads(content(found, ".codex/config.toml"))
    assert (config["model"], config["model_reasoning_effort"]) == ("gpt-5.2", "low")
    assert config["model_providers"][config["model_provider"]] == {
        "name": "openai",
        "base_url": "http://here/v1",
        "env_key": "OPENAI_API_KEY",
        "wire_api": "responses",
    }
    assert KEY not in content(found, ".codex/config.toml")


def test_a_token_of_codex_is_passed_on_and_needs_no_address() -> None:
    found = access("codex-acp", CODEX_ACCESS_TOKEN=TOKEN)
    assert found.env["CODEX_ACCESS_TOKEN"] == TOKEN
    config = tomllib.loads(content(found, ".codex/config.toml"))
    assert config == {"check_for_update_on_startup": False}


def test_the_login_of_codex_can_be_given_as_text() -> None:
    text = json.dumps({"OPENAI_API_KEY": None, "tokens": {"access_token": "a" * 40, "account_id": "acc"}})
    found = access("codex-acp", CODEX_AUTH_JSON=text)
    assert content(found, ".codex/auth.json") == text
    assert "CODEX_AUTH_JSON" not in found.env
    assert {text, "a" * 40} <= found.secrets


@pytest.mark.parametrize(
    "token", ["CLAUDE_CODE_OAUTH_TOKEN", "CODEX_ACCESS_TOKEN", "CODEX_AUTH_JSON", "CLAUDE_OAUTH_TOKEN"]
)
def test_a_subscription_never_goes_to_another_server(token: str) -> None:
    agent, url = ("claude-agent-acp", "ANTHROPIC_BASE_URL") if "CLAUDE" in token else ("codex-acp", "OPENAI_BASE_URL")
    text = refusal(agent, **{token: TOKEN, url: "http://elsewhere"})
    assert "_API_KEY required for agent" in text
    assert TOKEN not in text


@pytest.mark.parametrize(
    ("agent", "files", "replaced", "method"),
    [
        ("claude-agent-acp", [".claude/.credentials.json"], "ANTHROPIC_API_KEY", None),
        ("codex-acp", [".codex/auth.json"], "OPENAI_API_KEY", None),
        ("gemini", [".gemini/oauth_creds.json", ".gemini/settings.json"], "GEMINI_API_KEY", "oauth-personal"),
    ],
)
def test_a_login_on_the_host_stands_in_for_a_missing_key(
    agent: str, files: list[str], replaced: str, method: str | None, tmp_path: Path
) -> None:
    secret = json.dumps({"x": {"accessToken": TOKEN, "kind": "oauth"}, "refresh_token": "r" * 12})
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(secret)
    found = access(agent, home=tmp_path)
    assert [file.content.decode() for file in found.files if file.path in files] == [secret] * len(files)
    assert found.secrets == {TOKEN, "r" * 12}
    assert found.notes == (f"{agent}: Using host subscription auth (no {replaced} set)",)
    assert found.auth_method == method
    assert replaced not in found.env
    with_key = access(agent, home=tmp_path, **{replaced: KEY})
    assert with_key.if_refused == (
        f"{replaced} was rejected as invalid, but subscription credentials exist in ~/{files[0]}: unset {replaced} to "
        "use them"
    )
    assert access(agent, **{replaced: KEY}).if_refused is None
    assert not [file for file in with_key.files if file.path in files]
    assert with_key.notes == ()


def test_a_login_is_not_used_for_another_provider_or_another_server(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/.credentials.json").write_text(json.dumps({"accessToken": TOKEN}))
    for model, environ in [("zai/glm-5", {}), (None, {"ANTHROPIC_BASE_URL": "http://elsewhere"})]:
        with pytest.raises(CredentialsError):
            access("claude-agent-acp", model, home=tmp_path, **environ)


@pytest.mark.parametrize(
    ("agent", "model", "message"),
    [
        ("gemini", "gemini-2.5-flash", "GEMINI_API_KEY required for model 'gemini-2.5-flash' but not set."),
        ("codex", "gpt-5.2", "OPENAI_API_KEY required for model 'gpt-5.2' but not set."),
        ("claude", "claude-x", "ANTHROPIC_API_KEY required for model 'claude-x' but not set."),
        ("claude", None, "ANTHROPIC_API_KEY required for agent 'claude-agent-acp' but not set."),
        ("opencode", "deepseek/chat", "DEEPSEEK_API_KEY required for model 'deepseek/chat' but not set."),
        ("pi-acp", "openrouter/x/y", "OPENROUTER_API_KEY required for model 'openrouter/x/y' but not set."),
        ("opencode", "zai/glm-5", "ZAI_API_KEY required for model 'zai/glm-5' but not set."),
        ("claude", "aws-bedrock/c", "AWS_BEARER_TOKEN_BEDROCK required for model 'aws-bedrock/c' but not set."),
    ],
)
def test_a_missing_key_is_said_in_the_known_words(agent: str, model: str | None, message: str) -> None:
    name = {"codex": "codex-acp", "claude": "claude-agent-acp"}.get(agent, agent)
    text = refusal(name, model, AWS_REGION="us-east-1")
    option = f"--bf-agent-env {message.split()[0]}=VALUE"
    assert text.startswith(
        f"{message} Pass it explicitly (for example via {option}, or agent_env in Python) or define it in .env."
    )
    assert text.count("agent-env") == 1


def test_a_missing_login_is_mentioned_where_there_could_be_one() -> None:
    assert "no login on this host either: ~/.claude/.credentials.json" in refusal("claude-agent-acp")
    assert "login" not in refusal("claude-agent-acp", "zai/glm-5")


@pytest.mark.parametrize("agent", ["opencode", "openhands", "pi-acp", "openclaw", "copilot", "qwen", "hermes"])
def test_an_agent_without_a_default_model_asks_for_one(agent: str) -> None:
    with pytest.raises(UsageError, match=f"Agent '{agent}' has no default model; pass --bf-model"):
        access(agent, OPENAI_API_KEY=KEY)


@pytest.mark.parametrize(
    ("agent", "environ", "variable"),
    [
        ("gemini", {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": "http://here"}, "GOOGLE_GEMINI_BASE_URL"),
        ("claude-agent-acp", {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://here"}, "ANTHROPIC_BASE_URL"),
        ("qwen", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://here"}, "OPENAI_BASE_URL"),
        ("copilot", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://here"}, "COPILOT_PROVIDER_BASE_URL"),
    ],
)
def test_an_agent_is_pointed_at_another_server_by_variables(agent: str, environ: dict[str, str], variable: str) -> None:
    assert access(agent, "mock-model", **environ).env[variable] == "http://here"
    dotenv = {name: "http://dotenv" for name in environ if name.endswith("URL")}
    assert access(agent, "mock-model", dotenv=dotenv, **environ).env[variable] == "http://dotenv"


def test_an_agents_own_address_is_left_to_it() -> None:
    assert "ANTHROPIC_BASE_URL" not in access("claude-agent-acp", ANTHROPIC_API_KEY=KEY).env
    assert "GOOGLE_GEMINI_BASE_URL" not in access("gemini", GEMINI_API_KEY=KEY).env


def test_the_key_of_another_provider_takes_the_agents_variable() -> None:
    found = access(
        "claude-agent-acp", "zai/glm-5", ZAI_API_KEY=KEY, ANTHROPIC_API_KEY="other", ANTHROPIC_AUTH_TOKEN="x"
    )
    assert found.env["ANTHROPIC_AUTH_TOKEN"] == KEY
    assert found.env["ANTHROPIC_BASE_URL"] == "https://api.z.ai/api/anthropic"
    assert found.env["ANTHROPIC_MODEL"] == "glm-5"
    assert "ANTHROPIC_API_KEY" not in found.env
    assert found.model == "glm-5"


@pytest.mark.parametrize(
    ("agent", "model", "spelled"),
    [
        ("claude-agent-acp", "anthropic/claude-x", "claude-x"),
        ("opencode", "openai/org/m", "benchflow/org/m"),
        ("pi-acp", "m", "benchflow/m"),
        ("hermes", "m", "custom:m"),
        ("qwen", "m", "m"),
    ],
)
def test_a_model_is_spelled_as_the_agent_does(agent: str, model: str, spelled: str) -> None:
    assert access(agent, model, OPENAI_API_KEY=KEY, ANTHROPIC_API_KEY=KEY).model == spelled


@pytest.mark.parametrize(
    ("agent", "model", "full", "notes"),
    [
        ("gemini", "flash", "gemini-3.8-flash", ("gemini: flash stands for gemini-3.8-flash",)),
        (
            "gemini",
            "gemini/pro",
            "gemini-3.1-pro-preview",
            ("gemini: gemini/pro stands for gemini/gemini-3.1-pro-preview",),
        ),
        ("claude-agent-acp", "sonnet", "claude-sonnet-5-5", ("claude-agent-acp: sonnet stands for claude-sonnet-5-5",)),
        ("claude-agent-acp", "claude-haiku-4-5", "claude-haiku-4-5", ()),
        ("claude-agent-acp", "zai/sonnet", "sonnet", ()),
    ],
)
def test_a_short_name_is_resolved_before_the_agent_would(
    agent: str, model: str, full: str, notes: tuple[str, ...]
) -> None:
    keys = {"GEMINI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "ZAI_API_KEY": KEY}
    found = access(agent, model, **keys)
    assert (found.model, found.notes) == (full, notes)


@pytest.mark.parametrize(
    ("model", "environ", "npm", "url"),
    [
        ("m", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://h/v1"}, "@ai-sdk/openai-compatible", "http://h/v1"),
        ("claude-x", {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://h"}, "@ai-sdk/anthropic", "http://h/v1"),
        ("gemini-x", {"GEMINI_API_KEY": KEY}, "@ai-sdk/google", "https://generativelanguage.googleapis.com/v1beta"),
    ],
)
def test_opencode_speaks_with_each_provider_in_its_protocol(
    model: str, environ: dict[str, str], npm: str, url: str
) -> None:
    found = access("opencode", model, **environ)
    config = json.loads(content(found, ".config/opencode/opencode.json"))
    provider = config["provider"]["benchflow"]
    assert (provider["npm"], provider["options"]) == (npm, {"baseURL": url, "apiKey": "{env:BF_API_KEY}"})
    assert (config["model"], config["small_model"]) == (f"benchflow/{model}", f"benchflow/{model}")
    assert found.env["BF_API_KEY"] == KEY


@pytest.mark.parametrize("agent", BUILT_IN)
def test_only_what_the_agent_needs_goes_in(agent: str) -> None:
    noise = {"HOME": "/root", "AWS_SECRET_ACCESS_KEY": "s" * 20, "GITHUB_TOKEN": "g" * 20, "PATH": "/bin"}
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "a" * 20, "GEMINI_API_KEY": "q" * 20, "XAI_API_KEY": "x" * 20}
    more = {"KIMI_API_KEY": "k" * 20, "KIMI_BASE_URL": "http://k", "MISTRAL_API_KEY": "m" * 20}
    model = None if agent in ("claude-agent-acp", "codex-acp") else "mock-model"
    found = access(agent, model, **noise, **keys, **more)
    assert len(found.secrets) == 1
    inside = " ".join([*found.env.values(), *(file.content.decode() for file in found.files)])
    others = {*noise.values(), *keys.values(), *more.values()} - found.secrets - {"http://k", "/bin", "/root"}
    assert not [value for value in others if value in inside]
    assert not noise.keys() & found.env.keys()
    (secret,) = found.secrets
    assert secret in inside


def test_what_is_given_on_purpose_goes_in_and_wins() -> None:
    explicit = {"GEMINI_MODEL": "other", "MY_TOKEN": "t" * 12, "MAX_TOKENS": "1000", "EMPTY": "", "GEMINI_API_KEY": ""}
    found = access("gemini", explicit=explicit, GEMINI_API_KEY=KEY)
    assert found.env["GEMINI_MODEL"] == "other"
    assert found.env["GEMINI_API_KEY"] == KEY
    assert (found.env["MY_TOKEN"], found.env["EMPTY"]) == ("t" * 12, "")
    assert found.secrets == {KEY, "t" * 12}


def test_a_key_in_the_agents_own_variable_given_on_purpose_is_enough() -> None:
    found = access("claude-agent-acp", "zai/glm-5", explicit={"ANTHROPIC_AUTH_TOKEN": KEY})
    assert found.env["ANTHROPIC_AUTH_TOKEN"] == KEY


@pytest.mark.parametrize(
    ("model", "explicit", "environ", "llm"),
    [
        ("openai/m", {}, {"OPENAI_API_KEY": KEY, "LLM_API_KEY": "other"}, ("openai/m", KEY, None)),
        ("openai/m", {"LLM_API_KEY": KEY}, {"OPENAI_API_KEY": "other"}, ("openai/m", KEY, None)),
        ("m", {}, {"LLM_API_KEY": KEY, "LLM_BASE_URL": "http://h/v1"}, ("openai/m", KEY, "http://h/v1")),
        (None, {}, {"LLM_API_KEY": KEY, "LLM_MODEL": "anthropic/c"}, None),
        (None, {"LLM_API_KEY": KEY}, {"LLM_MODEL": "anthropic/c"}, ("anthropic/c", KEY, None)),
    ],
)
def test_openhands_takes_general_variables_too(
    model: str | None, explicit: dict[str, str], environ: dict[str, str], llm: tuple[str, str, str | None] | None
) -> None:
    if llm is None:
        with pytest.raises(CredentialsError, match="ANTHROPIC_API_KEY required for model 'anthropic/c'"):
            access("openhands", model, explicit=explicit, **environ)
        return
    settings = json.loads(content(access("openhands", model, explicit=explicit, **environ), _SETTINGS))
    for part in (settings["llm"], settings["condenser"]["llm"]):
        assert (part["model"], part["api_key"]) == llm[:2]
        assert llm[2] in (None, part["base_url"])


_SETTINGS = ".openhands/agent_settings.json"


def test_azure_is_reached_with_its_version() -> None:
    environ = {"AZURE_API_KEY": KEY, "AZURE_API_ENDPOINT": "https://res.openai.azure.com"}
    config = tomllib.loads(content(access("codex-acp", "azure-foundry-openai/gpt-5", **environ), ".codex/config.toml"))
    provider = config["model_providers"]["benchflow"]
    assert provider["base_url"] == "https://res.openai.azure.com/openai/v1"
    assert provider["query_params"] == {"api-version": "preview"}


def test_bedrock_and_vertex_are_claudes_own() -> None:
    found = access("claude-agent-acp", "aws-bedrock/c", AWS_BEARER_TOKEN_BEDROCK=KEY, AWS_DEFAULT_REGION="eu-west-1")
    assert found.env["AWS_BEARER_TOKEN_BEDROCK"] == KEY
    assert (found.env["AWS_REGION"], found.env["CLAUDE_CODE_USE_BEDROCK"]) == ("eu-west-1", "1")
    assert not {"ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"} & found.env.keys()
    with pytest.raises(CredentialsError, match="AWS_REGION or AWS_DEFAULT_REGION required"):
        access("claude-agent-acp", "aws-bedrock/c", AWS_BEARER_TOKEN_BEDROCK=KEY)


@pytest.mark.parametrize(
    ("agent", "model", "switch", "project"),
    [
        ("gemini", "google-vertex/gemini-x", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT"),
        ("claude-agent-acp", "anthropic-vertex/claude-x", "CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_PROJECT_ID"),
    ],
)
def test_vertex_uses_what_gcloud_keeps(agent: str, model: str, switch: str, project: str, tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="GOOGLE_CLOUD_PROJECT required"):
        access(agent, model, home=tmp_path)
    with pytest.raises(CredentialsError, match="gcloud auth application-default login"):
        access(agent, model, home=tmp_path, GOOGLE_CLOUD_PROJECT="p")
    kept = tmp_path / ".config/gcloud/application_default_credentials.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({"client_secret": "c" * 20, "refresh_token": "r" * 20, "type": "authorized_user"}))
    found = access(agent, model, home=tmp_path, GOOGLE_CLOUD_PROJECT="p")
    assert found.files[-1:] == (
        HomeFile(
            ".config/gcloud/application_default_credentials.json", kept.read_bytes(), "GOOGLE_APPLICATION_CREDENTIALS"
        ),
    )
    assert found.env[switch] in ("1", "true")
    assert found.env[project] == "p"
    assert found.secrets == {"c" * 20, "r" * 20}
    elsewhere = tmp_path / "adc.json"
    kept.rename(elsewhere)
    named = access(agent, model, GOOGLE_CLOUD_PROJECT="p", GOOGLE_APPLICATION_CREDENTIALS=str(elsewhere))
    assert named.files == found.files


@pytest.mark.parametrize(
    ("agent", "model", "method"),
    [("gemini", None, "gemini-api-key"), ("qwen", "m", "openai"), ("claude-agent-acp", None, None)],
)
def test_an_agent_authenticates_with_what_it_has(agent: str, model: str | None, method: str | None) -> None:
    keys = {"GEMINI_API_KEY": KEY, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    assert access(agent, model, **keys).auth_method == method


def test_an_effort_is_refused_where_none_can_be_chosen() -> None:
    with pytest.raises(UsageError, match="agent 'gemini' offers no choice of effort; leave --bf-effort out"):
        access("gemini", effort="high", GEMINI_API_KEY=KEY)


def test_variables_that_an_agent_requires_are_passed_on_or_asked_for() -> None:
    mine = parse_manifest({"name": "mine", "launch": ["x"], "requires_env": ["A_KEY", "B"]}, "x")
    found = access(mine, A_KEY=KEY, B="b", C="c")
    assert found.env == {"A_KEY": KEY, "B": "b"}
    assert KEY in found.secrets
    text = refusal(mine, B="b")
    assert text.startswith("A_KEY required for agent 'mine' but not set.")
    assert refusal(mine).count("required for agent 'mine'") == 2


def test_a_raw_command_gets_the_key_of_the_models_provider_if_there_is_one() -> None:
    raw = raw_manifest("my-agent --acp")
    environ = {"GEMINI_API_KEY": KEY, "OPENAI_API_KEY": "o" * 20, "GOOGLE_GEMINI_BASE_URL": "http://h"}
    found = access(raw, "gemini-2.5-flash", **environ)
    assert found.env == {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": "http://h"}
    assert (found.model, found.secrets) == ("gemini-2.5-flash", {KEY})
    assert access(raw, "whatever", **environ).env == {}
    assert access(raw, "openai/gpt-5").model == "openai/gpt-5"
    assert access(raw).env == {}


def test_what_is_secret_in_a_login_is_known_by_its_name_or_its_look() -> None:
    kept = {"token": "t" * 8, "id": "x" * 32, "url": "https://a.example/" + "y" * 40, "kind": "oauth", "token_n": 3}
    assert {*secrets_in(json.dumps({"a": [kept]}).encode())} == {"t" * 8, "x" * 32}
    assert [*secrets_in(b"plain text token\n")] == ["plain text token"]
    assert [*secrets_in(b"")] == []


def test_a_password_in_an_address_is_a_secret() -> None:
    found = access("qwen", "m", OPENAI_API_KEY=KEY, OPENAI_BASE_URL="http://user:pass-word@h/v1")
    assert "pass-word" in found.secrets


@pytest.mark.parametrize("agent", BUILT_IN)
def test_no_secret_is_shown_by_accident(agent: str, tmp_path: Path) -> None:
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "XAI_API_KEY"), KEY)
    more = {"KIMI_API_KEY": KEY, "KIMI_BASE_URL": "http://k", "MISTRAL_API_KEY": KEY}
    request = AgentRequest("mock-model", env={"MY_TOKEN": TOKEN})
    sources = Sources(request.env, {}, {**keys, **more}, tmp_path)
    found = resolve_access(manifest(agent), request, sources)
    assert {KEY, TOKEN} <= found.secrets
    for thing in (found, request, sources, replace(found, model="x"), found.files):
        assert KEY not in f"{thing!r} {thing!s}"
        assert TOKEN not in f"{thing!r} {thing!s}"
