"""The two directory layouts of a task, told apart without parsing anything."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

LayoutName = Literal["harbor", "native"]
TestsTarget = Literal["/tests", "/verifier"]
SolutionTarget = Literal["/solution", "/oracle"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a task keeps its parts, and where they go in the sandbox."""

    name: LayoutName
    tests: str
    tests_target: TestsTarget
    solution: str
    solution_target: SolutionTarget


_HARBOR = Layout("harbor", "tests", "/tests", "solution", "/solution")


def layout_of(directory: str, file: str) -> Layout:
    """Return the layout; a native task may keep the older directory names where it lacks the native ones."""
    if not file.endswith(".md"):
        return _HARBOR
    older_tests = _only(directory, "tests", "verifier")
    older_solution = _only(directory, "solution", "oracle")
    return Layout(
        "native",
        "tests" if older_tests else "verifier",
        "/tests" if older_tests else "/verifier",
        "solution" if older_solution else "oracle",
        "/solution" if older_solution else "/oracle",
    )


def _only(directory: str, older: str, native: str) -> bool:
    return os.path.isdir(f"{directory}/{older}") and not os.path.isdir(f"{directory}/{native}")
