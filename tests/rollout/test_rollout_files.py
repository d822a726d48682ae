"""Rollout and job files: what they mean, and every way to get them wrong said with file, line, key and fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, strategies as st

from pytest_benchflow.core.errors import BenchflowError, UsageError
from pytest_benchflow.rollout import (
    FunctionUser,
    RolloutConfig,
    RolloutFile,
    Scene,
    Turn,
    load_rollout_file,
    rollout_config_from_yaml,
)
from pytest_benchflow.rollout.files.load import RolloutFileError, read_mapping
from pytest_benchflow.rollout.files.model import AgentEntry, RoleEntry, SceneEntry
from pytest_benchflow.rollout.files.schema import RolloutTable, rollout_schema
from pytest_benchflow.rollout.scenes import Role

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Give tests the function that writes a rollout file."""

    def write_file(text: str, name: str = "review-loop.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_file


FULL = """
name: review-loop
scenes:
  - name: code
    outbox: true
    skills_dir: skills
    roles:
      - {name: coder, agent: gemini, model: flash, env: {A: "1"}, timeout_sec: 60, idle_timeout_sec: 5}
      - {name: reviewer, agent: claude, reasoning_effort: high, capabilities: [read-only]}
    turns:
      - coder
      - {role: reviewer, prompt: Look at it.}
  - name: again
    roles: [{name: coder, agent: gemini}]
sandbox: local
threshold: 0.5
trials: 3
timeout: 600
idle_timeout: none
sandbox_user: worker
sandbox_setup_timeout: 30
agent_env: {KEY: "v"}
skill_mode: with-skill
services: [gmail]
retry: {max_retries: 5, wait_multiplier: 3}
source: {repo: org/repo, path: tasks, ref: v1}
concurrency: 8
include: [hello-*]
exclude: flaky
jobs_dir: out
"""


def test_a_file_says_everything_a_rollout_can_be_told(write: Write, tmp_path: Path) -> None:
    path = write(FULL)
    file = load_rollout_file(path)
    coder = RoleEntry("coder", "gemini", "flash", None, {"A": "1"}, 60, 5)
    reviewer = RoleEntry("reviewer", "claude", None, "high", capabilities=("read-only",))
    turns = (Turn("coder"), Turn("reviewer", "Look at it."))
    code = SceneEntry("code", (coder, reviewer), turns, tmp_path / "skills", outbox=True)
    assert file.source is not None
    assert (file.source.repo, file.source.ref, file.source.path) == ("https://github.com/org/repo.git", "v1", "tasks")
    assert file == RolloutFile(
        path=path,
        name="review-loop",
        scenes=(code, SceneEntry("again", (RoleEntry("coder", "gemini"),))),
        values={
            "sandbox": "local",
            "threshold": 0.5,
            "trials": 3,
            "timeout": 600,
            "agent_idle_timeout": 0,
            "sandbox_user": "worker",
            "sandbox_setup_timeout": 30,
            "agent_env": {"KEY": "v"},
            "skill_mode": "with-skill",
            "services": ("gmail",),
            "concurrency": 8,
            "jobs_dir": tmp_path / "out",
        },
        retry={"max_retries": 5, "wait_multiplier": 3},
        source=file.source,
        include=("hello-*",),
        exclude=("flaky",),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agent: gemini", {"agents": (AgentEntry("gemini"),)}),
        (
            "agent: gemini\nmodel: flash\nreasoning_effort: low\nprompts: Once.",
            {"agents": (AgentEntry("gemini", "flash", "low"),), "prompts": ("Once.",)},
        ),
        ('prompts: [null, "@instruction", Check it.]', {"prompts": (None, None, "Check it.")}),
        ("prompts: []", {"prompts": None}),
        ("environment: docker", {"sandbox": "docker"}),
        ("environment: docker\nsandbox: docker", {"sandbox": "docker"}),
        ("sandbox_user: none", {"sandbox_user": None}),
        ("sandbox_user: null", {"sandbox_user": None}),
        ("sandbox_user: root", {"sandbox_user": None}),
        ("", {"sandbox_user": None, "sandbox": None, "prompts": None, "retry": None, "threshold": None}),
        ("idle_timeout: 0", {"agent_idle_timeout": 0}),
        ("agent_idle_timeout_sec: 60", {"agent_idle_timeout": 60}),
        ("agent_idle_timeout: none", {"agent_idle_timeout": 0}),
        ("retry: 3", {"retry": {"max_retries": 3}}),
        ("max_retries: 3", {"retry": {"max_retries": 3}}),
        ("loop_strategy: verify-retry:k=2", {"loop_strategy": "verify-retry:k=2,feedback=names"}),
        ("skills_dir: /skills", {"skills_dir": Path("/skills"), "skill_mode": "with-skill"}),
        ("trial_name: one", {"rollout_name": "one"}),
        ("usage_tracking: off", {"usage_tracking": "off"}),
        ('usage_tracking: "required"', {"usage_tracking": "required"}),
    ],
)
def test_short_and_older_forms_mean_the_same(write: Write, text: str, expected: dict[str, object]) -> None:
    file = load_rollout_file(write(text))
    assert {key: getattr(file, key) for key in expected} == expected


def test_paths_are_relative_to_the_file(write: Write, tmp_path: Path) -> None:
    file = load_rollout_file(write("tasks: [here, /there]\ntask_dir: ../one\ncontext_root: .\nuser: mine:User"))
    assert file.tasks == (tmp_path / "here", Path("/there"))
    assert file.task_path == tmp_path / "../one"
    assert file.context_root == tmp_path
    assert file.user is not None
    assert file.user.base == tmp_path


@pytest.mark.parametrize(("stem", "name"), [("review-loop", "review-loop"), ("my review [2]", "my-review-2")])
def test_a_file_without_a_name_has_that_of_its_file(write: Write, stem: str, name: str) -> None:
    assert load_rollout_file(write("agent: gemini", f"{stem}.yaml")).name == name


def test_variables_come_from_the_environment(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    text = "agent_env: {A: '${TOKEN}', B: 'x-${NONE:-y}'}\nscenes: [{roles: [{name: a, env: {C: '${TOKEN}'}}]}]"
    file = load_rollout_file(write(text))
    assert file.agent_env == {"A": "s3cret", "B": "x-y"}
    assert file.scenes[0].roles[0].env == {"C": "s3cret"}


def test_a_missing_variable_is_told_with_its_place(write: Write) -> None:
    with pytest.raises(BenchflowError, match=r"review-loop\.yaml:2: agent_env needs the environment variable BF_NONE"):
        load_rollout_file(write("agent: gemini\nagent_env: {A: '${BF_NONE}'}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agnet: gemini", "f.yaml:1: agnet is not a known key; did you mean agent?"),
        ("agent: gemini\nthresold: 1", "f.yaml:2: thresold is not a known key; did you mean threshold?"),
        (
            "scenes:\n  - roles:\n      - name: a\n        modle: x",
            "f.yaml:4: scenes.roles.modle is not a known key; did you mean model?",
        ),
        ("scenes:\n  - {name: s, roles: []}", "f.yaml:2: scene 's' has no roles; add at least one"),
        ("agent: gemini\nscenes: []", "f.yaml:2: scenes has no scene; list at least one, or leave the key out"),
        ("scenes:\n  - name: s", "f.yaml:2: scenes.roles is missing; add it"),
        (
            "scenes:\n  - roles: [{name: a}]\n    turns: [b]",
            "f.yaml:2: scene 'default' has a turn of the unknown role 'b'; known: a",
        ),
        ("scenes:\n  - roles: [{name: a}, {name: a}]", "f.yaml:2: scene 'default' has two roles called 'a'"),
        (
            "scenes:\n  - roles: [{name: a}]\n  - roles: [{name: a}]",
            "f.yaml:1: two scenes are called 'default'; give each scene a name",
        ),
        ("timeout: 10m", 'f.yaml:1: timeout is "10m"; give seconds as a number'),
        ("timeout: -1", "f.yaml:1: timeout is -1; give seconds as a number above 0"),
        ("trials: 0", "f.yaml:1: trials is 0; give a number of at least 1"),
        ("agent_env: {PORT: 80}", 'f.yaml:1: agent_env.PORT is 80; quote it: "80"'),
        ("name: a b", 'f.yaml:1: name is "a b"; use letters'),
        ("user: nobody", 'f.yaml:1: user is "nobody"; write module:object'),
        ("user: {max_rounds: 3}", "f.yaml:1: user.object is missing; add it"),
        ("loop_strategy: verify:k=3", "f.yaml:1: loop_strategy is wrong: loop strategy 'verify:k=3' is not known"),
        ("skill_mode: self-gen", "f.yaml:1: skill_mode is self-gen; write one scene that makes the skill"),
        ("skill_mode: some", 'f.yaml:1: skill_mode is "some"; known: no-skill, with-skill'),
        ("sandbox_user: A B", 'f.yaml:1: sandbox_user is "A B"; use small letters'),
        ("sandbox: local\nenvironment: docker", "f.yaml:2: environment contradicts sandbox, which is the same key"),
        ("prompts: [x]\nscenes: [{roles: [{name: a}]}]", "f.yaml:1: prompts stands beside scenes; put the prompts"),
        ("user: a:b\nloop_strategy: self-review", "f.yaml:2: loop_strategy stands beside user; keep one"),
        (
            "user: a:b\nscenes: [{roles: [{name: a}, {name: b}]}]",
            "f.yaml:1: user needs scenes with one role each; keep one role",
        ),
        ("skills_dir: x\nskill_mode: no-skill", "f.yaml:2: skill_mode is no-skill but skills_dir is given"),
        ("source: org/repo\ntasks: x", "f.yaml:1: source stands beside tasks; keep one"),
        ("source: nowhere", "f.yaml:1: source is wrong: "),
        ("source: {repo: nowhere}", "f.yaml:1: source is wrong: "),
        ("reviewer: {agent: claude}", "f.yaml:1: reviewer is a table, which is not supported; write the review as"),
        ("separate_verifier: true", "f.yaml:1: separate_verifier is true, which is not supported; let the task"),
        ("job_mode: sequential-shared", 'f.yaml:1: job_mode is "sequential-shared", which is not supported; leave'),
        ("skip_install: true", "f.yaml:1: skip_install is true, which is not supported"),
        ("usage_proxy: x", "f.yaml:1: usage_proxy is not a known key"),
        ("- agent", "f.yaml:1: is not a mapping; write key: value lines"),
        ("agent: [x}", "f.yaml:1: is not valid YAML"),
        ("agent: a\nagent: b", "f.yaml:2: agent is given twice; keep one of them"),
        ("agents: [{nme: x}]", "f.yaml:1: agents.nme is not a known key; did you mean name?"),
        ("agents: []", "f.yaml:1: agents is an array; give a value or remove the key"),
        ("agents: [{name: x}]\nenvironment: {env: [A]}", 'f.yaml:2: environment.env has "A"; write NAME=value'),
        ("agents: [{name: a, env: {A: b}}, {name: b}]", "f.yaml:1: agents.env is only one agent's; set it in"),
    ],
)
def test_a_mistake_is_told_with_place_and_fix(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:
        load_rollout_file(write(text, "f.yaml"))
    assert isinstance(caught.value, UsageError)
    assert str(caught.value).splitlines()[0].startswith(message)


def test_all_mistakes_are_told_at_once(write: Write) -> None:
    with pytest.raises(RolloutFileError) as caught:
        load_rollout_file(write("trials: none\nagnet: x\ntimeout: soon"))
    assert [problem.line for problem in caught.value.problems] == [1, 2, 3]


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RolloutFileError, match=r"none\.yaml: is missing; create it"):
        load_rollout_file(tmp_path / "none.yaml")


@pytest.mark.parametrize("raw", [None, [], "agent"])
def test_data_that_are_no_mapping_are_refused(raw: object) -> None:
    with pytest.raises(ValueError, match=f"is a mapping, not {type(raw).__name__}"):
        read_mapping(raw, Path())  # type: ignore[arg-type]


def test_data_are_checked_like_a_file() -> None:
    with pytest.raises(ValueError, match=r"rollout configuration: agnet is not a known key; did you mean agent\?"):
        read_mapping({"agnet": "x"}, Path())


HARBOR = """
jobs_dir: out
n_attempts: 3
timeout_multiplier: 2.0
orchestrator: {type: local, n_concurrent_trials: 9}
environment:
  type: daytona
  force_build: true
  env: ["TOKEN=${TOKEN}", "URL=https://${HOST:-localhost}/?a=b"]
agents:
  - {name: claude-code, model_name: anthropic/haiku}
  - {name: codex}
datasets:
  - path: one
  - path: two
include: [a]
exclude_tasks: [b]
"""


def test_a_harbor_job_is_read(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    path = write(HARBOR, "job.yaml")
    file = load_rollout_file(path)
    assert file == RolloutFile(
        path=path,
        name="job",
        agents=(AgentEntry("claude-code", "anthropic/haiku"), AgentEntry("codex")),
        values={
            "sandbox": "daytona",
            "force_build": True,
            "timeout_multiplier": 2.0,
            "agent_env": {"TOKEN": "s3cret", "URL": "https://localhost/?a=b"},
            "concurrency": 9,
            "jobs_dir": tmp_path / "out",
        },
        retry={"max_retries": 2},
        tasks=(tmp_path / "one", tmp_path / "two"),
        include=("a",),
        exclude=("b",),
        warnings=file.warnings,
    )
    (warning,) = file.warnings
    assert "job.yaml:3: n_attempts is read as 2 retries of attempts that failed; for repetitions" in str(warning)


NATIVE_JOB = """
tasks_dir: tasks
agent: gemini
model: flash
environment: daytona
concurrency: 64
max_retries: 1
prompts: Do it.
sandbox_user: agent
sandbox_locked_paths: [/solution]
agent_idle_timeout_sec: 300
separate_verifier: false
exclude: [a, b]
job_mode: parallel-independent
"""


def test_an_older_job_is_read(write: Write, tmp_path: Path) -> None:
    path = write(NATIVE_JOB, "job.yaml")
    file = load_rollout_file(path)
    assert file == RolloutFile(
        path=path,
        name="job",
        agents=(AgentEntry("gemini", "flash"),),
        values={
            "prompts": ("Do it.",),
            "sandbox": "daytona",
            "concurrency": 64,
            "sandbox_user": "agent",
            "agent_idle_timeout": 300,
        },
        retry={"max_retries": 1},
        tasks=(tmp_path / "tasks",),
        exclude=("a", "b"),
        warnings=file.warnings,
    )
    assert [warning.key for warning in file.warnings] == ["sandbox_locked_paths"]


def test_roles_without_an_agent_are_played_by_that_of_the_run(write: Write) -> None:
    text = "scenes: [{roles: [{name: coder}, {name: reviewer, agent: claude}, {name: twin, agent: gemini}]}]"
    file = load_rollout_file(write(text))
    assert not file.pins_agents
    (scene,) = file.scenes_for("gemini", "flash", "low")
    assert scene.roles == (
        Role("coder", "gemini", "flash", "low"),
        Role("reviewer", "claude"),
        Role("twin", "gemini", "flash", "low"),
    )


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_free_agents_stand_in_for_a_cast_that_is_open(write: Write, agent: str) -> None:
    assert load_rollout_file(write("scenes: [{roles: [{name: a}, {name: b, agent: claude}]}]")).scenes_for(agent) == ()


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ("agent: gemini", True),
        ("scenes: [{roles: [{name: a, agent: gemini}]}]", True),
        ("scenes: [{roles: [{name: a}]}]\nagent: gemini", True),
        ("scenes: [{roles: [{name: a}]}]", False),
        ("loop_strategy: self-review", False),
    ],
)
def test_a_file_may_settle_who_plays(write: Write, text: str, pins: bool) -> None:
    assert load_rollout_file(write(text)).pins_agents is pins


def test_the_agent_of_a_file_plays_its_roles(write: Write) -> None:
    file = load_rollout_file(write("agent: gemini\nmodel: flash\nscenes: [{roles: [{name: a}]}]"))
    assert file.scenes_for("oracle") == (Scene(roles=[Role("a", "gemini", "flash")]),)


def test_a_file_gives_the_configuration_of_a_rollout(write: Write, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def say(round, instruction, result):\n    return None\n")
    path = write(
        "agent: gemini\nmodel: flash\nprompts: [null, Check.]\nsandbox: local\nthreshold: 0.5\ntimeout: 60\n"
        "idle_timeout: none\nsandbox_user: none\nagent_env: {A: b}\nservices: [gmail]\nforce_build: true\n"
        "user: {object: mine:say, max_rounds: 2, oracle_access: true}\njobs_dir: out\nrollout_name: one\n"
    )
    config = rollout_config_from_yaml(path, "tasks/hello")
    assert isinstance(config.user, FunctionUser)
    assert config == RolloutConfig(
        task_path=Path("tasks/hello"),
        agent="gemini",
        model="flash",
        prompts=(None, "Check."),
        scene="review-loop",
        sandbox="local",
        threshold=0.5,
        timeout=60,
        agent_idle_timeout=0,
        sandbox_user=None,
        agent_env={"A": "b"},
        services=("gmail",),
        force_build=True,
        user=config.user,
        max_user_rounds=2,
        oracle_access=True,
        jobs_dir=tmp_path / "out",
        rollout_name="one",
    )
    assert rollout_config_from_yaml(path).task_path == tmp_path


def test_what_a_file_leaves_out_is_as_usual(write: Write) -> None:
    config = rollout_config_from_yaml(write("agent: gemini"), "x")
    assert config == RolloutConfig(task_path=Path("x"), agent="gemini", scene="review-loop")


def test_a_file_with_scenes_gives_them_to_the_rollout(write: Write) -> None:
    config = rollout_config_from_yaml(write("agent: gemini\nscenes: [{name: s, roles: [{name: a}]}]"), "x")
    assert config.scenes == (Scene("s", [Role("a", "gemini")]),)
    assert config.prompts is None


def test_a_rollout_needs_an_agent(write: Write) -> None:
    with pytest.raises(
        ValueError, match=r"review-loop\.yaml does not name an agent; add agent: or scenes: whose roles do"
    ):
        rollout_config_from_yaml(write("scenes: [{roles: [{name: a}]}]"), "x")


@pytest.mark.parametrize(
    ("text", "names", "wanted"),
    [
        ("", ["hello"], True),
        ("include: [hel*]", ["org/hello", "hello"], True),
        ("include: [hel]", ["hello"], False),
        ("exclude: hello", ["hello"], False),
        ("include: [h*]\nexclude: [hello]", ["hello"], False),
        ("include: [case-1]", ["case-10"], False),
    ],
)
def test_tasks_of_a_job_are_chosen_by_name(write: Write, text: str, names: list[str], wanted: bool) -> None:
    assert load_rollout_file(write(text)).wants(*names) is wanted


def test_the_published_schemas_are_the_models_own() -> None:
    published = Path(__file__).parent.parent.parent / "docs/schemas/rollout.schema.json"
    assert json.loads(published.read_text()) == rollout_schema()


@pytest.mark.parametrize("text", [FULL, "agent: gemini\nprompts: [null, x]\nuser: a:b\nretry: 2\nsource: org/repo"])
def test_the_schema_takes_what_the_loader_takes(text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), rollout_schema())


@pytest.mark.parametrize("text", ["agnet: x", "scenes: [{}]", "trials: 0", "scenes: [{roles: [{name: a, x: 1}]}]"])
def test_the_schema_refuses_what_the_loader_refuses(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), rollout_schema())


_KEYS = st.sampled_from([*RolloutTable.model_fields, "agents", "datasets", "tasks_dir", "nonsense", "reviewer"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=8) | st.just("a:b"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "roles", "turns", "agent", "role", "env", "object", "x"]), inner)
    ),
    max_leaves=8,
)


def outcome(read: Callable[[], RolloutFile]) -> RolloutFile | str:
    """Return the file, or the error that a user would read."""
    try:
        return read()
    except BenchflowError as error:
        return str(error)


@given(st.dictionaries(_KEYS, _VALUES, max_size=6))
def test_any_data_give_a_file_or_a_clear_error(raw: dict[str, object]) -> None:
    got = outcome(lambda: read_mapping(raw, Path()))
    if isinstance(got, str):
        assert got.startswith("rollout configuration")
    else:
        assert got.name
        got.scenes_for("gemini")


@given(st.text(max_size=60))
def test_any_text_gives_a_file_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text, errors="replace")
    got = outcome(lambda: load_rollout_file(path))
    assert isinstance(got, RolloutFile) or "any.yaml" in got


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["code", "review", "solve"]),
            st.lists(st.sampled_from(["coder", "reviewer"]), min_size=1, max_size=2, unique=True),
            st.lists(st.integers(0, 1), max_size=3),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda scene: scene[0],
    )
)
def test_what_is_written_is_what_is_played(scenes: list[tuple[str, list[str], list[int]]]) -> None:
    raw = {
        "scenes": [
            {
                "name": name,
                "roles": [{"name": role, "agent": f"agent-of-{role}"} for role in roles],
                "turns": [roles[n % len(roles)] for n in turns],
            }
            for name, roles, turns in scenes
        ]
    }
    played = read_mapping(raw, Path()).scenes_for()
    assert [scene.name for scene in played] == [name for name, _, _ in scenes]
    for scene, (_, roles, turns) in zip(played, scenes, strict=True):
        assert [role.agent for role in scene.roles] == [f"agent-of-{role}" for role in roles]
        assert [turn.role for turn in scene.effective_turns] == [roles[n % len(roles)] for n in turns] or roles
