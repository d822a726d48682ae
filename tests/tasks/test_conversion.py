"""Tasks from one layout into the other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from project import write_files, write_native_task, write_task

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.tasks import export_task, load_task, migrate_task

DEMO = Path(__file__).parents[2] / "tasks"
TOML = """
# why this is so
[metadata]
difficulty = "easy"
tags = ["a: b", "on"]
[agent]
timeout_sec = 60
[environment]
memory = "2G"
network_mode = "no-network"
[benchflow]
threshold = 0.5
"""


def _names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_a_document_says_what_the_files_said(tmp_path: Path) -> None:
    path = write_task(tmp_path / "task", toml=TOML, instruction="Do it.\n\n---\nnot a fence\n")
    before = load_task(path)
    done = migrate_task(path)
    assert done.losses == ("comments of task.toml",)
    after = load_task(path)
    assert (before.layout, after.layout) == ("harbor", "native")
    assert after.config.environment == before.config.environment
    assert after.tags == ("a: b", "on")
    assert after.run.threshold == 0.5
    assert after.steps[0].instruction == before.steps[0].instruction.strip()
    assert _names(path) == ["environment", "instruction.md", "solution", "task.md", "task.toml", "tests"]


def test_the_old_layout_can_go(tmp_path: Path) -> None:
    path = write_task(tmp_path / "task")
    migrate_task(path, remove_legacy=True)
    assert _names(path) == ["environment", "oracle", "task.md", "verifier"]
    assert load_task(path).tests_target == "/verifier"


def test_a_solution_that_speaks_of_its_place_keeps_it(tmp_path: Path) -> None:
    path = write_task(tmp_path / "task", solve="cp /solution/answer /app", files={"solution/answer": "42"})
    (loss,) = migrate_task(path, remove_legacy=True).losses
    assert loss == "the native name of solution/, since solution/solve.sh speaks of /solution"
    assert load_task(path).solution_target == "/solution"


def test_there_and_back_every_demo_task_stays_what_it_is(tmp_path: Path) -> None:
    for original in sorted(DEMO.iterdir()):
        if (original / "task.toml").is_file():
            path = tmp_path / "native" / original.name
            shutil.copytree(original, path)
            migrate_task(path, remove_legacy=True)
            export_task(path, tmp_path / "harbor" / original.name)
            one, other = load_task(original), load_task(tmp_path / "harbor" / original.name)
            assert other.layout == "harbor"
            assert other.config == one.config
            assert [step.instruction.strip() for step in other.steps] == [
                step.instruction.strip() for step in one.steps
            ]
            assert {each.name for each in other.path.iterdir()} == {each.name for each in one.path.iterdir()}


def test_what_harbor_cannot_hold_is_told(tmp_path: Path) -> None:
    front = """
        name: other-name
        agents:
          roles:
            coder: {agent: gemini}
        scenes:
          - {name: one, roles: [coder], turns: [coder]}
        benchflow:
          threshold: 0.5
        """
    path = write_native_task(tmp_path / "task", front=front, body="Do it.\n\n## role:coder\nBe brief.\n")
    done = export_task(path, tmp_path / "out/task", report_only=True)
    assert not (tmp_path / "out").exists()
    assert [loss.partition(":")[0] for loss in done.losses] == [
        "agents",
        "scenes",
        "name",
        "benchflow",
        "the prompt of the role coder",
    ]
    export_task(path, tmp_path / "out/task")
    assert _names(tmp_path / "out") == ["task"]
    assert load_task(tmp_path / "out/task").steps[0].instruction == "Do it.\n"


def test_an_instruction_that_would_be_read_as_sections_is_left_alone(tmp_path: Path) -> None:
    path = write_task(tmp_path / "task", instruction="Do it.\n\n## role:x\nand this\n")
    with pytest.raises(UsageError, match="would lose the instruction, which may have a heading like"):
        migrate_task(path, remove_legacy=True)
    assert _names(path) == ["environment", "instruction.md", "solution", "task.toml", "tests"]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = write_task(tmp_path / "task")
    migrate_task(path)
    with pytest.raises(UsageError, match="exists already; use --overwrite"):
        migrate_task(path)
    write_files(path, {"instruction.md": "Do something else.\n"})
    migrate_task(path, overwrite=True)
    assert load_task(path).steps[0].instruction == "Do something else."
    with pytest.raises(UsageError, match="in Harbor's layout already"):
        export_task(write_task(tmp_path / "harbor"), tmp_path / "out")
    export_task(path, tmp_path / "out", overwrite=True)
    with pytest.raises(UsageError, match="exists already"):
        export_task(path, tmp_path / "out")
