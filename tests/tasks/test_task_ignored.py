"""What `.harborignore` files leave out of the copies of tests and solution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_benchflow.configfile import TaskError
from pytest_benchflow.tasks import load_task

FILES = {
    "tests/keep.txt": "",
    "tests/big.bin": "",
    "tests/data/big.bin": "",
    "tests/data/keep.bin": "",
    "tests/data/deep/notes.md": "",
    "tests/cache/x.txt": "",
}


def left_out(path: Path) -> list[str]:
    (step,) = load_task(path).steps
    return [name for directory in step.tests_dirs for name in step.left_out.get(directory, ())]


@pytest.mark.parametrize(
    ("ignores", "expected"),
    [
        ({}, []),
        ({"tests/.harborignore": ""}, [".harborignore"]),
        ({"tests/.harborignore": "*.bin\n"}, [".harborignore", "big.bin", "data/big.bin", "data/keep.bin"]),
        ({"tests/.harborignore": "/big.bin\n# *.txt\n"}, [".harborignore", "big.bin"]),
        ({"tests/.harborignore": "cache/\nbig.bin/\n"}, [".harborignore", "cache"]),
        ({"tests/.harborignore": "*.bin\n!keep.bin\n"}, [".harborignore", "big.bin", "data/big.bin"]),
        ({"tests/.harborignore": "data/**/*.md\n"}, [".harborignore", "data/deep/notes.md"]),
        ({"tests/data/.harborignore": "big.bin\n"}, ["data/.harborignore", "data/big.bin"]),
        (
            {"tests/.harborignore": "*.bin\n", "tests/data/.harborignore": "!*.bin\n"},
            [".harborignore", "big.bin", "data/.harborignore"],
        ),
        ({".harborignore": "*.bin\n"}, ["big.bin", "data/big.bin", "data/keep.bin"]),
        ({".harborignore": "/tests/data\nenvironment/\n"}, ["data"]),
        ({"solution/.harborignore": "*.bin\n"}, []),
    ],
)
def test_patterns_are_those_of_git_from_the_task_down(
    make_task: Callable[..., Path], ignores: dict[str, str], expected: list[str]
) -> None:
    assert left_out(make_task(files={**FILES, **ignores})) == expected


def test_solution_and_steps_have_their_own(make_task: Callable[..., Path]) -> None:
    path = make_task(
        toml='[[steps]]\nname = "one"\n',
        files={
            "steps/one/instruction.md": "Do it.\n",
            "steps/one/tests/.harborignore": "*.bin\n",
            "steps/one/tests/big.bin": "",
            "tests/big.bin": "",
            "solution/solve.sh": "",
            "solution/.harborignore": "notes.md\n",
            "solution/notes.md": "",
        },
    )
    (step,) = load_task(path).steps
    assert {folder.relative_to(path).as_posix(): names for folder, names in step.left_out.items()} == {
        "steps/one/tests": (".harborignore", "big.bin"),
        "solution": (".harborignore", "notes.md"),
    }


@pytest.mark.parametrize("script", ["tests/test.sh", "solution/solve.sh"])
def test_a_script_that_is_left_out_is_a_problem(make_task: Callable[..., Path], script: str) -> None:
    path = make_task(files={script: "", ".harborignore": f"{script}\n"})
    with pytest.raises(TaskError, match=rf"{script}: is left out by \.harborignore; take it out of that file"):
        load_task(path)


def test_an_ignore_file_that_is_no_text_is_a_problem(make_task: Callable[..., Path]) -> None:
    path = make_task(files={"tests/.harborignore": b"\xff"})
    with pytest.raises(TaskError, match=r"tests/\.harborignore:1: holds the byte 0xff, which is not UTF-8"):
        load_task(path)
