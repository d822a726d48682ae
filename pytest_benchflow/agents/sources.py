"""Where variables come from, in order: given on purpose, `.env`, the environment; blank means unset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_benchflow.agents.dotenv import read_dotenv


@dataclass(frozen=True, slots=True)
class Sources:
    """The variables of a run, and the home directory that may hold logins."""

    explicit: Mapping[str, str] = field(default_factory=dict, repr=False)
    dotenv: Mapping[str, str] = field(default_factory=dict, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    home: Path = Path("/nonexistent")

    @classmethod
    def here(cls, explicit: Mapping[str, str]) -> Sources:
        """Return the sources of this process."""
        return cls(explicit, read_dotenv(os.environ, Path.cwd()), os.environ, Path.home())

    def look(self, name: str) -> str | None:
        """Return the value of a variable."""
        found = self.first((name,))
        return None if found is None else found[1]

    def given(self, name: str | None) -> str | None:
        """Return the value of a variable that was given on purpose."""
        return self.explicit.get(name, "").strip() or None if name else None

    def first(self, names: Iterable[str]) -> tuple[str, str] | None:
        """Return name and value of the first variable that is set; a better source counts more than a better name."""
        wanted = tuple(names)
        for source in (self.explicit, self.dotenv, self.environ):
            for name in wanted:
                if value := source.get(name, "").strip():
                    return name, value
        return None
