"""The page of a run as a file: one file, whole, with as much of each rollout as fits."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import cast

import pytest
from jobs.results import result, write_result

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.reporting import read_report, write_html, write_report
from pytest_benchflow.rollout import RolloutResult

EVENTS = [{"type": "user_message", "seq": 1, "ts": 1.0, "text": "Do it </script><script>alert(1)</script>"}]


def stored(job: Path, task: str, trajectory: bytes | None = None, **more: object) -> RolloutResult:
    """Write a rollout with a trajectory below a job."""
    directory = job / f"{task}__1"
    rollout = result(task, rollout_dir=str(directory), **more)  # type: ignore[arg-type]
    write_result(directory, rollout)
    (directory / "trajectory").mkdir()
    data = trajectory if trajectory is not None else b"".join(json.dumps(each).encode() + b"\n" for each in EVENTS)
    (directory / "trajectory/acp_trajectory.jsonl").write_bytes(data)
    return rollout


def unpacked(page: Path) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the overview in a page, and every rollout."""
    blobs = dict(re.findall(r'id="(bf-[a-z]+(?:-\d+)?)">([^<]*)</script>', page.read_text()))
    data = {name: json.loads(zlib.decompress(base64.b64decode(blob), -15)) for name, blob in blobs.items()}
    overview = data["bf-overview"]
    return overview, [data[f"bf-blob-{row['blob']}"][row["place"]] for row in overview["rollouts"]]


def page_of(job: Path, path: Path) -> tuple[dict[str, object], list[dict[str, object]]]:
    write_html(read_report(job), path)
    return unpacked(path)


def test_a_page_holds_every_rollout_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    for task in ("one", "two"):
        stored(tmp_path / "job", task)
    overview, rollouts = page_of(tmp_path / "job", tmp_path / "page.html")
    assert overview["title"] == "job"
    assert [cast("dict[str, str]", each["result"])["task_name"] for each in rollouts] == ["one", "two"]
    assert [each["events"] for each in rollouts] == [EVENTS, EVENTS]
    text = (tmp_path / "page.html").read_text()
    assert "alert(1)" not in text
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\((?!data:)""", text)
    assert [path.name for path in tmp_path.iterdir()] == ["job", "page.html"]


def test_the_data_of_a_json_report_makes_the_same_page(tmp_path: Path) -> None:
    stored(tmp_path / "job", "one")
    write_report(read_report(tmp_path / "job"), tmp_path / "r.json")
    page = page_of(tmp_path / "job", tmp_path / "a.html")
    assert page_of(tmp_path / "r.json", tmp_path / "b.html") == page


def test_a_long_trajectory_is_shown_with_start_and_end(tmp_path: Path) -> None:
    lines = [json.dumps({"type": "agent_message", "seq": n, "text": "x" * 900}) + "\n" for n in range(9000)]
    stored(tmp_path / "job", "one", "".join(lines).encode())
    _, (rollout,) = page_of(tmp_path / "job", tmp_path / "page.html")
    numbers = [event["seq"] for event in cast("list[dict[str, int]]", rollout["events"])]
    assert (numbers[0], numbers[-1]) == (0, 8999)
    assert 4000 < len(numbers) < 5000
    assert "4.4 MB in the middle are left out" in str(rollout["left_out"])


def test_a_trajectory_that_is_broken_gives_what_can_be_read(tmp_path: Path) -> None:
    lines = [b'{"type": "a", "n": NaN}', b'{"type": "b', b"[1]", b"\xff\xfe", b'{"type": "c"}', b'{"type": "cut']
    stored(tmp_path / "job", "one", b"\n".join(lines))
    _, (rollout,) = page_of(tmp_path / "job", tmp_path / "page.html")
    assert rollout["events"] == [{"type": "a", "n": None}, {"type": "c"}]


def test_a_huge_text_is_shortened(tmp_path: Path) -> None:
    stored(tmp_path / "job", "one", json.dumps({"type": "oracle", "stdout": "x" * 500_000}).encode() + b"\n")
    _, (rollout,) = page_of(tmp_path / "job", tmp_path / "page.html")
    (event,) = cast("list[dict[str, str]]", rollout["events"])
    assert event["stdout"].endswith("[… 484000 characters left out …]")


@pytest.mark.parametrize("link", ["trajectory", "trajectory/acp_trajectory.jsonl", "verifier"])
def test_links_out_of_a_rollout_are_not_followed(tmp_path: Path, link: str) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    for name in ("acp_trajectory.jsonl", "test-stdout.txt"):
        (secret / name).write_text('{"type": "secret"}\n')
    stored(tmp_path / "job", "one", b"")
    path = tmp_path / "job/one__1" / link
    if path.is_dir():
        (path / "acp_trajectory.jsonl").unlink()
        path.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(secret if path.suffix == "" else secret / path.name)
    _, (rollout,) = page_of(tmp_path / "job", tmp_path / "page.html")
    assert "secret" not in json.dumps([rollout["events"], rollout["verifier"]])


def test_what_is_no_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"rollouts": 3}')
    for path, said in (
        (tmp_path, "no result in"),
        (tmp_path / "r.json", "is not a report"),
        (tmp_path / "x", "No such"),
    ):
        with pytest.raises(UsageError, match=said):
            read_report(path)
