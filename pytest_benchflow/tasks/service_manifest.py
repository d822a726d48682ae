"""What `[benchflow] environment` asks for: services that a manifest beside the task describes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import TaskError, TomlSource, YamlSource, quoted, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_benchflow.configfile import Data

_SHOWN = 12


def service_request(table: Mapping[str, object], directory: Path) -> str:
    """Say what the table asks for, by the names of the services if its manifest can be read."""
    manifest = table.get("manifest")
    if not isinstance(manifest, str):
        return f"asks for {', '.join(table)}"
    file = os.path.join(directory, manifest)
    if not os.path.isfile(file):
        missing = ", which is missing" if manifest.endswith((".toml", ".yaml", ".yml")) else ""
        return f"asks for the environment {quoted(manifest)}{missing}"
    try:
        names = _service_names(_content(file))
    except TaskError as error:
        return f"asks for the services of {manifest}, which cannot be read: {error}"
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"asks for the services {shown} of {manifest}" if names else f"asks for the environment of {manifest}"


def _content(file: str) -> Data:
    return (TomlSource if file.endswith(".toml") else YamlSource)(file, read_text(file)).data


def _service_names(data: Data) -> list[str]:
    environment = data.get("environment")
    services = environment.get("services") if isinstance(environment, dict) else None
    entries = services if isinstance(services, list) else []
    return [str(entry["name"]) for entry in entries if isinstance(entry, dict) and "name" in entry]
