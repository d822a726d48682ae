"""Logins on the host that an agent may use: found, copied, and everything secret in them known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_benchflow.agents.base import HomeFile
from pytest_benchflow.agents.manifest import Login
from pytest_benchflow.errors import CredentialsError
from pytest_benchflow.secret_names import SHORTEST_SECRET, is_secret_name

#: Long enough to be no word, and without what addresses and sentences have.
_RANDOM = re.compile(r"[A-Za-z0-9_\-.+/=~|]{32,}")


@dataclass(frozen=True, slots=True)
class HostLogin:
    """The files of a login."""

    files: tuple[HomeFile, ...]
    secrets: frozenset[str]


def find_login(login: Login, home: Path) -> HostLogin | None:
    """Return the login if its telling file is there."""
    if not (home / login.detect).is_file():
        return None
    files = []
    for path in login.files:
        try:
            files.append(HomeFile(path, (home / path).read_bytes()))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CredentialsError(f"the login file {home / path} cannot be read: {error.strerror}") from None
    return HostLogin(tuple(files), frozenset(secret for file in files for secret in secrets_in(file.content)))


def secrets_in(content: bytes) -> Iterator[str]:
    """Yield what must not be shown of a file: values with telling names, long random ones, or all of it."""
    text = content.decode("utf-8", "replace").strip()
    try:
        yield from _secret_leaves("", json.loads(text))
    except ValueError:
        if text:
            yield text


def _secret_leaves(name: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _secret_leaves(str(key), item)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_leaves(name, item)
    elif isinstance(value, str) and (
        (is_secret_name(name) and len(value) >= SHORTEST_SECRET) or _RANDOM.fullmatch(value) is not None
    ):
        yield value
