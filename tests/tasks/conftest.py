"""Builders of task directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]


def write_files(root: Path, files: dict[str, str | bytes | None]) -> Path:
    """Write files below `root`; None removes one, a trailing slash makes a directory."""
    for name, content in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink(missing_ok=True)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")
    return root


@pytest.fixture
def write() -> Build:
    """Give tests the function that writes files below a directory."""
    return write_files


@pytest.fixture
def make_task(tmp_path: Path) -> Build:
    """Build a sound Harbor task around the given task.toml."""

    def make(toml: str | bytes = "", files: dict[str, str | bytes | None] | None = None, name: str = "hello") -> Path:
        root = tmp_path / name
        write_files(root, {"environment/": "", "instruction.md": "Do it.\n", "tests/test.sh": "#!/bin/bash\n"})
        return write_files(root, {"task.toml": toml, **(files or {})})

    return make


@pytest.fixture
def make_native(tmp_path: Path) -> Build:
    """Build a sound native task around the given front matter."""

    def make(
        front: str = "", body: str = "Do it.\n", files: dict[str, str | bytes | None] | None = None, name: str = "hello"
    ) -> Path:
        root = tmp_path / name
        write_files(root, {"environment/": "", "verifier/test.sh": "#!/bin/bash\n"})
        return write_files(root, {"task.md": f"---\n{front}---\n{body}", **(files or {})})

    return make
