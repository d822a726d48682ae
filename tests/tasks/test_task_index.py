"""Heads and their cache: what collection sees, and when it parses again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from pytest_benchflow.configfile import TaskError
from pytest_benchflow.tasks import RunHints, TaskIndex, TaskSummary, find_task_file, index as index_module, load_task

TOML = """
[task]
name = "acme/hello"
keywords = ["io"]
[metadata]
difficulty = "easy"
category = "files"
[agent]
timeout_se = 4
[benchflow]
threshold = 0.5
skip = "slow"
"""


def settle(task):
    """Make the task file look older than the clock's grain."""
    past = time.time() - 60
    os.utime(find_task_file(task), (past, past))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "tasks.json"


@pytest.fixture
def parses(monkeypatch):
    """Count the parses."""
    from pytest_benchflow.tasks import summary

    calls = []
    real = summary.parse_summary
    monkeypatch.setattr(summary, "parse_summary", lambda *a: calls.append(a) or real(*a))
    return calls


def test_a_head_holds_what_collection_needs(make_task):
    path = make_task(TOML, {"solution/solve.sh": "x"})
    task_summary = TaskIndex().summary(str(path))
    assert task_summary == TaskSummary(
        file=f"{path}/task.toml",
        name="acme/hello",
        layout="harbor",
        os="linux",
        difficulty="easy",
        category="files",
        tags=("io",),
        run=RunHints(threshold=0.5, skip="slow"),
        n_steps=0,
        has_solution=True,
        warnings=load_task(path).warnings,
    )
    assert task_summary.warnings[0].key == "[agent] timeout_se"


@pytest.mark.parametrize("kind", ["make_task", "make_native"])
def test_the_second_run_parses_nothing(request, kind, cache, parses):
    task = request.getfixturevalue(kind)("")
    settle(task)
    first = TaskIndex.load(cache)
    task_summary = first.summary(str(task))
    first.save()
    again = TaskIndex.load(cache)
    assert again.summary(str(task)) == task_summary
    assert len(parses) == 1


def test_a_warm_head_needs_no_pydantic_and_no_yaml(make_task, cache):
    task = make_task(TOML)
    settle(task)
    index = TaskIndex.load(cache)
    index.summary(str(task))
    index.save()
    code = (
        "import sys, pathlib\nfrom pytest_benchflow.tasks import TaskIndex\n"
        "assert TaskIndex.load(pathlib.Path(sys.argv[1])).summary(sys.argv[2]).name == 'acme/hello'\n"
        "assert not {'pydantic', 'yaml', 'tomli', 'filelock', 'pytest'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(cache), str(task)], check=True)


@pytest.mark.parametrize("change", ["content", "time", "inode"])
def test_a_changed_file_is_parsed_again(make_task, cache, parses, change):
    task = make_task('[task]\nname = "a/one"\n')
    settle(task)
    index = TaskIndex.load(cache)
    index.summary(str(task))
    file = task / "task.toml"
    before = file.stat()
    if change == "inode":
        (task / "new").write_text('[task]\nname = "a/two"\n')
        (task / "new").rename(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        file.write_text('[task]\nname = "a/two"\n' if change == "time" else '[task]\nname = "a/three"\n')
    task_summary = index.summary(str(task))
    assert task_summary is not None
    assert task_summary.name in {"a/two", "a/three"}
    assert len(parses) == 2


def test_a_file_younger_than_the_clocks_grain_is_not_remembered(make_task, parses):
    task = make_task("")
    future = time.time() + 60
    os.utime(task / "task.toml", (future, future))
    index = TaskIndex()
    index.summary(str(task))
    index.summary(str(task))
    assert len(parses) == 2


def test_structure_is_checked_on_a_cache_hit(make_task, parses):
    task = make_task("")
    settle(task)
    index = TaskIndex()
    assert index.summary(str(task)) is not None
    (task / "tests/test.sh").unlink()
    with pytest.raises(TaskError, match=r"tests/test\.sh: is missing"):
        index.summary(str(task))
    (task / "tests/test.sh").write_text("x")
    assert index.summary(str(task)) is not None
    assert len(parses) == 1


def test_a_solution_that_appears_is_seen_on_a_cache_hit(make_task, write):
    task = make_task(
        '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n', {"steps/a/instruction.md": "x", "steps/b/instruction.md": "x"}
    )
    settle(task)
    index = TaskIndex()

    def solved():
        task_summary = index.summary(str(task))
        assert task_summary is not None
        assert task_summary.n_steps == 2
        return task_summary.has_solution

    assert not solved()
    write(task, {"steps/a/solution/solve.sh": "x"})
    assert not solved()
    write(task, {"steps/b/solution/solve.sh": "x"})
    assert solved()
    write(task, {"steps/b/solution/solve.sh": None})
    assert not solved()
    write(task, {"solution/solve.sh": "x"})
    assert solved()


def test_broken_tasks_are_never_cached(make_task, cache, parses):
    task = make_task("[agent]\nuser = []\n")
    settle(task)
    index = TaskIndex.load(cache)
    for _ in range(2):
        with pytest.raises(TaskError):
            index.summary(str(task))
    index.save()
    assert not cache.exists()
    assert len(parses) == 2


def test_strict_turns_cached_warnings_into_errors(make_task):
    task = make_task("[agent]\ntimeot_sec = 1\n")
    settle(task)
    index = TaskIndex()
    task_summary = index.summary(str(task))
    assert task_summary is not None
    assert len(task_summary.warnings) == 1
    with pytest.raises(TaskError, match="did you mean timeout_sec") as caught:
        index.summary(str(task), strict=True)
    assert caught.value.problems[0].severity == "error"


DAMAGED = [
    b"", b"{", b"[]", b"null", b'{"version": 0, "tasks": {}}', b'{"version": 1}', b'{"version": 1, "tasks": []}',
    b"\xff\xfe",
    b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_cache_is_an_empty_one(make_task, cache, content):
    cache.parent.mkdir()
    cache.write_bytes(content)
    index = TaskIndex.load(cache)
    task = make_task("")
    settle(task)
    assert index.summary(str(task)) is not None
    index.save()
    assert json.loads(cache.read_bytes())["version"] == index_module.VERSION


@pytest.mark.parametrize("entry", [None, 3, [], [1, 2], [[1, 2, 3], [], [], []], "x", {}])
def test_a_damaged_entry_is_parsed_again(make_task, cache, entry):
    task = make_task("")
    settle(task)
    index = TaskIndex.load(cache)
    index.summary(str(task))
    index.save()
    content = json.loads(cache.read_bytes())
    ((file, good),) = content["tasks"].items()
    for broken in (entry, [good[0], entry, good[2], good[3]], [good[0], good[1], entry, good[3]]):
        content["tasks"][file] = broken
        cache.write_text(json.dumps(content))
        assert TaskIndex.load(cache).summary(str(task)) is not None


def test_the_cache_is_written_only_if_it_changed_and_leaves_nothing_behind(make_task, cache):
    task = make_task("")
    settle(task)
    index = TaskIndex.load(cache)
    index.summary(str(task))
    index.save()
    stamp = cache.stat().st_mtime_ns, cache.stat().st_ino
    again = TaskIndex.load(cache)
    again.summary(str(task))
    again.save()
    assert (cache.stat().st_mtime_ns, cache.stat().st_ino) == stamp
    assert os.listdir(cache.parent) == [cache.name]


def test_a_cache_that_cannot_be_written_is_no_error(make_task, tmp_path):
    (tmp_path / "file").write_text("")
    index = TaskIndex.load(tmp_path / "file" / "cache.json")
    task = make_task("")
    settle(task)
    index.summary(str(task))
    index.save()
    TaskIndex.load(None).save()


def test_a_run_over_one_task_keeps_the_others(make_task, cache):
    tasks = [make_task("", name=name) for name in ("a", "b")]
    index = TaskIndex.load(cache)
    for task in tasks:
        settle(task)
        index.summary(str(task))
    index.save()
    (tasks[0] / "task.toml").write_text("# changed\n")
    settle(tasks[0])
    one = TaskIndex.load(cache)
    one.summary(str(tasks[0]))
    one.save()
    assert len(json.loads(cache.read_bytes())["tasks"]) == 2


def test_renamed_directories_of_a_native_task_are_seen_on_a_cache_hit(make_native, write):
    task = make_native("name: x\n", files={"verifier/test.sh": None, "tests/test.sh": "x", "solution/solve.sh": "x"})
    (task / "verifier").rmdir()
    settle(task)
    index = TaskIndex()
    assert index.summary(str(task)).has_solution
    (task / "tests").rename(task / "verifier")
    (task / "solution").rename(task / "oracle")
    assert index.summary(str(task)).has_solution


NOT_A_TASK = [
    {"README.md": "x"},
    {"task.toml": "[tool.other]\nx = 1\n"},
    {"task.toml": ""},
    {"task.md": "# A note\n"},
    {"task.md": "---\ntitle: A note\ntags: [x]\n---\nText\n"},
    {"task.md": "---\n\nrule above\n"},
    {"task.md/": ""},
    {"task.md": "# A note\n", "environment/": "", "tests/test.sh": ""},
    {"task.md": "# A note\n", "verifier/test.sh": ""},
    {"TASK.TOML": "[agent]\n"},
]


@pytest.mark.parametrize("files", NOT_A_TASK, ids=str)
def test_other_directories_are_left_alone(tmp_path, write, files):
    write(tmp_path, files)
    assert TaskIndex().summary(str(tmp_path)) is None
    assert TaskIndex().summary(str(tmp_path), set(os.listdir(tmp_path))) is None


IS_A_TASK = [
    {"task.toml": "[agent]\n"},
    {"task.toml": "", "instruction.md": ""},
    {"task.toml": "[tool.other]\n", "environment/": ""},
    {"task.toml": "[other]\n", "tests/": ""},
    {"task.toml": "not toml"},
    {"task.md": "---\nsandbox: {}\n---\n"},
    {"task.md": "---\ntitle: x\n---\n", "verifier/": ""},
    {"task.md": "---\nunclosed\n", "environment/": ""},
    {"task.md": "no front matter\n", "environment/": "", "verifier/test.sh": ""},
    {"task.md/": "", "environment/": "", "oracle/solve.sh": ""},
]


@pytest.mark.parametrize("files", IS_A_TASK, ids=str)
def test_a_broken_task_is_an_error_and_not_left_alone(tmp_path, write, files):
    write(tmp_path, files)
    with pytest.raises(TaskError):
        TaskIndex().summary(str(tmp_path))


def test_names_spare_the_listing(make_task):
    task = make_task("")
    assert TaskIndex().summary(str(task), {"task.toml", "tests"}) is not None
    assert TaskIndex().summary(str(task), {"tests"}) is None
