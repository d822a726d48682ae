"""Shell scripts that run inside containers: those for bash need nothing else, the others any POSIX shell."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal


@cache
def script(*names: str, suffix: Literal["bash", "sh"] = "bash") -> str:
    """Return the text of these scripts, joined, without their comments."""
    lines = (line for name in names for line in files(__name__).joinpath(f"{name}.{suffix}").read_text().splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#")) + "\n"
