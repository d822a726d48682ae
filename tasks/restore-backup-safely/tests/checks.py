"""Named checks for a verifier: run them, print each one, write the reward and a CTRF report.

Each task carries its own copy of this file, because a task has to be whole by itself.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LOGS = Path("/logs/verifier")
CLEAN_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}

_checks: list[Callable[[], None]] = []


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Register a check; it fails by raising, and its name is the name in the report."""
    _checks.append(function)
    return function


def equal(got: object, want: object, what: str) -> None:
    """Fail with both values unless they are the same."""
    if got != want:
        raise AssertionError(f"{what}: expected {want!r:.300}, got {got!r:.300}")


def run(
    *argv: str, stdin: str = "", cwd: str | Path = "/app", timeout: float = 10, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of the workspace in its own process group and a clean environment."""
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=CLEAN_ENV | (env or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{' '.join(argv):.200} did not finish within {timeout:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def succeed(*argv: str, **options) -> str:
    """Run a program that must exit with 0 and return what it printed."""
    done = run(*argv, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(argv):.200} exited with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def finish(score: Callable[[dict[str, bool]], dict[str, float]] | None = None) -> None:
    """Run all checks and write the results: all or nothing, or what `score` makes of them."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    tests = [_run_one(function) for function in _checks]
    passed = {test["name"]: test["status"] == "passed" for test in tests}
    LOGS.mkdir(parents=True, exist_ok=True)
    _write("ctrf.json", json.dumps(_ctrf(tests), indent=2))
    if score:
        _write("reward.json", json.dumps(score(passed)))
    else:
        _write("reward.txt", "1" if all(passed.values()) else "0")
    print(f"{sum(passed.values())} of {len(passed)} checks passed")


def _run_one(function: Callable[[], None]) -> dict[str, object]:
    """Run one check and describe it as a CTRF test."""
    start = time.time()
    message = ""
    try:
        function()
    except Exception as error:
        kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
        message = f"{kind}{error}"[:1000] or "failed"
    status = "failed" if message else "passed"
    print(f"{status.upper()} {function.__name__}" + (f": {message}" if message else ""), flush=True)
    test = {"name": function.__name__, "status": status, "duration": round((time.time() - start) * 1000)}
    return test | ({"message": message} if message else {})


def _ctrf(tests: list[dict[str, object]]) -> dict[str, object]:
    failed = sum(test["status"] == "failed" for test in tests)
    now = round(time.time() * 1000)
    summary = {
        "tests": len(tests),
        "passed": len(tests) - failed,
        "failed": failed,
        "pending": 0,
        "skipped": 0,
        "other": 0,
        "start": now - sum(test["duration"] for test in tests),
        "stop": now,
    }
    return {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {"tool": {"name": "checks"}, "summary": summary, "tests": tests},
    }


def _write(name: str, text: str) -> None:
    """Replace a result file instead of writing through whatever has its name."""
    path = LOGS / name
    path.unlink(missing_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
