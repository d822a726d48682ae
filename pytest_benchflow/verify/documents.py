"""Text of office documents and PDFs, for judges: read in a process with bounds, for an agent made them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from pytest_benchflow.core.errors import JudgeEnvironmentError
from pytest_benchflow.core.text import one_line

_KINDS: Mapping[str, str] = {
    ".docx": "docx", ".docm": "docx", ".xlsx": "xlsx", ".xlsm": "xlsx", ".pptx": "pptx", ".pptm": "pptx", ".pdf": "pdf"
}  # fmt: skip
_READER = Path(__file__).with_name("document_reader.py")
_BEGINNINGS = (b"PK\x03\x04", b"%PDF-")


class UnreadableDocument(Exception):
    """A document has no text that can be shown; the message says why."""


def document_kind(name: str, start: bytes) -> str | None:
    """Return what kind of document a file is by its name and its first bytes, None if it is none."""
    kind = _KINDS.get(Path(name).suffix.lower())
    return kind if kind is not None and start.startswith(_BEGINNINGS) else None


def document_text(file: BinaryIO, kind: str, name: str, *, timeout_sec: float) -> str:
    """Return the text of an open document."""
    if timeout_sec <= 0:
        raise UnreadableDocument("the documents before it took too long to read")
    if kind == "pdf" and find_spec("pypdf") is None:
        raise JudgeEnvironmentError(
            f"{name} cannot be shown to the judge, because the package pypdf is not installed",
            advice="run: pip install 'pytest-benchflow[judge]'",
        )
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(_READER), kind],
            stdin=file,
            capture_output=True,
            env={},
            cwd="/",
            timeout=timeout_sec,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreadableDocument("it takes too long to read") from None
    if done.returncode < 0:
        raise UnreadableDocument("it takes too much time or memory to read")
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UnreadableDocument(one_line(said[-1], 100) if said else "it cannot be read")
    text = done.stdout.decode("utf-8", "replace")
    if not text.strip():
        raise UnreadableDocument("it has no text")
    return text
