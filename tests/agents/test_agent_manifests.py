"""Manifests: what comes with the package, and what is said about one that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_benchflow.agents import AgentManifest, parse_manifest, read_manifest
from pytest_benchflow.agents.registry import BUILT_IN, built_in_manifest
from pytest_benchflow.core.errors import UsageError

MANIFESTS = Path(__file__).parents[2] / "pytest_benchflow" / "agents" / "manifests"
SMALL = {"name": "mine", "launch": ["mine", "--acp"]}


def refused(data: dict[str, object]) -> list[str]:
    with pytest.raises(UsageError) as error:
        parse_manifest(data, "mine.toml")
    return str(error.value).splitlines()


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_manifest_is_valid_and_pinned(name: str) -> None:
    manifest = built_in_manifest(name)
    assert (manifest.name, manifest.aliases) == (name, BUILT_IN[name])
    assert manifest.install.npm or manifest.install.pip
    assert manifest.version is not None
    packages = " ".join((*manifest.install.npm, *manifest.install.pip))
    assert manifest.version in packages
    assert not re.search(r"latest|[\^~*]", packages)
    assert manifest.protocols
    assert manifest.provider is not None
    assert manifest.description
    # What lies in the workspace is seen by the verifier and by `git status`.
    assert manifest.skill_dirs
    assert all(place.startswith("$HOME/.") for place in manifest.skill_dirs)


def test_every_manifest_of_the_package_has_a_name_in_the_table() -> None:
    assert {path.stem for path in MANIFESTS.glob("*.toml")} == {*BUILT_IN}


def test_the_smallest_manifest_is_a_name_and_a_command() -> None:
    manifest = parse_manifest(SMALL, "mine.toml")
    assert manifest.launch == ("mine", "--acp")
    assert manifest.programs == ("mine",)
    assert manifest.launch_cmd == "mine --acp"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lunch": ["x"]}, "mine.toml: lunch is not known; did you mean launch?"),
        ({"install": {"npmm": []}}, "mine.toml: [install] npmm is not known; did you mean npm?"),
        ({"launch": "mine --acp"}, "mine.toml: launch is 'mine --acp'; give a list of strings"),
        ({"launch": []}, "mine.toml: launch is empty; give the program that speaks ACP"),
        ({"version": 1.0}, "mine.toml: version is 1.0; give a string"),
        ({"model": {"by": "magic"}}, "mine.toml: [model] by is 'magic'; give one of auto, config-option, set-model,"),
        ({"model": {"required": "yes"}}, "mine.toml: [model] required is 'yes'; give true or false"),
        ({"protocols": {"openai": {}}}, "mine.toml: [protocols] openai is not known; "),
        ({"protocols": {"gemini": {"sufix": ""}}}, "mine.toml: [protocols.gemini] sufix is not known; did you mean"),
        ({"provider": "opnai"}, "mine.toml: provider 'opnai' is not known; did you mean openai?"),
        ({"env": {"M": "{modle}"}}, "mine.toml: [env] uses {modle}, which is not known; did you mean model?"),
        ({"env": {"M": 1}}, "mine.toml: [env] M is 1; give a string"),
        ({"install": {"node": "22", "npm": ["x"]}}, "mine.toml: [install] npm package 'x' has no version; pin it"),
        ({"install": {"npm": ["x@1"]}}, "mine.toml: [install] node and npm belong together"),
        ({"install": {"python": "3.12", "pip": ["x"]}}, "mine.toml: [install] pip package 'x' has no version"),
        ({"name": "a b"}, "mine.toml: 'a b' cannot name an agent"),
        (
            {"files": [{"path": "../x", "format": "json", "content": {}}]},
            "mine.toml: '../x' is not a path in the home directory",
        ),
        ({"files": [{"path": "x", "format": "ini", "content": {}}]}, "mine.toml: [files] format is 'ini'; give one of"),
        ({"files": [{"path": "x", "format": "json"}]}, "mine.toml: [files] content is missing"),
        ({"quirks": {"notices": ["("]}}, "mine.toml: [quirks] notices '(' is not a regular expression: "),
        ({"quirks": {"reported_model": "x"}}, "mine.toml: [quirks] reported_model 'x' has no group; "),
        ({"quirks": {"errors": [{"update": "x"}]}}, "mine.toml: [quirks.errors] text is missing"),
        ({"credentials": [{"env": "X", "kind": "file"}]}, "mine.toml: [[credentials]] X: path and kind = 'file'"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(change: dict[str, object], message: str) -> None:
    (line,) = refused({**SMALL, **change})
    assert line.startswith(message)


def test_all_problems_are_said_at_once() -> None:
    assert refused({"nam": "x", "version": 3, "install": {"npm": "x"}}) == [
        "mine.toml: nam is not known; did you mean name?",
        "mine.toml: name is missing",
        "mine.toml: launch is missing",
        "mine.toml: version is 3; give a string",
        "mine.toml: [install] npm is 'x'; give a list of strings",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [("name = ", "is not valid TOML: "), (None, "No such file or directory")],
)
def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=re.escape(f"{path}: {message}")):
        read_manifest(str(path))


def test_a_manifest_of_benchflow_says_the_same() -> None:
    manifest = parse_manifest(
        {
            "contract_version": "1.0",
            "name": "theirs",
            "install_cmd": "pip install theirs",
            "launch_cmd": "theirs --acp",
            "requires_env": ["THEIR_KEY"],
            "api_protocol": "anthropic-messages",
            "env_mapping": {"BENCHFLOW_PROVIDER_BASE_URL": "THEIR_URL", "BENCHFLOW_PROVIDER_MODEL": "THEIR_MODEL"},
            "skill_paths": ["$HOME/.theirs/skills"],
            "acp_model_config_id": "llm",
        },
        "manifest.toml",
    )
    assert manifest.launch == ("theirs", "--acp")
    assert manifest.install.command == "pip install theirs"
    assert manifest.env == {"THEIR_URL": "{base_url}", "THEIR_MODEL": "{model}"}
    assert [*manifest.protocols] == ["anthropic-messages"]
    assert (manifest.model.by, manifest.model.option) == ("config-option", "llm")
    assert manifest.skill_dirs == ("$HOME/.theirs/skills",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contract_version": "2.0"}, "contract_version is '2.0'; this version reads 1.x"),
        ({"protocol": "session-factory"}, "protocol 'session-factory' is not known; known: acp"),
        ({"api_protocol": "openai-completion"}, "did you mean openai-completions?"),
        ({"env_mapping": {"BENCHFLOW_PROVIDER_URL": "X"}}, "env_mapping 'URL' is not known"),
        ({"launch_command": "x"}, "launch_command is not known; did you mean launch_cmd?"),
    ],
)
def test_what_is_wrong_with_a_manifest_of_benchflow_is_said_too(change: dict[str, object], message: str) -> None:
    (line,) = refused({"name": "theirs", "launch_cmd": "x", **change})
    assert message in line


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("agent --acp 'a b'", ("agent", "--acp", "a b")),
        ("cd /x && agent", ("bash", "-c", "cd /x && agent")),
        ("KEY=1 agent", ("bash", "-c", "KEY=1 agent")),
        ("agent $HOME", ("bash", "-c", "agent $HOME")),
        ("agent 'open", ("bash", "-c", "agent 'open")),
    ],
)
def test_a_shell_runs_what_needs_one(command: str, argv: tuple[str, ...]) -> None:
    assert parse_manifest({"name": "x", "launch_cmd": command}, "x").launch == argv


def test_manifests_are_data_that_can_be_compared_and_kept() -> None:
    assert built_in_manifest("gemini") == built_in_manifest("gemini")
    assert isinstance(built_in_manifest("gemini"), AgentManifest)
    with pytest.raises(AttributeError):
        built_in_manifest("gemini").name = "x"  # type: ignore[misc]
