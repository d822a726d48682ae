"""Jobs beside each other, in a terminal and as data."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from jobs.results import result, write_result

from pytest_benchflow.cli.main import main
from pytest_benchflow.reporting import ComparedJobs, print_comparison, read_report


def job(directory: Path, rewards: dict[str, list[float]], **config: object) -> Path:
    """Write a job with these rewards of each task's trials."""
    for task, values in rewards.items():
        for trial, reward in enumerate(values, 1):
            place = directory / f"{task}__{trial}"
            key = f"tasks/{task}/task.toml::gemini/{trial}"
            write_result(place, result(task, reward, trial=trial, key=key, rollout_name=place.name))
            (place / "config.json").write_text(json.dumps({"rollout_name": place.name, "timeout": 60, **config}))
    return directory


@pytest.fixture
def jobs(tmp_path: Path) -> list[Path]:
    """Three jobs: a baseline, one that is worse in one task of ten and better in none, and one that fails in all."""
    tasks = [f"task-{number}" for number in range(9)]
    good = {task: [1.0, 1.0] for task in tasks}
    return [
        job(tmp_path / "monday", {**good, "sort": [1.0, 1.0], "gone": [1.0]}),
        job(tmp_path / "tuesday", {**good, "sort": [0.5, 1.0], "new": [0.0]}, timeout=90, model="pro"),
        job(tmp_path / "wednesday", {task: [0.0, 0.0] for task in [*tasks, "sort"]}),
    ]


def compared(jobs: list[Path]) -> ComparedJobs:
    return ComparedJobs.of([(path, read_report(path)) for path in jobs])


def test_the_table_has_what_changed_and_the_verdicts_follow(jobs: list[Path]) -> None:
    out = io.StringIO()
    print_comparison(compared(jobs), out)
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["task", "monday", "tuesday", "wednesday"]
    (sort,) = [line for line in lines if line.startswith("sort")]
    assert " ".join(sort.split()) == "sort 2 of 2 1 of 2, reward 0.75 worse 0 of 2 worse"
    text = "\n".join(lines)
    assert "monday → tuesday\nno evidence: pass rate 1.00 → 0.95" in text
    assert "  only in the earlier run: gone\n  only in this run: new" in text
    assert "monday → wednesday\nregressed: pass rate 1.00 → 0.00" in text
    assert "configured differently\n  timeout: 60 → 90 → 60\n  model: – → pro → –" in text


def test_each_task_has_a_rollout_of_each_job_to_look_at(jobs: list[Path]) -> None:
    _, overview = compared(jobs[:2]).overview()
    rows = overview["comparison"]["tasks"]  # type: ignore[index,call-overload]
    (sort,) = [row for row in rows if row["task"] == "sort"]  # type: ignore[union-attr,index,call-overload]
    assert [cell["id"] for cell in sort["cells"]] == [  # type: ignore[index,call-overload,union-attr]
        "monday:tasks/sort/task.toml::gemini/1",
        "tuesday:tasks/sort/task.toml::gemini/1",
    ]
    assert [cell["passed"] for cell in sort["cells"]] == [2, 1]  # type: ignore[index,call-overload,union-attr]


def test_jobs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [job(tmp_path / folder / "nightly", {"a": [1.0]}) for folder in ("x", "y")]
    assert compared(paths).names == ("A nightly", "B nightly")


def test_the_command_prints_json_and_writes_a_page(jobs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    page = jobs[0].parent / "compare.html"
    assert main(["compare", *map(str, jobs[:2]), "--json", "--html", str(page)]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert [each["name"] for each in answer["jobs"]] == ["monday", "tuesday"]
    assert answer["comparisons"][0]["pass_rate"]["verdict"] == "no evidence"
    assert answer["changes"] == {"timeout": ["60", "90"], "model": ["–", "pro"]}
    assert err == f"{page}\n"
    assert page.read_text().count('id="bf-blob-') == 1
    assert main(["compare", str(jobs[0])]) == 2
    assert capsys.readouterr().err == "bf: there is one job to compare; name at least two\n"
