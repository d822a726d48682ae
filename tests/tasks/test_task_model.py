"""The Task model: names, tags, stages and what they inherit, digest."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_benchflow.tasks import RunHints, load_task, stamp_tree

SAMPLES = {
    "none": '[metadata]\ndifficulty = "easy"\n[agent]\ntimeout_sec = 60.0\n[environment]\nmemory = "2G"\n',
    "1.0": 'version = "1.0"\n[metadata]\nauthor_name = "A"\n[verifier]\ntimeout_sec = 120\n[agent]\ntimeout_sec = 60\n'
    '[environment]\nbuild_timeout_sec = 300\ndocker_image = "ubuntu:24.04"\ncpus = 1\nmemory_mb = 2048\n'
    'storage = "10G"\n',
    "1.1": 'schema_version = "1.1"\nartifacts = []\n[task]\nname = "acme/sample"\nkeywords = ["a"]\n'
    '[environment.env]\nA = "1"\n[solution.env]\nB = "${B:-2}"\n',
    "1.2": 'schema_version = "1.2"\n[environment]\nworkdir = "/srv"\nallow_internet = false\n'
    '[environment.healthcheck]\ncommand = "true"\n[verifier]\nenvironment_mode = "separate"\n'
    '[verifier.env]\nK = "${K}"\n',
    "1.3": 'schema_version = "1.3"\n[agent]\nnetwork_mode = "no-network"\n[[verifier.collect]]\ncommand = "cp a b"\n'
    '[[steps]]\nname = "one"\nmin_reward = { correctness = 0.5 }\n',
    "1.4": 'schema_version = "1.4"\nmulti_step_reward_strategy = "final"\n[environment]\nos = "linux"\ncpus = 0.5\n'
    'network_mode = "allowlist"\nallowed_hosts = ["x.example"]\n[environment.tpu]\ntype = "v5e"\ntopology = "2x2"\n',
}


@pytest.mark.parametrize("version", SAMPLES)
def test_every_schema_version_loads_without_remark(make_task, version):
    task = load_task(make_task(SAMPLES[version], {"steps/one/instruction.md": "x"}), strict=True)
    assert task.config.schema_version == (version if version != "none" else "1.4")
    assert task.warnings == ()


def test_a_plain_task(make_task):
    path = make_task(SAMPLES["none"], {"solution/solve.sh": "x", "environment/skills/a/SKILL.md": "x"})
    task = load_task(path)
    assert (task.path, task.file, task.layout, task.name, task.short_name) == (
        path,
        path / "task.toml",
        "harbor",
        "hello",
        "hello",
    )
    assert (task.tests_target, task.solution_target) == ("/tests", "/solution")
    assert (task.difficulty, task.category, task.tags) == ("easy", None, ())
    assert (task.environment_dir, task.skills_dir) == (path / "environment", path / "environment/skills")
    assert task.has_solution
    assert task.document is None
    (step,) = task.steps
    assert (step.name, step.instruction, step.agent_timeout_sec) == (None, "Do it.\n", 60.0)
    assert (step.tests_dirs, step.test_script, step.solution_dir) == (
        (path / "tests",),
        "test.sh",
        path / "solution",
    )
    assert (step.workdir_dir, step.min_reward, step.healthcheck) == (None, None, None)
    assert [artifact.source for artifact in step.artifacts] == ["/logs/artifacts"]
    assert (step.verifier.mode, step.verifier.uploads_tests, step.verifier.timeout_sec) == ("shared", True, 600.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.name = "x"  # type: ignore[misc]


def test_the_task_file_may_be_given_instead(make_task):
    path = make_task("")
    assert load_task(path / "task.toml") == load_task(path)
    assert load_task(str(path)).path == path


def test_names_tags_and_metadata(make_task):
    task = load_task(
        make_task(
            '[task]\nname = "acme/Sample_1.x"\nkeywords = ["io", "net"]\n[metadata]\ntags = ["net", "cli", 3, "", {}]\n'
            'category = " ops "\ndifficulty = 2\n'
        )
    )
    assert (task.name, task.short_name) == ("acme/Sample_1.x", "Sample_1.x")
    assert task.tags == ("net", "cli", "3", "io")
    assert (task.category, task.difficulty) == ("ops", "2")


def test_run_hints(make_task):
    toml = "[benchflow]\nthreshold = 0.5\ntrials = 3\ntimeout_sec = 60\nquarantine = true\n"
    toml += 'skip = "slow"\nxfail = "flaky"\n'
    assert load_task(make_task(toml)).run == RunHints(0.5, 3, 60.0, True, "slow", "flaky")
    assert load_task(make_task("")).run == RunHints()


STEPS = """
artifacts = ["/task"]
[agent]
timeout_sec = 100
user = "agent"
network_mode = "no-network"
[environment]
network_mode = "allowlist"
allowed_hosts = ["api.example.com"]
[verifier]
timeout_sec = 50
user = "root"
pytest_plugins = ["p"]
[verifier.env]
A = "task"
B = "task"
[[verifier.collect]]
command = "task"
[[steps]]
name = "one"
min_reward = 0.5
artifacts = ["/step"]
[steps.agent]
timeout_sec = 7
user = 0
network_mode = "public"
[steps.verifier]
timeout_sec = 9
user = "checker"
network_mode = "no-network"
env = { B = "step" }
[[steps.verifier.collect]]
command = "step"
[steps.healthcheck]
command = "true"
[[steps]]
name = "two"
[steps.min_reward]
a = 1
"""


def test_what_a_step_inherits_and_what_not(make_task):
    path = make_task(
        STEPS,
        {
            "steps/one/instruction.md": "First",
            "steps/two/instruction.md": "Second",
            "steps/one/tests/test.sh": "x",
            "steps/one/solution/solve.sh": "x",
            "steps/two/workdir/setup.sh": "x",
            "solution/solve.sh": "x",
        },
    )
    one, two = load_task(path).steps
    assert (one.name, one.instruction, two.name, two.instruction) == ("one", "First", "two", "Second")
    assert (one.agent_timeout_sec, two.agent_timeout_sec) == (7.0, 100.0)
    assert (one.agent_user, two.agent_user) == (0, "agent")
    assert (one.agent_network.mode, two.agent_network.mode) == ("public", "no-network")
    assert (one.verifier.timeout_sec, two.verifier.timeout_sec) == (9.0, 600.0)
    assert (one.verifier.user, two.verifier.user) == ("checker", "root")
    assert (one.verifier.env, two.verifier.env) == ({"A": "task", "B": "step"}, {"A": "task", "B": "task"})
    assert (one.verifier.network.mode, two.verifier.network.mode) == ("no-network", "allowlist")
    assert two.verifier.network.allowed_hosts == ("api.example.com",)
    assert one.verifier.pytest_plugins == two.verifier.pytest_plugins == ("p",)
    assert [hook.command for hook in one.verifier.collect] == ["task", "step"]
    assert [hook.command for hook in two.verifier.collect] == ["task"]
    assert (one.min_reward, two.min_reward) == (0.5, {"a": 1.0})
    assert one.healthcheck is not None
    assert two.healthcheck is None
    assert [artifact.source for artifact in one.artifacts] == ["/logs/artifacts", "/task", "/step"]
    assert [artifact.source for artifact in two.artifacts] == ["/logs/artifacts", "/task"]
    assert one.tests_dirs == (path / "tests", path / "steps/one/tests")
    assert two.tests_dirs == (path / "tests",)
    assert (one.solution_dir, two.solution_dir) == (path / "steps/one/solution", path / "solution")
    assert (one.workdir_dir, two.workdir_dir) == (None, path / "steps/two/workdir")


def test_an_absent_agent_timeout_stays_none(make_task):
    toml = '[[steps]]\nname = "a"\n'
    task = load_task(make_task(toml, {"steps/a/instruction.md": "x"}))
    assert task.config.agent.timeout_sec is None
    assert task.steps[0].agent_timeout_sec is None


def test_an_empty_list_of_steps_is_a_task_without_steps(make_task):
    assert [step.name for step in load_task(make_task("steps = []")).steps] == [None]


def test_the_verifier_of_a_step_may_be_separate(make_task):
    toml = '[[steps]]\nname = "a"\n[steps.verifier.environment]\ndocker_image = "v"\n'
    toml += 'network_mode = "no-network"\n[[steps]]\nname = "b"\n'
    a, b = load_task(make_task(toml, {"steps/a/instruction.md": "x", "steps/b/instruction.md": "x"})).steps
    assert (a.verifier.mode, b.verifier.mode) == ("separate", "shared")
    assert a.verifier.environment is not None
    assert (a.verifier.network.mode, a.agent_network.mode) == ("no-network", "public")
    assert (a.verifier.uploads_tests, b.verifier.uploads_tests) == (False, True)


def test_a_step_may_turn_back_to_shared(make_task):
    toml = '[verifier.environment]\ndocker_image = "v"\n[[steps]]\nname = "a"\n'
    toml += '[steps.verifier]\nenvironment_mode = "shared"\n'
    (step,) = load_task(make_task(toml, {"steps/a/instruction.md": "x"})).steps
    assert (step.verifier.mode, step.verifier.environment) == ("shared", None)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"README.md": "x", "notes/x": "y", "tests/__pycache__/a.pyc": "x", "jobs/x": "y"}, True),
        ({"task.toml": "# other\n"}, False),
        ({"instruction.md": "other"}, False),
        ({"environment/Dockerfile": "FROM x"}, False),
        ({"tests/test.sh": "other"}, False),
        ({"tests/more/x": ""}, False),
        ({"solution/solve.sh": "x"}, False),
        ({"steps/a/x": "x"}, False),
        ({"prompts/role.a.md": "x"}, False),
    ],
)
def test_the_digest_covers_what_makes_the_task(make_task, write, change, same):
    task = load_task(make_task(""))
    before = task.digest()
    assert before == load_task(make_task("", name="elsewhere")).digest()
    stamp = stamp_tree(str(task.path), "task.toml")
    (task.path / "notes.txt").write_text("not a part of the task")
    assert stamp_tree(str(task.path), "task.toml") == stamp
    write(task.path, change)
    assert (task.digest() == before) is same
    assert same or stamp_tree(str(task.path), "task.toml") != stamp


def test_the_digest_follows_its_recipe(make_task):
    import hashlib

    def sha(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    lines = [b"instruction.md\0" + sha(b"Do it.\n").encode(), b"task.toml\0" + sha(b"").encode()]
    lines.append(b"tests/test.sh\0" + sha(b"#!/bin/bash\n").encode())
    assert load_task(make_task("")).digest() == sha(b"".join(line + b"\n" for line in lines))


def test_links_count_in_the_digest(make_task):
    task = load_task(make_task("", {"environment/a": "1"}))
    (task.path / "environment/link").symlink_to("a")
    first = task.digest()
    stamp = stamp_tree(str(task.path), "task.toml")
    (task.path / "environment/sub").symlink_to(".")
    assert task.digest() != first
    assert stamp_tree(str(task.path), "task.toml") != stamp


def test_a_prefix_comes_before_every_instruction(make_task):
    steps = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\nagent = {prompt_prefix = "Be brief."}\n'
    files = {"steps/one/instruction.md": "First.\n", "steps/two/instruction.md": "Second.\n"}
    task = load_task(make_task(f'[agent]\nprompt_prefix = "Be careful."\n{steps}', files))
    assert [step.instruction for step in task.steps] == ["Be careful.\n\nFirst.\n", "Be brief.\n\nSecond.\n"]


def test_a_reward_range_is_inherited_and_absent_unless_declared(make_task):
    files = {"steps/one/instruction.md": "x", "steps/two/instruction.md": "x"}
    steps = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\nverifier = {reward_range = [0, 5]}\n'
    task = load_task(make_task(f"[verifier]\nreward_range = [-1, 10]\n{steps}", files))
    assert [step.verifier.reward_range for step in task.steps] == [(-1.0, 10.0), (0.0, 5.0)]
    assert load_task(make_task(name="other")).steps[0].verifier.reward_range is None
