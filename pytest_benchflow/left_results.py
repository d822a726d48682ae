"""Know directories that rollouts wrote: what agents left there must never be collected, let alone run, on the host."""

from __future__ import annotations

import json
import os

_MARKS = (("job.json", "run"), ("config.json", "rollout_name"))
"""Files that only a job or a rollout has, each with a key that tells it from other people's files of that name."""


def holds_results(directory: str) -> bool:
    """Tell whether a directory is that of a job or of a rollout."""
    return any(_has_key(f"{directory}/{name}", key) for name, key in _MARKS)


def _has_key(path: str, key: str) -> bool:
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            data: object = json.load(file)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and key in data
