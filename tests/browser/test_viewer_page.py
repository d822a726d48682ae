"""`bf view` in a real browser, while a job runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jobs.results import result, write_result
from page_job import write_job

from pytest_benchflow.jobs import JobEvent, Ledger
from pytest_benchflow.reporting.viewer.server import ViewerServer

if TYPE_CHECKING:
    from driver import Browser


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    write_job(tmp_path / "jobs/nightly")
    return tmp_path / "jobs"


@pytest.fixture
def url(jobs: Path) -> Iterator[str]:
    """Where the viewer of the jobs is."""
    with ViewerServer(jobs, 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.url
        server.shutdown()


def test_one_goes_from_the_jobs_to_a_job_to_a_rollout_and_back(browser: Browser, url: str) -> None:
    browser.open(url)
    assert browser.texts("h1") == ["Jobs"]
    browser.wait("td a", "nightly").click()
    browser.wait("#rollouts")
    browser.wait("table.rollouts a", "sort-words").click()
    browser.wait(".event.user", "Sort the words.")
    browser.all("#crumbs a")[0].click()
    browser.wait("h1", "Jobs")
    browser.watch()
    assert all(request.startswith(url) for request in browser.requests if request != "about:blank")


def test_a_running_job_is_followed_without_loading_the_page_again(browser: Browser, url: str, jobs: Path) -> None:
    ledger = Ledger(jobs / "nightly")
    ledger.begin(1)
    browser.open(f"{url}job/nightly/")
    assert "running" not in "".join(browser.texts(".chip"))
    browser.run("window.isTheSamePage = true")
    later = jobs / "nightly/later__2"
    write_result(later, result("later")).rename(later / "config.json")
    ledger.append(JobEvent(kind="start", ts=1.0, key="later", task="later", agent="gemini", model="flash", attempt=1))
    ledger.append(JobEvent(kind="phase", ts=2.0, key="later", phase="execute", rollout="later__2"))
    browser.wait("#live", "1 running")
    browser.wait("table.rollouts .chip.running")
    browser.go("#/rollout/later")
    browser.wait("main", "Nothing has happened yet")
    (later / "trajectory").mkdir()
    trajectory = later / "trajectory/acp_trajectory.jsonl"
    words = [{"type": "agent_message", "seq": n, "text": f"word {n}", "ts": float(n)} for n in (1, 2)]
    trajectory.write_text(json.dumps(words[0]) + "\n")
    browser.wait(".event.agent", "word 1")
    with trajectory.open("a") as file:
        file.write(json.dumps(words[1]) + "\n")
    browser.wait("#event-2", "word 2")
    assert browser.texts(".event .prose") == ["word 1", "word 2"]
    write_result(later, result("later", key="later"))
    ledger.append(JobEvent(kind="end", ts=3.0, key="later", status="passed"))
    ledger.close()
    browser.wait(".chip.passed")
    assert browser.run("return window.isTheSamePage")


def test_a_job_that_has_just_begun_shows_what_runs_and_nothing_empty(browser: Browser, url: str, jobs: Path) -> None:
    (jobs / "begun").mkdir()
    ledger = Ledger(jobs / "begun")
    ledger.begin(1)
    ledger.append(JobEvent(kind="start", ts=1.0, key="one", task="one", agent="gemini", model="flash", attempt=1))
    browser.open(f"{url}job/begun/")
    assert browser.texts("main h2") == ["Rollouts"]
    assert browser.texts(".outcomes .legend a") == ["1 running"]
    browser.open(url, width=390, height=780)
    assert browser.run("return document.querySelector('.scroll').scrollWidth <= innerWidth")
    assert browser.texts("td.name .chip") == ["running"]
    ledger.close()
