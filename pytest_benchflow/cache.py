"""Where things that are dear to make are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return `$BF_CACHE_DIR`, else `pytest-benchflow` in the user's cache directory; it may not exist yet."""
    if chosen := os.environ.get("BF_CACHE_DIR"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base).absolute() / "pytest-benchflow"
