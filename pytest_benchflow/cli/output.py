"""Where commands write what they make: a file, or standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_benchflow.core.errors import UsageError

_STDOUT = Path("-")


@contextmanager
def write_errors(path: Path, *, advice: str = "choose another file") -> Iterator[None]:
    """Say in one sentence that a file or directory cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", advice=advice) from None


def write_text(text: str, path: Path | None) -> None:
    """Write a text to a file, or print it where none or `-` is named."""
    if path in (None, _STDOUT):
        sys.stdout.write(text)
        return
    from pytest_benchflow.core.files import write_atomically

    assert path is not None
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
