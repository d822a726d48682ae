"""What a task directory must hold, and what is said when it does not."""

from __future__ import annotations

import os
import shutil

import pytest

from pytest_benchflow.configfile import TaskError
from pytest_benchflow.configfile.sources import MAX_BYTES
from pytest_benchflow.tasks import TaskIndex, find_tasks, load_task

STEPS = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
WRITE = "write there what the agent has to do"
SCRIPT = "create a script that writes the reward to /logs/verifier/reward.txt"
BUILD = "create environment/Dockerfile there, or name an image with docker_image"

MISSING = [
    ("instruction.md", "", ["instruction.md"], [f"instruction.md: is missing; {WRITE}"]),
    ("tests/test.sh", "", ["tests/test.sh"], [f"tests/test.sh: is missing; {SCRIPT}"]),
    ("environment", "", ["environment"], [f"environment: is missing; {BUILD}"]),
    (
        "everything",
        "",
        ["environment", "instruction.md", "tests/test.sh"],
        [
            f"environment: is missing; {BUILD}", f"instruction.md: is missing; {WRITE}",
            f"tests/test.sh: is missing; {SCRIPT}",
        ],
    ),
    ("an image stands for environment", '[environment]\ndocker_image = "x"', ["environment"], []),
    ("windows runs a batch file", '[environment]\nos = "windows"', [], [f"tests/test.bat: is missing; {SCRIPT}"]),
    (
        "a verifier image holds the tests",
        '[verifier.environment]\ndocker_image = "x"',
        ["tests/test.sh"],
        [],
    ),
    ("a separate verifier without image needs them", SEPARATE, ["tests/test.sh"], [
        f"tests/test.sh: is missing; {SCRIPT}"
    ]),
    ("steps need instructions, the task none", STEPS, ["instruction.md"], [
        f"steps/one/instruction.md: is missing; {WRITE}", f"steps/two/instruction.md: is missing; {WRITE}",
    ]),
    ("a judge needs its rubric", '[verifier]\ntype = "llm-judge"', [], [
        "tests/rubric.toml: is missing; write the criteria of the judge there"
    ]),
    ("a judge needs the rubric it names", 'verifier = {type = "llm-judge", judge = {rubric_path = "r.toml"}}', [], [
        "r.toml: is missing; write the criteria of the judge there"
    ]),
]  # fmt: skip


def remove(root, names):
    for name in names:
        path = root / name
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize(("toml", "removed", "lines"), [row[1:] for row in MISSING], ids=[row[0] for row in MISSING])
def test_missing_parts_are_named_by_loader_and_collection_alike(make_task, toml, removed, lines):
    task = make_task(toml)
    remove(task, removed)
    wanted = [f"{task}/{line}" for line in lines]
    for look in (load_task, lambda path: TaskIndex().summary(str(path))):
        if not wanted:
            assert look(task) is not None
            continue
        with pytest.raises(TaskError) as caught:
            look(task)
        assert str(caught.value).splitlines() == wanted


def test_steps_may_bring_their_own_tests(make_task):
    own = {f"steps/{name}/{part}": "x" for name in ("one", "two") for part in ("instruction.md", "tests/test.sh")}
    task = make_task(STEPS, own)
    remove(task, ["tests/test.sh", "tests", "instruction.md"])
    assert [step.tests_dirs for step in load_task(task).steps] == [
        (task / "steps/one/tests",),
        (task / "steps/two/tests",),
    ]
    (task / "steps/two/tests/test.sh").unlink()
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert str(caught.value) == f"{task}/tests/test.sh: is missing; {SCRIPT}"


def test_steps_may_bring_their_own_rubrics(make_task):
    judged = 'verifier = {type = "llm-judge"}\n'
    toml = f'[[steps]]\nname = "one"\n{judged}[[steps]]\nname = "two"\n{judged}'
    files = {f"steps/{name}/instruction.md": "x" for name in ("one", "two")}
    task = make_task(toml, {**files, "steps/one/tests/rubric.json": "{}", "tests/rubric.toml": "x"})
    assert [step.verifier.rubric for step in load_task(task).steps] == [
        task / "steps/one/tests/rubric.json",
        task / "tests/rubric.toml",
    ]
    (task / "tests/rubric.toml").unlink()
    with pytest.raises(TaskError, match=r"steps/two/tests/rubric\.toml: is missing; write the criteria"):
        load_task(task)


def test_a_separate_verifier_may_build_its_tests(make_task):
    task = make_task(SEPARATE, {"tests/Dockerfile": "FROM x"})
    remove(task, ["tests/test.sh"])
    verifier = load_task(task).steps[0].verifier
    assert verifier.build_dir == task / "tests"
    assert not verifier.uploads_tests


def test_a_file_in_place_of_a_directory_and_the_reverse(make_task):
    task = make_task("", {"tests/test.sh": None, "tests/test.sh/": "", "instruction.md": None, "instruction.md/": ""})
    (task / "environment").rmdir()
    (task / "environment").write_text("")
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert [str(problem).split(": ", 1)[1].split(";")[0] for problem in caught.value.problems] == [
        "is not a directory",
        "is not a file",
        "is not a file",
    ]


@pytest.mark.parametrize(
    ("text", "reason"), [("", "is empty"), (" \n\t\n", "says nothing"), ("# canary x\n\n", "says nothing")]
)
def test_an_instruction_has_to_say_something(make_task, text, reason):
    task = make_task("", {"instruction.md": text})
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert str(caught.value) == f"{task}/instruction.md: {reason}; {WRITE}"


CANARY = [
    ("<!-- harbor-canary GUID 1 -->\n\nDo it\n", "Do it\n"),
    ("# CANARY string\n# another canary\n\n\nDo it", "Do it"),
    ("# Heading\ncanary\n", "# Heading\ncanary\n"),
    ("Do it\n# canary\n", "Do it\n# canary\n"),
    ("\n \t\nDo it", "Do it"),
    ("\n# canary\nDo it", "# canary\nDo it"),
    ("  # canary\x0c\r\n\r\nDo it\r\n\r\n", "Do it\n\n"),
    ("<!-- no bird -->\nDo it\x0cnow\n", "<!-- no bird -->\nDo it\x0cnow\n"),
    ("the canary # sings\n", "the canary # sings\n"),
]


@pytest.mark.parametrize(("text", "seen"), CANARY)
def test_the_agent_never_sees_the_canary(make_task, text, seen):
    assert load_task(make_task("", {"instruction.md": text})).steps[0].instruction == seen


UNREADABLE = [
    (b"a = 1\nb = \xff\n", ":2: holds the byte 0xff, which is not UTF-8; save the file as UTF-8"),
    (b"a = 1\n\n\x00", ":3: holds a NUL byte; save the file as plain text"),
    (b"#" * (MAX_BYTES + 1), ": is larger than 1 MB; keep data in environment/, this file is for settings and text"),
    (b"[agent\n", ":1: is not valid TOML: expected ']' at the end of a table declaration"),
    (b"a = 1\na = 2\n", ":2: is not valid TOML: cannot overwrite a value"),
    (b"x = " + b"[" * 5000, ": is nested too deeply"),
]


@pytest.mark.parametrize(("raw", "line"), UNREADABLE, ids=[line[:40] for _, line in UNREADABLE])
def test_a_file_that_cannot_be_parsed_is_one_problem(make_task, raw, line):
    task = make_task(raw)
    for look in (load_task, lambda path: TaskIndex().summary(str(path))):
        with pytest.raises(TaskError) as caught:
            look(task)
        assert str(caught.value) == f"{task}/task.toml{line}"


def test_a_huge_integer_is_a_problem_of_the_file(make_task):
    with pytest.raises(TaskError, match="is not valid TOML: Exceeds the limit"):
        load_task(make_task("x = " + "9" * 5000))


def test_a_directory_called_task_toml(make_task):
    task = make_task("", {"task.toml": None, "task.toml/": ""})
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert str(caught.value) == f"{task}/task.toml: is a directory; put a text file in its place"


def test_a_pipe_called_task_toml_does_not_hang(make_task):
    task = make_task("", {"task.toml": None})
    os.mkfifo(task / "task.toml")
    os.mkfifo(task / "task.md")
    with pytest.raises(TaskError, match="is not a regular file"):
        load_task(task)


def test_an_unreadable_file(make_task, monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied")

    task = make_task()
    monkeypatch.setattr("pytest_benchflow.configfile.sources.os.open", denied)
    with pytest.raises(TaskError, match=r"task.toml: cannot be read \(Permission denied\); check its permissions"):
        load_task(task)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(make_task):
    assert load_task(make_task(b"\xef\xbb\xbf[agent]\r\ntimeout_sec = 5\r\n")).config.agent.timeout_sec == 5


def test_links_must_stay_inside_the_task(make_task, tmp_path):
    task = make_task()
    (tmp_path / "secret").write_text("x")
    (task / "environment" / "inside").symlink_to("../instruction.md")
    (task / "environment" / "dangling").symlink_to("nowhere")
    load_task(task)
    (task / "tests" / "outside").symlink_to(tmp_path / "secret")
    with pytest.raises(TaskError) as caught:
        load_task(task)
    fix = "copy the file into the task, a task has to be complete by itself"
    assert str(caught.value) == f"{task}/tests/outside: is a link to {tmp_path}/secret, outside the task; {fix}"


def test_many_links_that_lead_out_are_counted(make_task, tmp_path):
    task = make_task()
    for number in range(8):
        (task / "tests" / f"outside{number}").symlink_to(tmp_path)
    with pytest.raises(TaskError) as caught:
        load_task(task)
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"{task}/tests/outside{number}" for number in range(5)]
    assert "outside the task (the same or the like of 3 more files); copy the file" in lines[-1]
    # A part that is refused as a whole is not looked into.
    (task / "environment" / "link").symlink_to(tmp_path)
    (task / "environment").rename(tmp_path / "elsewhere")
    shutil.rmtree(task / "tests")
    (task / "tests").mkdir()
    (task / "tests/test.sh").write_text("")
    (task / "environment").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert len(str(caught.value).splitlines()) == 1


def test_parts_of_a_task_may_be_links_to_those_of_a_task_beside_it(make_task, tmp_path):
    donor = make_task("[agent]\ntimeout_sec = 5\n", {"environment/Dockerfile": "FROM x\n"}, name="suite/donor")
    (donor / "tests/inside").symlink_to("../instruction.md")
    task = tmp_path / "suite/borrower"
    task.mkdir()
    for part in ("task.toml", "instruction.md", "environment", "tests"):
        (task / part).symlink_to(f"../donor/{part}")
    before = load_task(task).digest()
    (donor / "environment/Dockerfile").write_text("FROM y\n")
    assert load_task(task).digest() != before
    (donor / "tests/inside").unlink()
    (donor / "tests/inside").symlink_to(task)
    with pytest.raises(TaskError, match=r"tests/inside: is a link to .*borrower, outside the task; copy the file"):
        load_task(task)
    (donor / "tests/inside").unlink()
    (task / "environment").unlink()
    (task / "environment").symlink_to(tmp_path)
    with pytest.raises(TaskError, match=r"environment: is a link to .*, outside the folder of the task; copy the"):
        load_task(task)


def test_links_to_tasks_are_followed_and_loops_are_not(make_task, tmp_path):
    make_task(name="suite/real")
    make_task(name="other/far")
    (tmp_path / "suite/alias").symlink_to("real")
    (tmp_path / "suite/others").symlink_to("../other")
    (tmp_path / "suite/loop").symlink_to(".")
    (tmp_path / "other/back").symlink_to("../suite")
    found = [str(path.relative_to(tmp_path / "suite")) for path in find_tasks(tmp_path / "suite")]
    assert found == ["alias", "others/far", "real"]


def test_a_linked_task_directory_is_a_task(make_task, tmp_path):
    make_task("", name="real")
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    assert load_task(tmp_path / "alias").name == "alias"


def test_a_path_that_holds_no_task(tmp_path):
    with pytest.raises(TaskError) as caught:
        load_task(tmp_path)
    assert str(caught.value) == f"{tmp_path}: holds no task; a task has a task.toml, or a task.md with front matter"
    with pytest.raises(TaskError, match="gone: is missing"):
        load_task(tmp_path / "gone")


def test_messages_are_relative_to_the_working_directory(make_task, tmp_path, monkeypatch):
    task = make_task('[agent]\ntimeout_sec = "10m"')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TaskError) as caught:
        load_task(task)
    assert str(caught.value) == (
        'hello/task.toml:2: [agent] timeout_sec is "10m"; give seconds as a number, for example 600'
    )


def test_a_task_error_survives_pickling(make_task):
    import pickle

    with pytest.raises(TaskError) as caught:
        load_task(make_task("[agent]\nuser = []"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems) == (str(caught.value), caught.value.problems)
