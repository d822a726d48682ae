"""Unknown and misplaced keys: a warning with a hint, an error when strict."""

from __future__ import annotations

import pytest

from pytest_benchflow.configfile import TaskError
from pytest_benchflow.tasks import load_task

HINTS = [
    ("[environment]\nmemory_bm = 1", "2: [environment] memory_bm is not a known key; did you mean memory_mb?"),
    ("[agent]\ntimeout = 1", "2: [agent] timeout is not a known key; did you mean timeout_sec?"),
    (
        '[agent]\nmulti_step_reward_strategy = "mean"',
        "2: [agent] multi_step_reward_strategy is not a known key; it belongs at the top level",
    ),
    ("[agent]\nmemory_mb = 1", "2: [agent] memory_mb is not a known key; it belongs under [environment]"),
    (
        "timeout_sec = 1",
        "1: timeout_sec is not a known key; it belongs under [agent] or [verifier] or [solution]",
    ),
    ("[verifer]\nx = 1", "1: verifer is not a known key; did you mean verifier?"),
    ('[environment]\ndefinition = "x"', "2: [environment] definition is not a known key; remove it"),
    (
        '[[steps]]\nname = "a"\n[steps.verifier]\ntimout_sec = 1',
        "4: [steps.verifier] timout_sec is not a known key; did you mean timeout_sec?",
    ),
    (
        '[[environment.mcp_servers]]\nname = "a"\nurl = "u"\nurls = "u"',
        "4: [[environment.mcp_servers]] urls is not a known key; did you mean url?",
    ),
    (
        '[environment.healthcheck]\ncommand = "x"\nretry = 1',
        "3: [environment.healthcheck] retry is not a known key; did you mean retries?",
    ),
    (
        "[verifier.environment]\ncpu = 1",
        "2: [verifier.environment] cpu is not a known key; did you mean cpus?",
    ),
    (
        "[verifier.hardening]\nsandbox = true",
        "2: [verifier.hardening] sandbox is not a known key; known: clean_caches, clean_git, cleanup_conftests, "
        "enabled, kill_processes, pin_environment, protect_logs, remove_links, remove_shadows, "
        "restore_config, restore_system",
    ),
    ("[benchflow]\ntrial = 1", "2: [benchflow] trial is not a known key; did you mean trials?"),
    ("agents = 1", "1: agents is not a known key; did you mean agent?"),
    *(
        (f'{key} = "x"', f"1: {key} is not a known key; it belongs under [metadata]")
        for key in ("author_name", "author_email", "difficulty", "category", "tags")
    ),
    (
        '[task]\nname = "a/b"\ndifficulty = "easy"',
        "3: [task] difficulty is not a known key; it belongs under [metadata]",
    ),
    (
        '[environment]\nservices = ["db"]',
        "2: [environment] services is not a known key; describe services in environment/docker-compose.yaml",
    ),
    (
        '[environment]\ndockerfile = "Dockerfile"',
        "2: [environment] dockerfile is not a known key; remove it, environment/Dockerfile is what is built",
    ),
    (
        '[environment]\nsetup = "apt-get update"',
        "2: [environment] setup is not a known key; commands that prepare the sandbox belong into its setup_commands",
    ),
    ('[environment]\ntype = "docker"', "2: [environment] type is not a known key; remove it"),
    ('type = "code"', "1: type is not a known key; remove it"),
    (
        '[environment]\nimage = "x"',
        "2: [environment] image is not a known key; Harbor does not read it either, name an image with docker_image",
    ),
    (
        '[[steps]]\nname = "a"\ntimeout_sec = 1',
        "3: [[steps]] timeout_sec is not a known key; it belongs under [steps.agent] or [steps.verifier]",
    ),
]


@pytest.mark.parametrize(("toml", "line"), HINTS, ids=[line.split(":")[1] for _, line in HINTS])
def test_an_unknown_key_is_a_warning_with_a_hint(make_task, toml, line):
    files = {"steps/a/instruction.md": "x"} if "steps" in toml else {}
    path = make_task(toml, files)
    task = load_task(path)
    assert [str(problem) for problem in task.warnings] == [f"{path}/task.toml:{line}"]
    assert {problem.severity for problem in task.warnings} == {"warning"}


def test_an_image_of_the_environment_is_not_the_one_that_is_used(make_task):
    assert load_task(make_task('[environment]\nimage = "x"')).config.environment.docker_image is None
    assert load_task(make_task('[sandbox]\nimage = "x"')).config.environment.docker_image == "x"


def test_strict_makes_it_an_error(make_task):
    with pytest.raises(TaskError) as caught:
        load_task(make_task("[agent]\ntimeot_sec = 1"), strict=True)
    assert [problem.severity for problem in caught.value.problems] == ["error"]


def test_what_a_file_says_wrongly_several_times_is_one_line(make_task):
    path = make_task('[environment]\ncpus = "x"\n' + '[[artifacts]]\nsource = "/x"\nkeep = 1\n' * 8)
    with pytest.raises(TaskError) as caught:
        load_task(path)
    assert len(caught.value.problems) == 9
    _, line = str(caught.value).splitlines()
    assert line.startswith(f"{path}/task.toml:5: [[artifacts]] keep is not a known key; known: ")
    assert line.endswith(" (also in line 8, 11, 14, 17, 20 and 2 more)")


def test_metadata_env_and_headers_are_free(make_task):
    toml = """
[metadata]
multi_step_reward_strategy = "mean"
nested = { deep = { keys = 1 } }
[verifier.env]
ANYTHING = "x"
[reward]
free = 1
"""
    assert load_task(make_task(toml), strict=True).warnings == ()


def test_old_spellings_are_silent(make_task):
    toml = 'version = "1.0"\n[sandbox]\nmemory = "2G"\nstorage = "1G"\nallow_internet = true\nimage = "x"\n[oracle]\n'
    assert load_task(make_task(toml), strict=True).warnings == ()


def test_a_warning_comes_with_the_errors_of_the_file(make_task):
    with pytest.raises(TaskError) as caught:
        load_task(make_task('[environment]\ncpus = "x"\ncpuss = 2'))
    assert [problem.severity for problem in caught.value.problems] == ["error", "warning"]
