"""Choosing items with pytest's own options."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from project import INI, Project

EASY = "tasks/easy/task.toml"
HARD = "tasks/hard/task.toml"


@pytest.fixture(scope="module")
def tagged(new_project: Callable[..., Project]) -> Project:
    """Make three tasks: one that passes, one that fails, one without metadata."""
    project = new_project()
    project.task(
        "tasks/easy",
        toml="""
        [metadata]
        difficulty = "easy"
        category = "text"
        tags = ["io"]
        [task]
        name = "acme/easy"
        keywords = ["kw"]
        """,
    )
    project.task("tasks/hard", solve="exit 0", toml='[metadata]\ndifficulty = "hard"\n')
    project.task("tasks/plain")
    project.write({"test_plain.py": "def test_plain(): pass\n"})
    return project


@pytest.mark.parametrize(
    ("args", "ids"),
    [
        (["-k", "hard and nop"], [f"{HARD}::nop"]),
        (["-m", "bf(difficulty='easy') and not bf(agent='nop')"], [f"{EASY}::oracle"]),
        (["-m", "bf(category='text') and bf(sandbox='local')"], [f"{EASY}::oracle", f"{EASY}::nop"]),
        (["-m", "bf_tag(name='io') and bf_tag(name='kw') and bf(agent='oracle')"], [f"{EASY}::oracle"]),
        (["-m", "not bf"], ["test_plain.py::test_plain"]),
        (
            ["--deselect", HARD, "--deselect", "tasks/plain"],
            [f"{EASY}::oracle", f"{EASY}::nop", "test_plain.py::test_plain"],
        ),
        (["--deselect", f"{HARD}::oracle", HARD], [f"{HARD}::nop"]),
    ],
)
def test_items_are_chosen_by_words_marks_and_ids(tagged: Project, args: list[str], ids: list[str]) -> None:
    done = tagged.run("--collect-only", "-q", "--strict-markers", "--bf-agent=oracle,nop", *args)
    assert [line for line in done.outlines if "::" in line] == ids


def test_markers_are_registered_and_documented(tagged: Project) -> None:
    text = tagged.run("--markers").stdout.str()
    for name in ("bf(", "bf_tag(", "bf_task(", "bf_threshold(", "bf_timeout(", "bf_trials(", "bf_quarantine"):
        assert f"@pytest.mark.{name}" in text


def test_failed_items_come_back_with_lf_and_first_with_ff(tagged: Project) -> None:
    first = tagged.run("tasks", "--bf-job-name=a")
    first.assert_outcomes(passed=2, failed=1)
    again = tagged.run("tasks", "--lf", "-v")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines([f"{HARD}::oracle FAILED*"])
    ordered = tagged.run("tasks", "--ff", "--collect-only", "-q")
    assert next(line for line in ordered.outlines if "::" in line) == f"{HARD}::oracle"


def test_stepwise_stops_at_the_failure_and_goes_on_from_there(tagged: Project) -> None:
    stopped = tagged.run("tasks", "--sw", "-v")
    stopped.assert_outcomes(passed=1, failed=1)
    again = tagged.run("tasks", "--sw", "-v")
    again.assert_outcomes(failed=1, deselected=1)


def test_maxfail_lets_the_others_run(tagged: Project) -> None:
    tagged.run("tasks", "--maxfail=2", "--bf-agent=nop").assert_outcomes(failed=2)


def test_without_the_plugin_its_options_are_unknown_and_tasks_are_not_items(tagged: Project) -> None:
    done = tagged.run("-p", "no:benchflow", "--bf-agent=nop")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*unrecognized arguments: --bf-agent=nop*"])
    plain = tagged.run("-p", "no:benchflow", "-p", "no:asyncio", "-q")
    plain.assert_outcomes(passed=1)


def test_an_ordinary_run_makes_prints_and_imports_nothing_of_ours(project: Project) -> None:
    (project.root / "pytest.ini").write_text(f"{INI}bf_trials = 2\n")
    project.write(
        {
            "test_plain.py": "def test_plain(): pass\ndef test_failing(): assert 0\n",
            "conftest.py": """
            import sys

            def pytest_unconfigure():
                heavy = {"pydantic", "docker", "acp", "rich", "pytest_benchflow.rollout.rollout"} & {*sys.modules}
                print("heavy:", sorted(heavy))
            """,
        }
    )
    done = project.run("-q", "--tb=no", cold=True)
    done.assert_outcomes(passed=1, failed=1)
    assert "benchflow" not in done.stdout.str().replace("plugins:", "")
    assert "heavy: []" in done.outlines
    assert not (project.root / "jobs").exists()


def test_setup_plan_starts_nothing(tagged: Project) -> None:
    before = set(tagged.root.glob("jobs/*"))
    done = tagged.run("tasks/easy", "--setup-plan")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*SETUP    F bf_result*", f"*{EASY}::oracle*"])
    assert set(tagged.root.glob("jobs/*")) == before


def test_setup_show_shows_the_chain_and_runs(tagged: Project) -> None:
    done = tagged.run("tasks/easy", "--setup-show")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["*SETUP    F bf_result*", "*TEARDOWN F bf_result*"])
