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


def write_project(folder: Path) -> None:
    """Write an empty project, so that pytest looks no further up."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n")


def write_tasks(folder: Path, count: int, linger_sec: int = 0) -> None:
    """Write trivial tasks, whose solutions take no longer than that."""
    files = dict(_FILES)
    if linger_sec:
        files["solution/solve.sh"] += f"sleep {linger_sec}\n"
    for number in range(count):
        for name, text in files.items():
            path = folder / f"task-{number:05}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.suffix == ".sh":
                path.chmod(0o755)


def write_empty_tests(folder: Path, count: int) -> None:
    """Write one file of tests that do nothing."""
    folder.mkdir(parents=True)
    (folder / "test_empty.py").write_text("".join(f"def test_{n:05}():\n    pass\n\n\n" for n in range(count)))


def write_test_files(folder: Path, count: int) -> None:
    """Write test files with one test each."""
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"test_{number:05}.py").write_text("def test_sum():\n    assert 1 + 1 == 2\n")
