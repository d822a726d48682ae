"""Where variables come from, in order: passed on purpose, `.env`, the environment; blank means unset."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_benchflow.core.errors import CredentialsError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def read_dotenv(environ: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Return the variables of the file that BF_DOTENV_PATH names, or of `.env` in the working directory, if any."""
    chosen = environ.get("BF_DOTENV_PATH", "").strip()
    path = Path(os.path.expanduser(chosen)) if chosen else cwd / ".env"
    try:
        text = path.read_text("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        if chosen:
            raise CredentialsError(f"BF_DOTENV_PATH: there is no file {path}") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
        ) from None
    return parse_dotenv(text, str(path))


def parse_dotenv(text: str, source: str) -> dict[str, str]:
    """Return the variables of a text; a later line wins. No value is ever shown in an error."""
    from dotenv.parser import parse_stream

    variables: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        if binding.key is None and not binding.error:
            continue  # blank, or a comment
        if binding.error or binding.value is None or not _NAME.fullmatch(binding.key or ""):
            line = binding.original.line + _leading_lines(binding.original.string)
            raise CredentialsError(f"{source}:{line}: this line is not an assignment", advice="write NAME=value")
        variables[binding.key or ""] = binding.value
    return variables


def _leading_lines(text: str) -> int:
    """Return how many blank lines a text begins with."""
    return len((text[: len(text) - len(text.lstrip())] + "x").splitlines()) - 1


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
        pair = self.first((name,))
        return None if pair is None else pair[1]

    def explicit_value(self, name: str | None) -> str | None:
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
