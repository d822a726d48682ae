"""Projects to measure on, written into a scratch directory."""

from __future__ import annotations

from pathlib import Path

_TOML = """schema_version = "1.4"
[metadata]
difficulty = "easy"
category = "files"
tags = ["io", "shell"]
[agent]
timeout_sec = 60
[verifier]
timeout_sec = 60
[environment]
cpus = 1
memory_mb = 512
"""
_FILES = {
    "task.toml": _TOML,
    "instruction.md": "Create /app/hello.txt.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/bash\n[ -f /app/hello.txt ] && r=1 || r=0\necho $r >/logs/verifier/reward.txt\n",
    "tests/test_outputs.py": "def test_hello():\n    assert True\n",
    "solution/solve.sh": "#!/bin/bash\necho hello >/app/hello.txt\n",
}


def write_tasks(folder: Path, count: int) -> None:
    """Write trivial tasks."""
    for number in range(count):
        for name, text in _FILES.items():
            path = folder / f"task-{number:05}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.suffix == ".sh":
                path.chmod(0o755)


def write_test_files(folder: Path, count: int) -> None:
    """Write test files with one test each."""
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"test_{number:05}.py").write_text("def test_sum():\n    assert 1 + 1 == 2\n")
