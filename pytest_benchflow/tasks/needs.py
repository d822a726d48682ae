"""Files a task needs, in a form small enough to cache and cheap enough to check at every collection."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple

from .problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal["environment", "instruction", "tests", "rubric", "solution"]

_FIXES: dict[str, str] = {
    "environment": "create environment/Dockerfile there, or name an image with docker_image",
    "instruction": "write there what the agent has to do",
    "tests": "create a script that writes the reward to /logs/verifier/reward.txt",
    "rubric": "write the criteria of the judge there",
}

_CLOSED = "cannot be read (Permission denied)"


class Need(NamedTuple):
    """One of several relative paths has to exist: a directory for `environment`, a file for the rest."""

    kind: Kind
    paths: tuple[str, ...]

    def met(self, directory: str) -> bool:
        """Say whether one of the paths is there, by `stat` alone."""
        for path in self.paths:  # no generator: this runs four times for each of ten thousand tasks
            if self._fault(directory, path) is None:
                return True
        return False

    def problem(self, directory: str) -> Problem:
        """Say what is missing, after `met` said no."""
        reason = self._fault(directory, self.paths[0]) or "is missing"
        fix = "check its permissions" if reason == _CLOSED else _FIXES.get(self.kind)
        return Problem(os.path.join(directory, self.paths[0]), None, None, reason, fix)

    def _fault(self, directory: str, path: str) -> str | None:
        try:
            found = os.stat(f"{directory}/{path}")
        except PermissionError:
            return _CLOSED
        except (OSError, ValueError):
            return "is missing"
        if self.kind == "environment":
            return None if stat.S_ISDIR(found.st_mode) else "is not a directory"
        if not stat.S_ISREG(found.st_mode):
            return "is not a file"
        return "is empty" if self.kind == "instruction" and found.st_size == 0 else None


def unmet(directory: str, needs: Iterable[Need]) -> list[Problem]:
    """Return a problem for every need that the directory does not meet."""
    return [need.problem(directory) for need in needs if not need.met(directory)]
