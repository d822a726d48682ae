"""The file that makes an environment more than one container."""

from __future__ import annotations

from pathlib import Path

COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml")


def compose_file(directory: Path | None) -> Path | None:
    """Return the compose file of an environment, None if it is one container."""
    paths = [directory / name for name in COMPOSE_FILES] if directory is not None else []
    return next((path for path in paths if path.is_file()), None)
