"""Tell by their names which variables hold secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET_NAME = re.compile(r"(?:token|secret|key|password|passwd|credentials?|jwt|cookie)$", re.IGNORECASE)
SHORTEST_SECRET = 8


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of this name probably holds a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_values(env: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables that must not be written down."""
    return frozenset(value for name, value in env.items() if is_secret_name(name) and len(value) >= SHORTEST_SECRET)
