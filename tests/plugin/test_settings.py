"""Settings from the command line, ini keys and `[tool.benchflow]`: what counts, and one line for what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.settings import merge, settings_of
from pytest_benchflow.plugin.options import is_asked_for
from pytest_benchflow.plugin.resolve import AgentChoice, choose_agents, run_settings
from pytest_benchflow.plugin.settings import Override, read_settings
from pytest_benchflow.rollout.config import RolloutConfig
from pytest_benchflow.rollout.settings import RolloutSettings
from pytest_benchflow.tasks import SourceSpec

Read = Callable[..., SimpleNamespace]


@pytest.fixture
def read(pytester: pytest.Pytester) -> Read:
    """Read the settings of a command line, with an ini file or a pyproject.toml beside it."""

    def read_from(*args: str, ini: str = "", toml: str = "") -> SimpleNamespace:
        config = configured(pytester, *args, ini=ini, toml=toml)
        settings = read_settings(config)
        run = run_settings(config, settings, None)
        rollout = RolloutConfig(task_path=Path(), **merge(settings_of(RolloutSettings).values(), *settings.layers))
        agents = choose_agents(settings, run, None)
        return SimpleNamespace(**vars(rollout) | vars(run) | {"agents": agents, "overrides": settings.overrides})

    return read_from


def configured(pytester: pytest.Pytester, *args: str, ini: str = "", toml: str = "") -> pytest.Config:
    if ini:
        pytester.makeini(f"[pytest]\n{ini}")
    if toml:
        pytester.makepyprojecttoml(f'[tool.pytest.ini_options]\nasyncio_mode = "auto"\n{toml}')
    return pytester.parseconfig(*args)


def test_the_defaults(read: Read, pytester: pytest.Pytester) -> None:
    settings = read()
    assert settings.agents == (AgentChoice("oracle"),)
    assert (settings.sandbox, settings.threshold, settings.trials, settings.concurrency) == ("auto", 1.0, 1, None)
    assert settings.jobs_dir == pytester.path / "jobs"
    assert (settings.job_name, settings.json, settings.shard, settings.timeout) == (None, None, None, None)
    assert settings.timeout_multiplier == 1.0
    assert not any((settings.selftest, settings.dry_run, settings.report_only, settings.strict, settings.force_build))


@pytest.mark.parametrize(
    ("args", "agents"),
    [
        (["--bf-agent=nop"], [AgentChoice("nop")]),
        (["--bf-agent=nop,oracle"], [AgentChoice("nop"), AgentChoice("oracle")]),
        (["--bf-agent=nop", "--bf-agent=oracle"], [AgentChoice("nop"), AgentChoice("oracle")]),
        (["--bf-agent= nop , nop"], [AgentChoice("nop")]),
        (["--bf-agent=a", "--bf-model=m"], [AgentChoice("a", ("m",))]),
        (["--bf-agent=a,b", "--bf-model=m"], [AgentChoice("a", ("m",)), AgentChoice("b", ("m",))]),
        (["--bf-agent=a,b", "--bf-model=a=m"], [AgentChoice("a", ("m",)), AgentChoice("b")]),
        (["--bf-agent=a", "--bf-model=m", "--bf-model=n"], [AgentChoice("a", ("m", "n"))]),
        (["--bf-agent=a", "--bf-model=m=x"], [AgentChoice("a", ("m=x",))]),
        (["--bf-selftest"], [AgentChoice("nop"), AgentChoice("oracle")]),
    ],
)
def test_agents_and_their_models(read: Read, args: list[str], agents: list[AgentChoice]) -> None:
    assert read(*args).agents == tuple(agents)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--bf-threshold=high"], "--bf-threshold is 'high'; give a number"),
        (["--bf-threshold=nan"], "--bf-threshold is 'nan'; give a number"),
        (["--bf-threshold=inf"], "--bf-threshold is 'inf'; give a number"),
        (["--bf-threshold="], "--bf-threshold is ''; give a number"),
        (["--bf-trials=0"], "--bf-trials is '0'; give a whole number from 1 up"),
        (["--bf-trials=-1"], "--bf-trials is '-1'; give a whole number from 1 up"),
        (["--bf-trials=1.5"], "--bf-trials is '1.5'; give a whole number from 1 up"),
        (["--bf-trials=many"], "--bf-trials is 'many'; give a whole number from 1 up"),
        (["--bf-trials=10001"], "--bf-trials is '10001'; give at most 10000"),
        (["--bf-concurrency=0"], "--bf-concurrency is '0'; give a whole number from 1 up"),
        (["--bf-concurrency=fast"], "--bf-concurrency is 'fast'; give a whole number from 1 up"),
        (["--bf-agent-timeout=0"], "--bf-agent-timeout is '0'; give a number above 0"),
        (["--bf-agent-timeout=10m"], "--bf-agent-timeout is '10m'; give a number above 0"),
        (["--bf-timeout-multiplier=-2"], "--bf-timeout-multiplier is '-2'; give a number above 0"),
        (["--bf-shard=0/4"], "--bf-shard '0/4' is not a slice; write I/N with 1 ≤ I ≤ N, for example 1/4"),
        (["--bf-shard=5/4"], "--bf-shard '5/4' is not a slice; write I/N with 1 ≤ I ≤ N, for example 1/4"),
        (["--bf-shard=2"], "--bf-shard '2' is not a slice; write I/N with 1 ≤ I ≤ N, for example 1/4"),
        (["--bf-shard=1/0"], "--bf-shard '1/0' is not a slice; write I/N with 1 ≤ I ≤ N, for example 1/4"),
        (["--bf-agent-env=TOKEN"], "--bf-agent-env 'TOKEN' is not an assignment; write NAME=value"),
        (["--bf-agent-env=1A=secret"], "--bf-agent-env '1A' is not an assignment; write NAME=value"),
        (["--bf-verifier-env==x"], "--bf-verifier-env '' is not an assignment; write NAME=value"),
        (["--bf-job-name=a/b"], "--bf-job-name 'a/b' is not a plain directory name; use letters, digits, . _ -"),
        (["--bf-job-name=.."], "--bf-job-name '..' is not a plain directory name; use letters, digits, . _ -"),
        ([f"--bf-job-name={'x' * 201}"], "--bf-job-name has 201 characters; use at most 200"),
        (["--bf-agent=,"], "--bf-agent names no agent; give at least one, for example oracle"),
        (["--bf-sandbox="], "--bf-sandbox is ''; expected a string"),
        (["--bf-keep-sandbox=sometimes"], "--bf-keep-sandbox is 'sometimes'; give never, failed or always"),
        (["--bf-context-root=/nowhere"], "--bf-context-root: /nowhere is not a directory"),
        (["--bf-agent-idle-timeout=soon"], "--bf-agent-idle-timeout is 'soon'; give a number above 0"),
        (
            ["--bf-sandbox-user=A B"],
            "--bf-sandbox-user is 'A B'; use small letters, digits and dashes, or none for root",
        ),
        (["--bf-missing-credentials=maybe"], "--bf-missing-credentials is 'maybe'; give error or skip"),
    ],
)
def test_a_bad_option_is_one_line_that_names_it(read: Read, args: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(*args)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("ini", "message"),
    [
        ("bf_threshold = x", "bf_threshold: could not convert string to float: 'x'; give a number"),
        ("bf_trials = 1.5", "bf_trials: invalid literal for int() with base 10: '1.5'; give a whole number"),
        ("bf_strict = maybe", "bf_strict: invalid truth value 'maybe'; give true or false"),
        ('bf_prompt = "x', "bf_prompt: No closing quotation; expected strings, quoted where they hold spaces"),
        ("bf_trials = 0", "bf_trials is 0; give a whole number from 1 up"),
    ],
)
def test_a_bad_ini_value_is_one_line_that_names_the_key(read: Read, ini: str, message: str) -> None:
    with pytest.raises((UsageError, pytest.UsageError)) as caught:
        read(ini=ini)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[tool.benchflow]\nthresold = 1", "[tool.benchflow] thresold is not known; did you mean threshold?"),
        ("[tool.benchflow]\nthreshold = 'x'", "[tool.benchflow] threshold is 'x'; give a number"),
        ("[tool.benchflow]\nthreshold = true", "[tool.benchflow] threshold is True; give a number"),
        ("[tool.benchflow]\ntrials = 2.0", "[tool.benchflow] trials is 2.0; give a whole number from 1 up"),
        ("[tool.benchflow]\nstrict = 'yes'", "[tool.benchflow] strict is 'yes'; give true or false"),
        ("[tool.benchflow]\nagent = 5", "[tool.benchflow] agent is 5; expected a string or a list of strings"),
        (
            "[tool.benchflow]\nagents = 5",
            "[tool.benchflow] agents is not an array of tables; write [[tool.benchflow.agents]]",
        ),
        ("[[tool.benchflow.agents]]\nnmae = 'a'", "[[tool.benchflow.agents]] nmae is not known; did you mean name?"),
        (
            "[[tool.benchflow.agents]]\nmodels = []",
            "[[tool.benchflow.agents]] needs name = TEXT and models = [TEXT, …]",
        ),
        ("[[tool.benchflow.overrides]]\ntrials = 2", "[[tool.benchflow.overrides]] needs tasks = PATTERN"),
        (
            "[[tool.benchflow.overrides]]\ntasks = 'a'\ntrials = 0",
            "[[tool.benchflow.overrides]] trials is 0; give a whole number from 1 up",
        ),
        (
            "[[tool.benchflow.overrides]]\ntasks = 'a'\ntreshold = 0",
            "[[tool.benchflow.overrides]] treshold is not known; did you mean threshold?",
        ),
    ],
)
def test_a_bad_table_is_one_line_that_names_the_key(read: Read, toml: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(toml=toml)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "models",
    ["[1, 2]", "[true]", "['']", "[['a']]"],
)
def test_models_in_the_table_must_be_texts(read: Read, models: str) -> None:
    with pytest.raises(UsageError, match="models"):
        read(toml=f"[[tool.benchflow.agents]]\nname = 'a'\nmodels = {models}")


def test_a_secret_in_a_bad_assignment_is_not_repeated(read: Read) -> None:
    with pytest.raises(UsageError) as caught:
        read("--bf-agent-env=1A=secret")
    assert "secret" not in str(caught.value)


def test_the_command_line_beats_the_ini_file(read: Read) -> None:
    assert read("--bf-threshold=0.5", ini="bf_threshold = 0.7").threshold == 0.5
    assert read(ini="bf_threshold = 0.7").threshold == 0.7


def test_pytests_own_configuration_beats_our_table(read: Read) -> None:
    toml = "bf_trials = 3\n[tool.benchflow]\ntrials = 2\nthreshold = 0.25\n"
    settings = read(toml=toml)
    assert (settings.trials, settings.threshold) == (3, 0.25)


def test_every_ini_key_is_read(read: Read, pytester: pytest.Pytester) -> None:
    ini = """
        bf_agent = nop oracle
        bf_model = m
        bf_sandbox = local
        bf_threshold = 0.5
        bf_trials = 2
        bf_concurrency = 3
        bf_jobs_dir = out
        bf_json = r.json
        bf_agent_env = A=1 B=2
        bf_verifier_env = C=3
        bf_agent_timeout = 60
        bf_timeout_multiplier = 2
        bf_report_only = true
        bf_strict = true
        bf_force_build = true
        bf_base_image_override = debian:trixie
        bf_context_root = shared
        bf_docker_network = host
        bf_keep_sandbox = failed
    """
    pytester.mkdir("shared")
    settings = read(ini="\n".join(line.strip() for line in ini.splitlines()))
    assert [agent.name for agent in settings.agents] == ["nop", "oracle"]
    assert (settings.sandbox, settings.threshold, settings.trials, settings.concurrency) == ("local", 0.5, 2, 3)
    assert settings.jobs_dir == pytester.path / "out"
    assert settings.json == pytester.path / "r.json"
    assert (settings.agent_env, settings.verifier_env) == ({"A": "1", "B": "2"}, {"C": "3"})
    assert (settings.timeout, settings.timeout_multiplier) == (60.0, 2.0)
    assert settings.report_only
    assert settings.strict
    assert settings.force_build
    assert (settings.base_image_override, settings.docker_network) == ("debian:trixie", "host")
    assert settings.context_root == pytester.path / "shared"
    assert settings.keep_sandbox == "failed"


def test_the_table_holds_a_nested_matrix(read: Read) -> None:
    settings = read(
        toml="""
        [[tool.benchflow.agents]]
        name = "gemini"
        models = ["flash", "pro"]
        [[tool.benchflow.agents]]
        name = "nop"
        [[tool.benchflow.overrides]]
        tasks = ["slow/*", "hello"]
        threshold = 0.5
        trials = 3
        timeout = 60
        """
    )
    assert settings.agents == (AgentChoice("gemini", ("flash", "pro")), AgentChoice("nop"))
    values = {"threshold": 0.5, "trials": 3, "timeout": 60.0}
    assert settings.overrides == (Override("slow/*", values), Override("hello", values))


def test_naming_agents_replaces_the_nested_ones(read: Read) -> None:
    toml = "[[tool.benchflow.agents]]\nname = 'gemini'\nmodels = ['flash']\n"
    assert read("--bf-agent=nop", toml=toml).agents == (AgentChoice("nop"),)


@pytest.mark.parametrize(
    ("pattern", "path", "name", "matches"),
    [
        ("hello", "tasks/hello", "hello", True),
        ("tasks/*", "tasks/hello", "hello", True),
        ("acme/*", "tasks/hello", "acme/hello", True),
        ("other", "tasks/hello", "hello", False),
        ("tasks", "tasks/hello", "hello", False),
    ],
)
def test_an_override_is_for_tasks_by_path_or_name(pattern: str, path: str, name: str, matches: bool) -> None:
    assert Override(pattern, {}).matches(path, name) is matches


def test_paths_of_the_command_line_are_relative_to_where_pytest_was_started(
    read: Read, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nbf_json = r.json")
    below = pytester.mkdir("below")
    monkeypatch.chdir(below)
    assert read().jobs_dir == below / "jobs"
    settings = read("--bf-jobs-dir=out", "--bf-source=./tasks@main:easy")
    assert settings.jobs_dir == below / "out"
    assert settings.source == (SourceSpec(f"{below}/tasks", "main", "easy"),)


def test_paths_of_the_ini_file_are_relative_to_the_root(
    read: Read, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nbf_jobs_dir = out\nbf_source = ./tasks")
    monkeypatch.chdir(pytester.mkdir("below"))
    settings = read()
    assert settings.jobs_dir == pytester.path / "out"
    assert settings.source == (SourceSpec(f"{pytester.path}/tasks"),)


def test_a_home_directory_is_expanded(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert read("--bf-jobs-dir=~/jobs").jobs_dir == Path("/home/someone/jobs")


@pytest.mark.parametrize(
    ("args", "ini", "toml", "asked"),
    [
        ([], "", "", False),
        (["-k", "x"], "", "", False),
        (["--bf-dry-run"], "", "", True),
        ([], "bf_threshold = 0.5", "", True),
        ([], "", "[tool.benchflow]\ntrials = 2\n", True),
    ],
)
def test_a_run_without_our_options_is_left_alone(
    pytester: pytest.Pytester, args: list[str], ini: str, toml: str, asked: bool
) -> None:
    assert is_asked_for(configured(pytester, *args, ini=ini, toml=toml)) is asked
