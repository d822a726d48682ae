"""The native layout: front matter, body sections, sidecars, verifier.md."""

from __future__ import annotations

import pytest

from pytest_benchflow.configfile import TaskError
from pytest_benchflow.tasks import RunHints, TaskIndex, find_task_file, load_task

FRONT = """\
task:
  name: acme/native
  keywords: [web]
metadata:
  difficulty: hard
  tags: [cli]
agent:
  timeout_sec: 90
verifier:
  timeout_sec: 30
sandbox:
  image: ubuntu:24.04
  memory_mb: 512
oracle:
  timeout_sec: 10
agents:
  roles:
    coder: {agent: gemini, model: flash, env: {A: "1"}, timeout_sec: 60}
    reviewer: {agent: claude}
scenes:
  - name: review
    roles: [coder, reviewer]
    turns:
      - coder
      - {role: reviewer, prompt: Look at it.}
user:
  model: scripted
  stop_rule: satisfied-or-3-rounds
  private_facts: {colour: blue}
benchflow:
  document_version: "0.6"
  threshold: 0.5
  prompt: {composition: append}
  teams:
    default:
      handoff: {mode: sequential, trajectory_visibility: metadata}
"""
BODY = """\
Solve it.

## Details

More.

## role:coder
You write.

```
## role:reviewer
```

## scene:review
Together.

## user-persona
Impatient.
"""


def test_everything_a_document_says(make_native):
    path = make_native(FRONT, BODY, {"oracle/solve.sh": "x"})
    task = load_task(path, strict=True)
    assert (task.layout, task.file, task.name) == ("native", path / "task.md", "acme/native")
    assert (task.tests_target, task.solution_target) == ("/verifier", "/oracle")
    assert (task.difficulty, task.tags) == ("hard", ("cli", "web"))
    assert task.run == RunHints(threshold=0.5)
    config = task.config
    assert (config.environment.docker_image, config.environment.memory_mb) == ("ubuntu:24.04", 512)
    assert (config.agent.timeout_sec, config.verifier.timeout_sec, config.solution.timeout_sec) == (90, 30, 10)
    (step,) = task.steps
    assert step.instruction == "Solve it.\n\n## Details\n\nMore."
    assert (step.tests_dirs, step.solution_dir) == ((path / "verifier",), path / "oracle")
    document = task.document
    assert document is not None
    assert document.prompts.roles == {"coder": "You write.\n\n```\n## role:reviewer\n```"}
    assert document.prompts.scenes == {"review": "Together."}
    assert document.prompts.user_persona == "Impatient."
    assert document.config.agents.roles["coder"].model == "flash"
    assert [(turn.role, turn.prompt) for turn in document.config.scenes[0].turns] == [
        ("coder", None),
        ("reviewer", "Look at it."),
    ]
    assert document.config.benchflow.teams["default"].handoff.trajectory_visibility == "metadata"


def test_sidecars_win_over_sections(make_native):
    files = {"prompts/role.coder.md": "From the file.\n", "prompts/scene.s.md": "S", "prompts/other.txt": "x"}
    document = load_task(make_native("name: x\n", BODY, files)).document
    assert document is not None
    assert document.prompts.roles["coder"] == "From the file."
    assert document.prompts.scenes == {"review": "Together.", "s": "S"}


@pytest.mark.parametrize(
    ("body", "base"),
    [
        ("Whole body.\n", "Whole body."),
        ("## prompt\nBase.\n## role:x\nR\n", "Base."),
        ("## Prompt ##\nBase.\n", "Base."),
        ("<!-- canary -->\n\nBase.\n", "Base."),
        ("Before.\n## prompt\nBase.\n", "Before.\nBase."),
    ],
)
def test_the_base_prompt(make_native, body, base):
    assert load_task(make_native("name: x\n", body)).steps[0].instruction == base


def test_a_document_without_any_prompt(make_native):
    task = make_native("name: x\n", "\n\n")
    line = f"{task}/task.md: has no prompt; write below the front matter what the agent has to do"
    for look in (load_task, lambda path: TaskIndex().summary(str(path))):
        with pytest.raises(TaskError) as caught:
            look(task)
        assert str(caught.value) == line


def test_shorthands(make_native):
    task = load_task(
        make_native(
            "name: acme/x\nimage: ubuntu\nverifier: verifier/\noracle: ./oracle/solve.sh\nprofile: code-change\n"
        )
    )
    assert (task.name, task.config.environment.docker_image) == ("acme/x", "ubuntu")
    assert load_task(make_native("name: plain\n", name="other")).name == "plain"


def test_keys_without_a_value_say_nothing(make_native):
    task = load_task(make_native("metadata:\nsandbox:\nverifier:\n  timeout_sec:\nagent:\n  timeout_sec: null\n"))
    assert (task.config.verifier.timeout_sec, task.config.agent.timeout_sec) == (600.0, None)


REFUSED = [
    (
        "environment:\n  cpus: 1\nsandbox:\n  cpus: 2\n",
        "2: environment contradicts sandbox, which is the same key; keep sandbox alone",
    ),
    ("agent:\n  timeout_sec: 10m\n", '3: agent.timeout_sec is "10m"; give seconds as a number, for example 600'),
    (
        "sandbox:\n  memory: 2X\n",
        '3: sandbox.memory is "2X"; give memory_mb in megabytes, for example memory_mb = 2048',
    ),
    ("sandbox:\n  cpus: [1]\n", "3: sandbox.cpus is an array; give a number"),
    ("oracle:\n  env: {A: 1}\n", '3: oracle.env.A is 1; quote it: "1"'),
    ("steps:\n  - name: a\n  - min_reward: 1\n", "4: steps.name is missing; add it"),
    ("name: a b?\n", '2: name "a b?" cannot name a directory; use letters, digits, - and _'),
    ("name: a/b/c\n", '2: name is "a/b/c"; give organisation/name, for example acme/hello-world'),
    ("image: 5\n", "2: image is 5; give the name of an image as a string"),
    ("image: a\nsandbox: {image: b}\n", '2: image is "a" but sandbox names another; keep one of them'),
    (
        "verifier: run me\n",
        '2: verifier is "run me"; put it in the directory verifier/, and write verifier as a mapping of settings',
    ),
    ("profile: code-chang\n", '2: profile is "code-chang"; did you mean code-change?'),
    (
        "agents:\n  roles:\n    coder: {agent: x}\nscenes:\n  - turns: [coder, codr]\n",
        '5: scenes has the unknown role "codr" in scene "default"; did you mean coder?',
    ),
    (
        "agents: {roles: {a: {}, b: {}}}\nscenes:\n  - {name: s, roles: [a], turns: [b]}\n",
        '3: scenes has a turn of "b" in scene "s", which does not list it; add it to the roles of the scene',
    ),
    ("benchflow: {prompt: {composition: mix}}\n", '2: benchflow.prompt.composition is "mix"; known: append, replace'),
    ("a: 1\nb: 2\na: 3\n", "4: a is given twice; keep one of them"),
    ("agent: {user: a, user: b}\n", "2: user is given twice; keep one of them"),
    ("- a\n- b\n", "2: front matter is not a mapping; write key: value lines"),
    ("just text\n", "2: front matter is not a mapping; write key: value lines"),
    ("? [a]\n: 1\n", "2: front matter has a key that is not a plain word; write key: value"),
    ("a: [1\n", "3: front matter is not valid YAML: did not find expected ',' or ']'"),
    (
        "a: !!python/object:os.system x\n",
        "2: front matter is not valid YAML: could not determine a constructor for the tag",
    ),
    ("a: *nowhere\n", "2: front matter is not valid YAML: found undefined alias"),
    ("a: 2001-99-99\n", ": front matter is not valid YAML: month must be in 1..12"),
    ("a: &a [*a]\n", ": front matter is nested too deeply"),
    ("a: " + "[" * 200 + "]" * 200 + "\n", ": front matter is nested too deeply"),
    ("a: " + "[" * 200000 + "\n", ": front matter is nested too deeply"),
    ("- " * 200000 + "\n", ": front matter is nested too deeply"),
]


@pytest.mark.parametrize(("front", "line"), REFUSED, ids=[line.split(";")[0] for _, line in REFUSED])
def test_a_bad_front_matter_is_one_line_with_place_and_fix(make_native, front, line):
    task = make_native(front)
    with pytest.raises(TaskError) as caught:
        load_task(task)
    colon = "" if line.startswith(":") else ":"
    first = next(problem for problem in caught.value.problems if problem.file.endswith("task.md"))
    assert str(first).startswith(f"{task}/task.md{colon}{line}")


def test_aliases_cannot_blow_up(make_native):
    front = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    with pytest.raises(TaskError, match="expands to too many values; do not nest YAML aliases"):
        load_task(make_native(front))


def test_plain_aliases_and_merges_work(make_native):
    front = "agents:\n  roles:\n    a: &base {agent: x}\n    b: {<<: *base, model: m}\n"
    document = load_task(make_native(front)).document
    assert document is not None
    assert document.config.agents.roles["b"].agent == "x"


def test_the_environment_of_a_document_is_its_sandbox(make_native):
    path = make_native("environment:\n  cpus: 3\n  image: x\n  mode: y\n")
    task = load_task(path)
    assert (task.config.environment.cpus, task.config.environment.docker_image) == (3, "x")
    assert [str(problem).removeprefix(f"{path}/task.md:") for problem in task.warnings] == [
        "2: environment is called sandbox in a task.md and was taken as that; rename it",
        "5: environment.mode is not a known key; remove it",
    ]


MANIFEST = """
[environment]
name = "office"
[[environment.services]]
name = "mail"
port = 9001
[[environment.services]]
name = "chat"
"""
YAML_MANIFEST = "environment: {services: [{name: mail}]}\n"


@pytest.mark.parametrize(
    ("front", "files", "asked"),
    [
        ("manifest: ../all.toml", {"../all.toml": MANIFEST}, "the services mail, chat of ../all.toml"),
        ("manifest: all.yaml", {"all.yaml": YAML_MANIFEST}, "the services mail of all.yaml"),
        ("manifest: all.yaml", {"all.yaml": "environment: {}\n"}, "the environment of all.yaml"),
        ("manifest: ../all.toml", {}, 'the environment "../all.toml", which is missing'),
        ("manifest: office@prod", {}, 'the environment "office@prod"'),
        ("manifest: all.toml", {"all.toml": "["}, "the services of all.toml, which cannot be read: "),
        ("isolation: per_task", {}, "isolation"),
    ],
)
def test_services_that_a_document_asks_for_are_named(make_native, front, files, asked):
    path = make_native(f"benchflow:\n  environment: {{{front}}}\n", files=files, name="suite/mail")
    (warning,) = load_task(path).warnings
    assert str(warning).startswith(f"{path}/task.md:3: benchflow.environment asks for {asked}")
    assert str(warning).endswith(", which nobody starts here; the task is refused when it is run")


def test_unknown_keys_of_front_matter(make_native):
    path = make_native("sandbox:\n  memory_bm: 1\nagents:\n  roles:\n    a: {modle: x}\nmemory_mb: 3\n")
    assert [str(problem).removeprefix(f"{path}/task.md:") for problem in load_task(path).warnings] == [
        "3: sandbox.memory_bm is not a known key; did you mean memory_mb?",
        "6: agents.roles.a.modle is not a known key; did you mean model?",
        "7: memory_mb is not a known key; it belongs under sandbox",
    ]


def test_prompts_for_nobody_are_warnings(make_native):
    front = "agents: {roles: {coder: {}}}\nscenes: [{name: review, turns: [coder]}]\n"
    path = make_native(front, "Do it.\n## role:codr\nx\n## scene:review\ny\n", {"prompts/scene.other.md": "z"})
    lines = [
        "role:codr is the prompt of a role that the front matter does not have; did you mean coder?",
        "scene:other is the prompt of a scene that the front matter does not have; known: review",
    ]
    task_summary = TaskIndex().summary(str(path))
    assert task_summary is not None
    for found in (load_task(path).warnings, task_summary.warnings):
        assert [str(problem) for problem in found] == [f"{path}/task.md: {line}" for line in lines]


def test_a_fence_that_never_ends(make_native):
    task = make_native("name: x\n", files={"task.md": "---\nname: x\n"})
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert str(caught.value) == f"{task}/task.md:1: has front matter that never ends; end it with a line ---"


def test_task_md_wins_over_task_toml(make_native):
    task = make_native(
        "name: from-md\n",
        files={"task.toml": '[task]\nname = "a/from-toml"\n', "instruction.md": "x", "tests/test.sh": "x"},
    )
    assert find_task_file(task) == task / "task.md"
    assert load_task(task).name == "from-md"
    assert load_task(task / "task.toml").name == "a/from-toml"


def test_task_md_without_front_matter_leaves_task_toml_in_charge(make_task):
    task = make_task("", {"task.md": "# Notes\n"})
    assert find_task_file(task) == task / "task.toml"
    assert load_task(task).layout == "harbor"


def test_older_directory_names_serve_a_native_task(make_native):
    task = make_native("name: x\n", files={"verifier/test.sh": None, "tests/test.sh": "x", "solution/solve.sh": "x"})
    (task / "verifier").rmdir()
    loaded = load_task(task)
    assert (loaded.tests_target, loaded.solution_target) == ("/tests", "/solution")
    assert loaded.has_solution


def test_an_empty_verifier_directory_does_not_fall_back(make_native):
    task = make_native("name: x\n", files={"verifier/test.sh": None, "tests/test.sh": "x"})
    with pytest.raises(TaskError, match=r"verifier/test\.sh: is missing"):
        load_task(task)


VERIFIER = """---
document_version: "0.3"
verifier:
  name: v
{choice}  strategies:
    plain: {{type: script, command: ./check.sh --all}}
    judge: {{type: llm-judge, rubric: rubrics/a.toml}}
  outputs: {{reward_json: /logs/verifier/reward.json}}
---
Intent.
"""


@pytest.mark.parametrize(
    ("choice", "name", "kind", "command"),
    [
        ("", "plain", "script", "./check.sh --all"),
        ("  default_strategy: plain\n", "plain", "script", "./check.sh --all"),
        ("  default_strategy: judge\n", "judge", "llm-judge", None),
    ],
)
def test_the_chosen_strategy(make_native, choice, name, kind, command):
    files = {
        "verifier/test.sh": None,
        "verifier/verifier.md": VERIFIER.format(choice=choice),
        "verifier/rubrics/a.toml": "",
    }
    strategy = load_task(make_native("name: x\n", files=files)).steps[0].verifier.strategy
    assert strategy is not None
    assert (strategy.name, strategy.type, strategy.command) == (name, kind, command)
    assert strategy.outputs == {"reward_json": "/logs/verifier/reward.json"}


def test_a_judge_of_a_strategy(make_native):
    text = "---\nverifier:\n  strategies:\n    judge: {type: llm-judge, context_file: context.md}\n---\n"
    files = {"verifier/test.sh": None, "verifier/verifier.md": text, "verifier/context.md": "For a customer.\n"}
    task = load_task(make_native("name: x\n", files={**files, "verifier/rubrics/verifier.toml": ""}))
    verifier = task.steps[0].verifier
    assert verifier.judge is not None
    assert verifier.judge.context == "For a customer.\n"
    assert verifier.rubric == task.path / "verifier/rubrics/verifier.toml"


BAD_STRATEGIES = [
    ("# no front matter\n", "1: has no front matter; start it with a line ---"),
    ("---\nx: 1\n---\n", ": verifier is missing; give a mapping"),
    ("---\nverifier:\n  strategies: []\n---\n", "3: verifier.strategies is an array; give a mapping"),
    (
        "---\nverifier:\n  default_strategy: plane\n  strategies: {plain: {type: script, command: x}}\n---\n",
        '3: verifier.default_strategy is "plane"; did you mean plain?',
    ),
    (
        "---\nverifier:\n  strategies:\n    a: {type: scipt}\n---\n",
        '4: verifier.strategies.a.type is "scipt"; did you mean script?',
    ),
    (
        "---\nverifier:\n  strategies:\n    a: {type: llm-judge, context: x, context_file: y}\n---\n",
        "4: verifier.strategies.a.context_file stands beside context; keep one of them",
    ),
    (
        "---\nverifier:\n  strategies:\n    a: {type: llm-judge, context_file: ../y}\n---\n",
        '4: verifier.strategies.a.context_file is "../y"; name a file below the verifier\'s directory',
    ),
    (
        "---\nverifier:\n  strategies:\n    a: {type: script}\n---\n",
        "4: verifier.strategies.a.command is empty; give the command to run, for example ./test.sh",
    ),
]


@pytest.mark.parametrize(("text", "line"), BAD_STRATEGIES)
def test_a_bad_verifier_document(make_native, text, line):
    task = make_native("name: x\n", files={"verifier/verifier.md": text})
    with pytest.raises(TaskError) as caught:
        load_task(task)
    colon = "" if line.startswith(":") else ":"
    assert str(caught.value) == f"{task}/verifier/verifier.md{colon}{line}"


def test_a_native_task_with_steps(make_native):
    task = load_task(
        make_native(
            "steps:\n  - name: a\n  - name: b\n", "", {"steps/a/instruction.md": "A", "steps/b/instruction.md": "B"}
        )
    )
    assert [(step.name, step.instruction) for step in task.steps] == [("a", "A"), ("b", "B")]
