"""Import the modules of this package as they were installed, with the bytecode that is there.

pytest rewrites the asserts of every plugin, for which it compiles all its modules and keeps the outcome where it may
write bytecode. In most containers it may not, so that every run would compile the package again: half a second.
Runs when the plugin is imported, before anything else of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_PACKAGE = "pytest_benchflow."
#: Tests that users run; they want to see what an assert compared.
_TESTS = "pytest_benchflow.testing"


class AsInstalled:
    """A finder that comes before pytest's for modules of this package."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of ours as Python itself would."""
        ours = name.startswith(_PACKAGE) and not name.startswith(_TESTS)
        return PathFinder.find_spec(name, path, target) if ours else None


if AsInstalled not in sys.meta_path:
    sys.meta_path.insert(0, AsInstalled)
