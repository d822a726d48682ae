"""One browser for all tests of pages, and a job to show in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from needs import lacks_browser
from page_job import write_job

from pytest_benchflow.jobs import GateVerdict, Saved, compare
from pytest_benchflow.reporting import read_report, write_html

if TYPE_CHECKING:
    from driver import Browser


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here need the browser."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def started_browser() -> Iterator[Browser]:
    """The browser, started once."""
    if (reason := lacks_browser()) is not None:
        pytest.fail(reason)
    from driver import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(started_browser: Browser) -> Iterator[Browser]:
    """The browser, for a page that must not complain of anything."""
    yield started_browser
    started_browser.watch()
    errors, started_browser.errors = started_browser.errors, []
    assert not errors


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job in which everything happens that a page can show."""
    return write_job(tmp_path_factory.mktemp("pages") / "nightly")


@pytest.fixture(scope="session")
def page(job: Path) -> str:
    """The address of its page, on disk."""
    file = job.with_suffix(".html")
    report = read_report(job)
    gate = GateVerdict(gate="pass_rate >= 0.9", outcome="failed", value=0.56, message="0.56 (5 of 9)")
    saved = Saved(rollouts=4, of=14, cost_usd=0.2, seconds=90)
    baseline = compare(report.rollouts, report.rollouts)
    known = {"gates": [gate], "baseline": baseline, "missing": ["tasks/lost/task.toml::gemini"], "saved": saved}
    write_html(report.model_copy(update=known), file)
    return file.as_uri()
