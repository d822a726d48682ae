"""Older and alternative spellings of keys, brought to the one the model knows, and where keys without one belong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import Data, Path, quoted

if TYPE_CHECKING:
    from pytest_benchflow.configfile import Source

#: Tells of a problem: where, what, and the fix.
Report = Callable[[Path, str, str | None], None]

ROOT: dict[str, str] = {"version": "schema_version", "sandbox": "environment", "oracle": "solution"}
#: What Harbor calls otherwise; only a `sandbox` table may say it, because Harbor reads `environment` without it.
SANDBOX = {"image": "docker_image"}
VERIFIER = {"sandbox_mode": "environment_mode", "sandbox": "environment"}
SIZES = {"memory": "memory_mb", "storage": "storage_mb"}

_OLDER: dict[str, list[str]] = {}
for _old, _new in (*ROOT.items(), *SANDBOX.items(), *VERIFIER.items(), *SIZES.items()):
    if _old not in _OLDER.setdefault(_new, []):
        _OLDER[_new].append(_old)
_OLDER["network_mode"] = ["allow_internet"]


def upgrade_keys(data: Data, report: Report) -> Data:
    """Return the data with today's spellings; the given data stay as they are."""
    data = {key: value for key, value in data.items() if key != "version" or "schema_version" not in data}
    new = _renamed(data, ROOT, (), report)
    names = SANDBOX if "sandbox" in data else {}
    _replace(new, "environment", lambda table: _environment(table, ("environment",), names, report))
    _replace(new, "verifier", lambda table: _verifier(table, ("verifier",), report))
    steps = new.get("steps")
    if isinstance(steps, list):
        new["steps"] = [
            _step(step, ("steps", n), report) if isinstance(step, dict) else step for n, step in enumerate(steps)
        ]
    return new


def as_written(data: object, path: Path) -> Path:
    """Translate a path of the model into the spelling the file uses; stop where the file says nothing."""
    written: list[str | int] = []
    for part in path:
        if isinstance(data, dict):
            spelling = next((name for name in (part, *_OLDER.get(str(part), ())) if name in data), None)
            written.append(part if spelling is None else spelling)
            data = None if spelling is None else data[spelling]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            written.append(part)
            data = data[part]
        else:
            break
    return tuple(written)


def _step(step: Data, at: Path, report: Report) -> Data:
    new = dict(step)
    _replace(new, "verifier", lambda table: _verifier(table, (*at, "verifier"), report))
    return new


def _verifier(table: Data, at: Path, report: Report) -> Data:
    new = _renamed(table, VERIFIER, at, report)
    names = SANDBOX if "sandbox" in table else {}
    _replace(new, "environment", lambda inner: _environment(inner, (*at, "environment"), names, report))
    return new


def _environment(table: Data, at: Path, names: dict[str, str], report: Report) -> Data:
    new = _renamed(table, names, at, report)
    for old, key in SIZES.items():
        if old in new:
            _size(new, old, key, at, report)
    if "allow_internet" in new:
        allowed = new.pop("allow_internet")
        if not isinstance(allowed, bool):
            report((*at, "allow_internet"), f"is {quoted(allowed)}", "give true or false")
        elif "network_mode" not in new and "allowed_hosts" not in new:
            new["network_mode"] = "public" if allowed else "no-network"
    return new


def _size(table: Data, old: str, key: str, at: Path, report: Report) -> None:
    size = table.pop(old)
    megabytes = to_megabytes(size)
    if megabytes is None:
        report((*at, old), f"is {quoted(size)}", f"give {key} in megabytes, for example {key} = 2048")
    elif key not in table:
        table[key] = megabytes
    elif table[key] != megabytes:
        report((*at, old), f"is {quoted(size)} but {key} is {quoted(table[key])}", f"keep {key} alone")


def to_megabytes(size: object) -> int | None:
    """Convert "2G", "512M" or "1024K" to megabytes; None if it is not such a size."""
    match = (
        re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([GMK])B?", size.strip(), re.IGNORECASE)
        if isinstance(size, str)
        else None
    )
    if match is None:
        return None
    return int(float(match[1]) * {"G": 1024, "M": 1, "K": 1 / 1024}[match[2].upper()])


def _renamed(table: Data, spellings: dict[str, str], at: Path, report: Report) -> Data:
    new = dict(table)
    for old, key in spellings.items():
        if old not in new:
            continue
        value = new.pop(old)
        if key in new and new[key] != value:
            report((*at, old), f"contradicts {key}, which is the same key", f"keep {key} alone")
        else:
            new[key] = value
    return new


def _replace(table: Data, key: str, change: Callable[[Data], Data]) -> None:
    value = table.get(key)
    if isinstance(value, dict):
        table[key] = change(value)


_OF_METADATA = frozenset({"author_name", "author_email", "author", "difficulty", "category", "tags"})
_OF_STEPS = {"agent": {"timeout_sec", "user", "prompt_prefix"}, "verifier": {"timeout_sec", "user", "env", "collect"}}
#: Words that look like a key and mean something else.
_OTHERWISE = {
    "services": "describe services in environment/docker-compose.yaml",
    "dockerfile": "remove it, environment/Dockerfile is what is built",
    "setup": "commands that prepare the sandbox belong into its setup_commands",
    "image": "Harbor does not read it either, name an image with docker_image",
}
_TABLES = frozenset({"environment", "sandbox", "verifier", "agent", "solution", "oracle", "task"})


def hint(path: Path, source: Source) -> str | None:
    """Say where an unknown key belongs whose name alone would mislead."""
    key, table = str(path[-1]), path[-2] if len(path) > 1 else None
    if len(path) == 3 and path[0] == "steps":
        tables = [source.table(f"steps.{name}") for name, keys in _OF_STEPS.items() if key in keys]
        return f"it belongs under {' or '.join(tables)}" if tables else None
    if table is not None and table not in _TABLES:
        return None
    if key in _OF_METADATA:
        return f"it belongs under {source.table('metadata')}"
    return "remove it" if key == "type" else _OTHERWISE.get(key)


class TaskKeys:
    """The older spellings of task files, for whoever checks one against its model."""

    upgrade = staticmethod(upgrade_keys)
    as_written = staticmethod(as_written)
    hint = staticmethod(hint)
