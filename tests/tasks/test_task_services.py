"""A task may name compose services; those that it does not have are told with file, line and key."""

from __future__ import annotations

import pytest

from pytest_benchflow.configfile import TaskError
from pytest_benchflow.core.files import compose_file
from pytest_benchflow.tasks import load_task, service_mentions

COMPOSE = {"environment/docker-compose.yaml": "services:\n  main: {}\n  db: {image: postgres}\n  web: {image: nginx}\n"}
STEP = {"steps/one/instruction.md": "First.\n"}
ALL = """
[[artifacts]]
source = "/x"
service = "NAME"
[verifier]
service = "NAME"
[[verifier.collect]]
command = "true"
service = "NAME"
[[environment.setup_commands]]
command = "true"
service = "NAME"
[[steps]]
name = "one"
[[steps.artifacts]]
source = "/y"
service = "NAME"
[steps.verifier]
service = "NAME"
[[steps.verifier.collect]]
command = "true"
service = "NAME"
"""
LINES = [
    "4: [[artifacts]] service",
    "9: [[verifier.collect]] service",
    "12: [[environment.setup_commands]] service",
    "17: [[steps.artifacts]] service",
    "19: [steps.verifier] service",
    "22: [[steps.verifier.collect]] service",
]


def problems(path) -> list[str]:
    with pytest.raises(TaskError) as caught:
        load_task(path)
    return [line.removeprefix(f"{path}/") for line in str(caught.value).splitlines()]


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("wbe", COMPOSE, 'is "wbe", no service of environment/docker-compose.yaml; did you mean web?'),
        ("queue", COMPOSE, 'is "queue", no service of environment/docker-compose.yaml; known: db, main, web'),
        (
            "db",
            {},
            'is "db", but there is no environment/docker-compose.yaml; '
            "describe the service there, or leave the key out",
        ),
    ],
    ids=["near miss", "unknown", "no compose file"],
)
def test_every_key_that_names_no_service_is_told(make_task, name, files, said):
    path = make_task(ALL.replace("NAME", name), {**files, **STEP})
    assert problems(path) == [f"task.toml:{line} {said}" for line in LINES]


def test_services_of_the_compose_file_are_known(make_task):
    task = load_task(make_task(ALL.replace("NAME", "db"), {**COMPOSE, **STEP}))
    assert {mention.service for mention in service_mentions(task)} == {"db"}
    assert not service_mentions(load_task(make_task(ALL.replace("NAME", "main"), STEP, name="plain")))


def test_front_matter_is_told_in_its_own_words(make_native):
    path = make_native("sandbox:\n  setup_commands:\n    - command: x\n      service: web\n")
    (told,) = problems(path)
    assert told.startswith('task.md:5: sandbox.setup_commands.service is "web", but there is no environment/docker-com')


@pytest.mark.parametrize(
    "compose",
    ["include: [more.yaml]\n", "services: !override {}\n", "services: [\n", "services: none\n"],
    ids=["other files", "tags", "broken", "no mapping"],
)
def test_what_only_compose_can_read_is_left_to_it(make_task, compose):
    load_task(make_task('[verifier]\nservice = "db"\n', {"environment/docker-compose.yaml": compose}))


def test_a_separate_verifier_has_services_of_its_own(make_task):
    toml = '[verifier]\nenvironment_mode = "separate"\nservice = "checker"\n'
    path = make_task(toml, {**COMPOSE, "tests/docker-compose.yaml": "services: {checker: {image: x}}\n"})
    (mention,) = service_mentions(load_task(path))
    assert mention.directory == path / "tests"
    path = make_task('[verifier]\nservice = "db"\n[verifier.environment]\ndocker_image = "x"\n', COMPOSE, name="image")
    assert problems(path)[0].startswith('task.toml:2: [verifier] service is "db", but there is no ')


@pytest.mark.parametrize(
    ("declared", "sources"),
    [
        ('[[artifacts]]\nsource = "/logs/artifacts/"\nexclude = ["*.log"]\n', [("/logs/artifacts/", ("*.log",))]),
        (
            '[[artifacts]]\nsource = "/logs/artifacts"\nservice = "db"\ndestination = "db"\n',
            [("/logs/artifacts", ()), ("/logs/artifacts", ())],
        ),
    ],
    ids=["main's own", "another service's"],
)
def test_what_is_always_kept_can_be_declared_in_other_words(make_task, declared, sources):
    (step,) = load_task(make_task(declared, COMPOSE)).steps
    assert [(artifact.source, artifact.exclude) for artifact in step.artifacts] == sources


DATA = [
    "COPY docker-compose.yaml /app/\n",
    'ADD ["./docker-compose.yaml", "/app/"]\n',
    "copy --chown=1:1 a \\\n  docker-compose*.yaml /app/\n",
]
PROJECT = [
    "COPY . /app\n",
    "COPY * /app/\n",
    "COPY *.yaml /app/\n",
    "COPY --from=x docker-compose.yaml /app/\n",
    "RUN x\n",
]


@pytest.mark.parametrize("line", [*DATA, *PROJECT])
def test_a_compose_file_that_the_image_gets_is_data(make_task, line):
    files = {"environment/Dockerfile": f"FROM x\n{line}", **COMPOSE}
    directory = load_task(make_task("", files)).environment_dir
    assert (compose_file(directory) is None) == (line in DATA)


def test_a_compose_file_of_another_name_is_not_read_and_that_is_said(make_task):
    files = {"environment/Dockerfile": "FROM x\n", "environment/docker-compose.yml": "services: {}\n"}
    task = load_task(make_task("", files))
    assert compose_file(task.environment_dir) is None
    assert [str(problem).removeprefix(f"{task.path}/") for problem in task.warnings] == [
        "environment/docker-compose.yml: is not read, only docker-compose.yaml is; "
        "rename it if the task needs its services"
    ]
    (task.path / "environment/Dockerfile").write_text("FROM x\nCOPY docker-compose.yml /app/\n")
    assert load_task(task.path).warnings == ()
