"""Every value rule of task.toml: what loads, and the exact line a user reads when it does not."""

from __future__ import annotations

import pytest

from pytest_benchflow.configfile import TaskError
from pytest_benchflow.core.errors import Category
from pytest_benchflow.tasks import load_task

REFUSED = [
    # [task]
    ('[task]\nname = "hello"', '2: [task] name is "hello"; give organisation/name, for example acme/hello-world'),
    ('[task]\nname = "a/b/c"', '2: [task] name is "a/b/c"; give organisation/name, for example acme/hello-world'),
    ('[task]\nname = "a/..b"', '2: [task] name is "a/..b"; give organisation/name, for example acme/hello-world'),
    ('[task]\nname = "a/b..c"', '2: [task] name is "a/b..c"; give organisation/name, for example acme/hello-world'),
    ('[task]\nname = "-a/b"', '2: [task] name is "-a/b"; give organisation/name, for example acme/hello-world'),
    ("[task]\nversion = '1'", "1: [task] name is missing; add it"),
    ('[task]\nname = "a/b"\nversion = ""', '3: [task] version is ""; give a value or remove the key'),
    ('[task]\nname = "a/b"\n[[task.authors]]\nemail = "x"', "3: [[task.authors]] name is missing; add it"),
    ('[task]\nname = "a/b"\nkeywords = "x"', '3: [task] keywords is "x"; give an array'),
    ('task = "a/b"', '1: task is "a/b"; give a table'),
    # [agent]
    ('[agent]\ntimeout_sec = "10m"', '2: [agent] timeout_sec is "10m"; give seconds as a number, for example 600'),
    ("[agent]\ntimeout_sec = nan", "2: [agent] timeout_sec is nan; give seconds as a number, for example 600"),
    ("[agent]\ntimeout_sec = inf", "2: [agent] timeout_sec is inf; give seconds as a number, for example 600"),
    ("[agent]\ntimeout_sec = 0", "2: [agent] timeout_sec is 0; give seconds as a number above 0, for example 600"),
    ("[agent]\nuser = []", '2: [agent] user is an array; give a user name or number, for example "root"'),
    ("[agent]\nuser = true", '2: [agent] user is true; give a user name or number, for example "root"'),
    ('[agent]\nnetwork_mode = "publik"', '2: [agent] network_mode is "publik"; did you mean public?'),
    (
        '[agent]\nnetwork_mode = "xyz"',
        '2: [agent] network_mode is "xyz"; known: allowlist, no-network, public',
    ),
    (
        '[agent]\nallowed_hosts = ["a.b"]',
        '2: [agent] allowed_hosts needs an allow list; add network_mode = "allowlist" or remove it',
    ),
    # [verifier]
    (
        "[verifier]\ntimeout_sec = -5",
        "2: [verifier] timeout_sec is -5; give seconds as a number above 0, for example 600",
    ),
    ("[verifier.env]\nPORT = 80", '2: [verifier.env] PORT is 80; quote it: "80"'),
    ("[verifier.env]\nDEBUG = true", '2: [verifier.env] DEBUG is true; quote it: "true"'),
    ('[verifier.env]\n"A=B" = "x"', "2: [verifier.env] A=B cannot name a variable; use letters, digits and _"),
    ('[solution.env]\n"" = "x"', "1: [solution] env has a variable without a name; name it"),
    ('[environment.env]\nA = "\\u0000"', "2: [environment.env] A holds a NUL byte; remove it"),
    ("[verifier.env]\nX = []", "2: [verifier.env] X is an array; give a string"),
    ('[verifier]\nenvironment_mode = "own"', '2: [verifier] environment_mode is "own"; known: separate, shared'),
    (
        '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1',
        '2: [verifier] environment_mode is "shared" although the verifier has its own environment; '
        'set environment_mode = "separate" or remove the environment table of the verifier',
    ),
    ('[[verifier.collect]]\nservice = "db"', "1: [[verifier.collect]] command is missing; add it"),
    ('[verifier]\ntype = "llm"', '2: [verifier] type is "llm"; known: llm-judge, test-script'),
    ("[verifier]\nreward_range = [0.2, 1]", "2: [verifier] reward_range is [0.2, 1]; it may only widen [0, 1]"),
    (
        '[verifier]\nreward_range = "wide"',
        '2: [verifier] reward_range is "wide"; give the lowest and the highest reward, for example [0, 10]',
    ),
    (
        '[verifier.hardening]\ncleanup_conftests = "no"',
        '2: [verifier.hardening] cleanup_conftests is "no"; give true or false',
    ),
    (
        "[verifier.hardening]\ncleanup_conftests = 0",
        "2: [verifier.hardening] cleanup_conftests is 0; give true or false",
    ),
    ('[verifier]\npytest_plugins = "x"', '2: [verifier] pytest_plugins is "x"; give an array'),
    # [environment]
    ('environment = "x"', '1: environment is "x"; give a table'),
    ("[environment]\ncpus = nan", "2: [environment] cpus is nan; give a number"),
    ('[environment]\ncpus = "two"', '2: [environment] cpus is "two"; give a number'),
    (
        '[environment]\nmemory_mb = "2G"',
        '2: [environment] memory_mb is "2G"; give megabytes as a whole number, for example 2048',
    ),
    (
        "[environment]\nmemory_mb = 1.5",
        "2: [environment] memory_mb is 1.5; give megabytes as a whole number, for example 2048",
    ),
    (
        '[environment]\nmemory = "2X"',
        '2: [environment] memory is "2X"; give memory_mb in megabytes, for example memory_mb = 2048',
    ),
    (
        '[environment]\nmemory = "2G"\nmemory_mb = 1024',
        '2: [environment] memory is "2G" but memory_mb is 1024; keep memory_mb alone',
    ),
    (
        '[environment]\nstorage_mb = 1\nstorage = "10G"',
        '3: [environment] storage is "10G" but storage_mb is 1; keep storage_mb alone',
    ),
    ('[environment]\nallow_internet = "no"', '2: [environment] allow_internet is "no"; give true or false'),
    ('[environment]\nos = "macos"', '2: [environment] os is "macos"; known: linux, windows'),
    ("[environment]\ngpus = -1", "2: [environment] gpus is -1; give a number of at least 0"),
    (
        '[environment.tpu]\ntype = "v5e"\ntopology = "big"',
        '3: [environment.tpu] topology is "big"; give the chips per dimension, for example 2x4',
    ),
    ('[environment]\nworkdir = ""', '2: [environment] workdir is ""; give a value or remove the key'),
    ("[environment.healthcheck]\nretries = 2", "1: [environment.healthcheck] command is missing; add it"),
    (
        '[environment.healthcheck]\ncommand = "x"\nretries = "many"',
        '3: [environment.healthcheck] retries is "many"; give a whole number',
    ),
    (
        '[[environment.mcp_servers]]\nname = "a"',
        "1: [[environment.mcp_servers]] url is missing; a server with transport sse needs its url",
    ),
    (
        '[[environment.mcp_servers]]\nname = "a"\ntransport = "http"',
        "1: [[environment.mcp_servers]] url is missing; a server with transport streamable-http needs its url",
    ),
    (
        '[[environment.mcp_servers]]\nname = "a"\ntransport = "stdio"',
        "1: [[environment.mcp_servers]] command is missing; a stdio server needs the command that starts it",
    ),
    (
        '[[environment.mcp_servers]]\nname = "a"\ntransport = "tcp"',
        '3: [[environment.mcp_servers]] transport is "tcp"; known: sse, stdio, streamable-http',
    ),
    (
        '[[environment.mcp_servers]]\nname = "a"\nurl = "u"\nheaders = { Authorization = "Bearer abc" }',
        "4: [[environment.mcp_servers]] headers holds a literal credential in Authorization; "
        'name a variable of the host instead, for example Authorization = "${MY_TOKEN}"',
    ),
    (
        '[environment]\nblocked_hosts = ["a.b"]',
        '2: [environment] blocked_hosts needs a deny list; add network_mode = "denylist" or remove it',
    ),
    ("[solution]\nenv = 3", "2: [solution] env is 3; give a table"),
    # steps
    ('steps = "a"', '1: steps is "a"; give an array'),
    ("[[steps]]\nmin_reward = 1", "1: [[steps]] name is missing; add it"),
    ('[[steps]]\nname = "a/b"', '2: [[steps]] name "a/b" cannot name a directory; use letters, digits, - and _'),
    ('[[steps]]\nname = ".."', '2: [[steps]] name ".." cannot name a directory; use letters, digits, - and _'),
    ('[[steps]]\nname = ""', '2: [[steps]] name "" cannot name a directory; use letters, digits, - and _'),
    (
        '[[steps]]\nname = "con"',
        '2: [[steps]] name "con" is a reserved device name on Windows; use letters, digits, - and _',
    ),
    (
        '[[steps]]\nname = "a."',
        '2: [[steps]] name "a." starts or ends with a character that some systems drop; use letters, digits, - and _',
    ),
    (
        f'[[steps]]\nname = "{"x" * 256}"',
        f'2: [[steps]] name "{"x" * 57}..." is longer than 255 bytes; use letters, digits, - and _',
    ),
    (
        '[[steps]]\nname = "One"\n[[steps]]\nname = "one"',
        '1: steps has two steps named "One" and "one"; each step is a directory, give each its own name',
    ),
    (
        '[[steps]]\nname = "é"\n[[steps]]\nname = "e\u0301"',
        '1: steps has two steps named "é" and "e\u0301"; each step is a directory, give each its own name',
    ),
    (
        '[[steps]]\nname = "a"\nmin_reward = "high"',
        '3: [[steps]] min_reward is "high"; give a number, or a table of numbers by reward key',
    ),
    (
        '[[steps]]\nname = "a"\n[steps.min_reward]\nx = "high"',
        "3: [[steps]] min_reward is a table; give a number, or a table of numbers by reward key",
    ),
    (
        '[[steps]]\nname = "a"\n[steps.agent]\ntimeout_sec = "x"',
        '4: [steps.agent] timeout_sec is "x"; give seconds as a number, for example 600',
    ),
    ('multi_step_reward_strategy = "max"', '1: multi_step_reward_strategy is "max"; known: final, mean'),
    # artifacts
    ('artifacts = ["../x"]', '1: artifacts has "../x"; write the path without ..'),
    (
        '[[artifacts]]\nsource = "/a"\ndestination = "/b"',
        '3: [[artifacts]] destination is "/b"; give a path relative to artifacts/, without .. or backslash',
    ),
    (
        '[[artifacts]]\nsource = "/a"\ndestination = "b\\\\c"',
        '3: [[artifacts]] destination is "b\\\\c"; give a path relative to artifacts/, without .. or backslash',
    ),
    (
        '[[artifacts]]\nsource = "/a"\ndestination = "x/../../b"',
        '3: [[artifacts]] destination is "x/../../b"; give a path relative to artifacts/, without .. or backslash',
    ),
    (
        '[[artifacts]]\nsource = "/a"\ndestination = "manifest.json"',
        '3: [[artifacts]] destination is "manifest.json"; choose another name, this file is written by the runner',
    ),
    (
        '[[artifacts]]\nsource = "a"\nservice = "db"',
        '2: [[artifacts]] source is "a"; a path in the service db must be absolute',
    ),
    ("artifacts = [3]", "1: artifacts has 3; give a table"),
    # benchflow
    ('[benchflow]\nthreshold = "high"', '2: [benchflow] threshold is "high"; give a number'),
    ("[benchflow]\ntrials = 0", "2: [benchflow] trials is 0; give a number of at least 1"),
    ("[benchflow]\ntrials = 10001", "2: [benchflow] trials is 10001; give a number of at most 10000"),
    ('[benchflow]\nskip = ""', '2: [benchflow] skip is ""; give the reason as a string, or true'),
    # root
    ("schema_version = []", "1: schema_version is an array; give a string"),
    ('metadata = "x"', '1: metadata is "x"; give a table'),
]


@pytest.mark.parametrize(("toml", "line"), REFUSED, ids=[line.split(";")[0] for _, line in REFUSED])
def test_a_bad_value_is_one_line_with_place_and_fix(make_task, toml, line):
    task = make_task(toml)
    with pytest.raises(TaskError) as caught:
        load_task(task)
    mine = [str(problem) for problem in caught.value.problems if problem.file.endswith("task.toml")]
    assert mine == [f"{task}/task.toml:{line}"]
    assert caught.value.category is Category.TASK
    assert not caught.value.retryable


ACCEPTED = [
    ("", "agent.timeout_sec", None),
    ("", "verifier.timeout_sec", 600.0),
    ("", "environment.build_timeout_sec", 600.0),
    ("", "environment.cpus", None),
    ("", "environment.memory_mb", None),
    ("", "environment.storage_mb", None),
    ("", "environment.gpus", None),
    ("", "environment.network_mode", "public"),
    ("", "environment.os", "linux"),
    ("", "schema_version", "1.4"),
    ("", "multi_step_reward_strategy", None),
    ("", "verifier.hardening.cleanup_conftests", True),
    ("", "verifier.mode", "shared"),
    ('version = "1.0"', "schema_version", "1.0"),
    ('schema_version = "2.0"', "schema_version", "2.0"),
    ('schema_version = "not a number"', "schema_version", "not a number"),
    ("version = 1.0", "schema_version", "1.0"),
    ('version = "1.1"\nschema_version = "1.1"', "schema_version", "1.1"),
    ('version = "1.0"\nschema_version = "1.1"', "schema_version", "1.1"),
    ('version = []\nschema_version = "1.1"', "schema_version", "1.1"),
    ('source = "somewhere"', "source", "somewhere"),
    ("[agent]\ntimeout_sec = 30.9", "agent.timeout_sec", 30.9),
    ('[agent]\ntimeout_sec = "600"', "agent.timeout_sec", 600.0),
    ("[agent]\nuser = 1000", "agent.user", 1000),
    ('[agent]\nuser = "root"', "agent.user", "root"),
    ('[agent]\nprompt_prefix = "Think."', "agent.prompt_prefix", "Think."),
    (
        '[agent]\nnetwork_mode = "allowlist"\n'
        'allowed_hosts = ["API.Example.com", "*.x.org", "10.0.0.0/8", "::1", "localhost"]',
        "agent.allowed_hosts",
        ("api.example.com", "*.x.org", "10.0.0.0/8", "::1", "localhost"),
    ),
    ('[environment]\nmemory = "2G"', "environment.memory_mb", 2048),
    ('[environment]\nmemory = "512M"', "environment.memory_mb", 512),
    ('[environment]\nmemory = "2048K"', "environment.memory_mb", 2),
    ('[environment]\nmemory = "2G"\nmemory_mb = 2048', "environment.memory_mb", 2048),
    ('[environment]\nstorage = "10G"', "environment.storage_mb", 10240),
    ("[environment]\nallow_internet = false", "environment.network_mode", "no-network"),
    ("[environment]\nallow_internet = true", "environment.network_mode", "public"),
    ('[environment]\nallow_internet = false\nnetwork_mode = "public"', "environment.network_mode", "public"),
    ("[environment]\ncpus = 2.0", "environment.cpus", 2),
    ("[environment]\ncpus = 0.5", "environment.cpus", 0.5),
    ("[environment]\ngpus = 0", "environment.gpus", 0),
    ('[environment]\nos = "Windows"\n[verifier]\nenvironment = {docker_image = "x"}', "environment.os", "windows"),
    ('[sandbox]\nimage = "ubuntu:24.04"', "environment.docker_image", "ubuntu:24.04"),
    ('[sandbox]\nworkdir = "/w"', "environment.workdir", "/w"),
    ('[environment.tpu]\ntype = "v5e"\ntopology = "2x4"', "environment.tpu.topology", "2x4"),
    ('[oracle]\ntimeout_sec = 5\nenv = {A = "${B}"}', "solution.timeout_sec", 5.0),
    ('[verifier]\nenvironment = {docker_image = "x"}', "verifier.mode", "separate"),
    ('[verifier]\nenvironment_mode = "separate"', "verifier.mode", "separate"),
    ('[verifier]\nsandbox_mode = "separate"', "verifier.mode", "separate"),
    ("[verifier]\nreward_range = [-1, 10]", "verifier.reward_range", (-1.0, 10.0)),
    ('[verifier]\npytest_plugins = ["a", "b"]', "verifier.pytest_plugins", ("a", "b")),
    ("[verifier.hardening]\ncleanup_conftests = false", "verifier.hardening.cleanup_conftests", False),
    ('[[verifier.collect]]\ncommand = "x"', "verifier.collect.0.timeout_sec", 60.0),
    ('[[verifier.collect]]\ncommand = "x"', "verifier.collect.0.service", "main"),
    ('[environment.healthcheck]\ncommand = "x"', "environment.healthcheck.interval_sec", 5.0),
    ('[environment.healthcheck]\ncommand = "x"', "environment.healthcheck.timeout_sec", 30.0),
    ('[environment.healthcheck]\ncommand = "x"', "environment.healthcheck.start_period_sec", 0.0),
    ('[environment.healthcheck]\ncommand = "x"', "environment.healthcheck.start_interval_sec", 5.0),
    ('[environment.healthcheck]\ncommand = "x"', "environment.healthcheck.retries", 3),
    ('[[environment.mcp_servers]]\nname = "a"\nurl = "u"', "environment.mcp_servers.0.transport", "sse"),
    (
        '[[environment.mcp_servers]]\nname = "a"\nurl = "u"\ntransport = "http"',
        "environment.mcp_servers.0.transport",
        "streamable-http",
    ),
    (
        '[[environment.mcp_servers]]\nname = "a"\nurl = "u"\nheaders = {Authorization = "Bearer ${T}"}',
        "environment.mcp_servers.0.headers",
        {"Authorization": "Bearer ${T}"},
    ),
    ('[[environment.setup_commands]]\ncommand = "x"', "environment.setup_commands.0.timeout_sec", 600.0),
    ('artifacts = ["/a"]', "artifacts.0.source", "/a"),
    ('artifacts = [{source = "/a", exclude = ["*.o"]}]', "artifacts.0.exclude", ("*.o",)),
    ("[metadata]\nanything = [1979-05-27, {a = 1}]", "task", None),
    ("[benchflow]\nskip = true", "benchflow.skip", "as the task file says"),
    ("[benchflow]\nskip = false", "benchflow.skip", None),
]


@pytest.mark.parametrize(("toml", "path", "value"), ACCEPTED, ids=[f"{toml!r} {path}" for toml, path, _ in ACCEPTED])
def test_a_good_value_and_every_default(make_task, toml, path, value):
    found: object = load_task(make_task(toml)).config
    for part in path.split("."):
        found = found[int(part)] if part.isdigit() else getattr(found, part)  # type: ignore[index]
    assert found == value
    assert type(found) is type(value)


def test_a_judge_has_defaults(make_task):
    toml = '[verifier]\ntype = "llm-judge"\nenvironment_mode = "separate"\n[verifier.judge]\n'
    task = load_task(make_task(toml, {"tests/rubric.toml": "x"}))
    judge = task.config.verifier.judge
    assert judge is not None
    assert (judge.model, judge.rubric_path, judge.input_dir) == ("claude-sonnet-4-6", "tests/rubric.toml", "/app")
    assert (judge.input_type, judge.context) == ("deliverables", "")
    assert task.steps[0].verifier.rubric == task.path / "tests/rubric.toml"
    assert task.steps[0].verifier.mode == "shared"  # it looks at what the agent left, wherever tests would run


BAD_HOSTS = [
    ("https://x.org", "has"), ("x.org:80", "has"), ("x.org/path", "has"), ("10.0.0.1/8", "has"), ("a.*.b", "has"),
    ("", "has"), ("-a.b", "has"), ("1.2.3", "has"), ("a b", "has"),
]  # fmt: skip


@pytest.mark.parametrize(("host", "word"), BAD_HOSTS)
def test_hosts_have_no_scheme_port_or_path(make_task, host, word):
    with pytest.raises(TaskError) as caught:
        load_task(make_task(f'[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["{host}"]'))
    assert f':3: [environment] allowed_hosts {word} "{host}"; give ' in str(caught.value)


def test_a_value_that_may_be_of_two_kinds_is_one_problem(make_task):
    with pytest.raises(TaskError) as caught:
        load_task(make_task("[benchflow]\nassets = 3"))
    assert len(caught.value.problems) == 1


def test_all_problems_of_a_file_come_together_in_order(make_task):
    task = make_task(
        '[environment]\ncpus = "x"\nmemory_bm = 4\nallowed_hosts = ["http://x"]\n\n[agent]\ntimeout_sec = "10m"\n'
        '[verifier.env]\nA = 1\nB = 2\n[[steps]]\nname = "?"\n[[steps]]\nmin_reward = "a"\n'
    )
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4, 7, 9, 10, 12, 13, 14]
    assert len(str(caught.value).splitlines()) == 9
