"""Shell scripts that run inside containers; they need bash and nothing else of an image."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def script(*names: str) -> str:
    """Return the text of these scripts, joined, without their comments."""
    lines = (line for name in names for line in files(__name__).joinpath(f"{name}.bash").read_text().splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#")) + "\n"
