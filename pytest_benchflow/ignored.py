"""Ask whether a path is to be ignored, without asking pytest ten thousand times what it can only answer with no."""

from __future__ import annotations

import fnmatch
import os
import re
from pathlib import Path

import pytest

_PYTESTS_OWN = "main"
_PYTESTS_NAMES = {"*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}"}
_LISTS = ("collect_ignore", "collect_ignore_glob")


class Ignored:
    """Answers for the entries of one folder as the hook `pytest_ignore_collect` would."""

    def __init__(self, folder: pytest.Directory) -> None:
        self._config = folder.config
        self._ask = folder.ihook.pytest_ignore_collect
        manager = folder.config.pluginmanager
        patterns = [str(pattern) for pattern in self._config.getini("norecursedirs")]
        self._by_default = {*patterns} == _PYTESTS_NAMES
        self._was_told = any(self._config.getoption(name, None) for name in ("ignore", "ignore_glob"))
        conftests = [plugin for plugin in manager.get_plugins() if _is_conftest(plugin)]
        self._must_ask = (
            self._was_told
            or any(os.sep in pattern for pattern in patterns)
            or any(hasattr(conftest, name) for conftest in conftests for name in (*_LISTS, "pytest_ignore_collect"))
        )
        # What is left of pytest's own answer are patterns of names; other plugins are asked as ever.
        self._names = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns) or r"(?!)")
        answering = manager.hook.pytest_ignore_collect.get_hookimpls()
        self._others = [impl for impl in reversed(answering) if impl.plugin_name != _PYTESTS_OWN]
        known = {"collection_path", "config"}
        self._must_ask |= any(impl.hookwrapper or impl.wrapper or set(impl.argnames) - known for impl in self._others)

    def __call__(self, entry: os.DirEntry[str], path: Path, task_files: list[str]) -> bool:
        """Say whether an entry, which holds these task files if it is a directory, is left out."""
        # pytest's rules for `__pycache__` and virtual environments cannot matter to a plain task.
        is_plain = "task.toml" in task_files and not os.path.lexists(f"{entry.path}/pyvenv.cfg")
        if self._must_ask or not is_plain:
            return bool(self._ask(collection_path=path, config=self._config))
        if self._names.match(entry.name) is not None:
            return True
        given = {"collection_path": path, "config": self._config}
        answers = (impl.function(*(given[name] for name in impl.argnames)) for impl in self._others)
        return bool(next((answer for answer in answers if answer is not None), None))

    def is_by_accident(self, name: str) -> bool:
        """Say whether a directory is left out for its name alone, and nobody but pytest itself ever said so."""
        is_named = not name.startswith(".") and self._names.match(name) is not None
        return is_named and self._by_default and not self._was_told


def _is_conftest(plugin: object) -> bool:
    return os.path.basename(str(getattr(plugin, "__file__", ""))) == "conftest.py"
