"""The named checks of a CTRF report: a help for the reader that must never be an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pytest_benchflow.verify import Checks, read_checks


def ctrf(*tests: tuple[str, str]) -> str:
    return json.dumps({"results": {"tests": [{"name": name, "status": status} for name, status in tests]}})


def test_passed_and_failed_checks_are_named(tmp_path: Path) -> None:
    (tmp_path / "ctrf.json").write_text(ctrf(("test_a", "passed"), ("test_b", "failed"), ("test_c", "passed")))
    found = read_checks(tmp_path)
    assert found == Checks(passed=("test_a", "test_c"), failed=("test_b",))
    assert found.total == 3


@pytest.mark.parametrize("status", ["skipped", "pending", "other"])
def test_checks_that_did_not_run_do_not_count(tmp_path: Path, status: str) -> None:
    (tmp_path / "ctrf.json").write_text(ctrf(("test_a", status), ("test_b", "passed")))
    assert read_checks(tmp_path) == Checks(passed=("test_b",))


def test_without_a_report_there_are_no_checks(tmp_path: Path) -> None:
    assert read_checks(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "null",
        "{}",
        '{"results": null}',
        '{"results": {"tests": 5}}',
        '{"results": {"tests": [1]}}',
        '{"results": {"tests": [{"name": "a"}]}}',
        "[" * 100_000,
    ],
)
def test_a_report_that_cannot_be_read_is_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "ctrf.json").write_text(text)
    assert read_checks(tmp_path) is None


def test_a_link_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(ctrf(("test_a", "passed")))
    (tmp_path / "ctrf.json").symlink_to(tmp_path / "real.json")
    assert read_checks(tmp_path) is None


def test_a_huge_report_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "ctrf.json").write_text(ctrf(("x" * 5_000_001, "passed")))
    assert read_checks(tmp_path) is None


@given(content=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_no_content_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ctrf.json").write_bytes(content)
    assert read_checks(tmp_path) is None or content
