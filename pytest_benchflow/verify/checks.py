"""Name the checks of a verifier from its CTRF report, so that a failure says which of them failed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.text import one_line

_MAX_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Checks:
    """The named checks a verifier ran."""

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """How many checks ran."""
        return len(self.passed) + len(self.failed)


def read_checks(directory: Path) -> Checks | None:
    """Return what `ctrf.json` says; None if there is none or it cannot be read, for it is only a help to the reader."""
    path = directory / "ctrf.json"
    try:
        if path.is_symlink() or path.stat().st_size > _MAX_BYTES:
            return None
        tests = json.loads(path.read_bytes())["results"]["tests"]
        by_status = [(str(test["status"]), one_line(str(test["name"]))) for test in tests]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Checks(
        passed=tuple(name for status, name in by_status if status == "passed"),
        failed=tuple(name for status, name in by_status if status == "failed"),
    )
