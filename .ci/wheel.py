"""Build the wheel, install it into fresh environments outside the checkout, and use it there as a user would.

There is one environment for every supported Python that this machine has, and one more with the oldest pytest that the
wheel asks for. Each runs `tests/wheel`; one of them also holds the typed project in there to `mypy --strict`.

    python .ci/wheel.py       needs pip beside the Python that runs it; `make wheel-test` sees to that
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "pytest_benchflow"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""Those of the classifiers, and the one that comes next."""
TASKS = ("hello-world", "sql-top-customers")
AT_ONCE = int(os.environ.get("JOBS", "2"))
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
# Neither the checkout nor the settings of whoever runs this may reach the environments. pip's own settings may: they
# say where packages come from.
ENV = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("PYTHON", "PYTEST_", "BF_", "MYPY", "VIRTUAL_ENV")) and key != "CI"
}


class Broken(Exception):
    """Something does not hold; the message is all that is to be said."""


@dataclass(frozen=True)
class Plan:
    """One environment to make."""

    name: str
    python: Path
    extra: tuple[str, ...] = field(default=())
    """What is installed beside the wheel."""
    checks_types: bool = False


def main() -> int:
    """Do all of it; 0 if everything holds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bf-wheel-") as scratch:
        try:
            wheel = build(Path(scratch, "dist"))
            check_content(wheel)
            chosen = plans(wheel)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                results = list(pool.map(lambda plan: attempt(plan, wheel, Path(scratch, plan.name)), chosen))
        except Broken as broken:
            print(f"wheel: {broken}", file=sys.stderr)
            return 1
    print(f"wheel: {sum(results)} of {len(results)} environments are fine, {time.monotonic() - began:.0f} s")
    return 0 if all(results) else 1


def call(words: Sequence[str | Path], cwd: Path) -> str:
    """Run a program; what it prints is returned, or is what is broken."""
    done = subprocess.run(
        words, cwd=cwd, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise Broken(f"{' '.join(map(str, words))} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def build(dist: Path) -> Path:
    """Build the wheel; nothing is written to the checkout."""
    dist.mkdir()
    call([*PIP, "wheel", "--no-deps", "--wheel-dir", dist, ROOT], cwd=dist)
    (wheel,) = dist.glob("*.whl")
    return wheel


def check_content(wheel: Path) -> None:
    """Hold the wheel to the package's folder: all of its files and no others."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")}
    files = (path for path in (ROOT / PACKAGE).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {path.relative_to(ROOT).as_posix() for path in files}
    problems = [f"{name} is not in it" for name in sorted(wanted - names)]
    problems += [f"{name} does not belong in it" for name in sorted(names - wanted)]
    # The folder could lack them too.
    for pattern in (r"/py\.typed", r"/__init__\.pyi", r"/agents/manifests/.+\.toml", r"/docker/guest/.+\.bash"):
        if not any(re.search(f"{pattern}$", name) for name in names):
            problems.append(f"nothing in it matches {pattern}")
    if problems:
        raise Broken(f"{wheel.name}:\n  " + "\n  ".join(problems))


def plans(wheel: Path) -> list[Plan]:
    """Plan an environment for each Python, and one with the oldest pytest on the first of them."""
    pythons = {}
    for version in VERSIONS:
        found = find_python(version)
        if found is None:
            print(f"wheel: Python {version} is not on this machine, so it is not tried")
        else:
            pythons[version] = found
    if not pythons:
        raise Broken(f"there is none of Python {', '.join(VERSIONS)} on this machine")
    first, last = min(pythons, key=VERSIONS.index), max(pythons, key=VERSIONS.index)
    oldest = oldest_pytest(wheel)
    return [
        # The one with the most to do comes first, so that nobody waits for it at the end.
        *(Plan(f"py{version}", python, ("mypy",), True) for version, python in pythons.items() if version == last),
        *(Plan(f"py{version}", python) for version, python in pythons.items() if version != last),
        Plan(f"py{first}-pytest{oldest}", pythons[first], (f"pytest=={oldest}",)),
    ]


def find_python(version: str) -> Path | None:
    """Return a Python of that version which can make environments, from PATH or from pyenv."""
    return next((path for path in candidates(version) if is_python(path, version)), None)


def candidates(version: str) -> Iterator[Path]:
    """Yield where a Python may be; on PATH it may also be one of pyenv's stand-ins that only prints an error."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder, f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    yield Path(sys.executable)


def is_python(path: Path, version: str) -> bool:
    """Say whether a path is a Python of that version that works."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-c", code], env=ENV, capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def oldest_pytest(wheel: Path) -> str:
    """Return the lower bound of pytest that the wheel's own metadata names."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    bounds = [re.fullmatch(r"pytest>=([0-9.]+)", line) for line in metadata.get_all("Requires-Dist", [])]
    (bound,) = (found[1] for found in bounds if found)
    return bound


def attempt(plan: Plan, wheel: Path, folder: Path) -> bool:
    """Try one environment, and say in a line how it went, or at length why not."""
    began = time.monotonic()
    try:
        told = use(plan, wheel, folder)
    except Broken as broken:
        print(f"wheel: {plan.name} is broken: {broken}", file=sys.stderr, flush=True)
        return False
    print(f"wheel: {plan.name}: {told}, {time.monotonic() - began:.0f} s", flush=True)
    return True


def use(plan: Plan, wheel: Path, folder: Path) -> str:
    """Make the environment, copy what is to be run beside it, and run it."""
    folder.mkdir()
    venv = folder / "venv"
    # Another pip installs into it: one of its own would take longer than all tests.
    call([plan.python, "-m", "venv", "--without-pip", venv], cwd=folder)
    call([*PIP, "--python", venv / "bin/python", "install", "--no-compile", wheel, *plan.extra], cwd=folder)
    tests = folder / "tests"
    shutil.copytree(ROOT / "tests/wheel", tests, ignore=shutil.ignore_patterns("__pycache__"))
    for home in ("plain", "project"):
        for task in TASKS:
            shutil.copytree(ROOT / "tasks" / task, tests / home / "tasks" / task)
        (tests / home / "pytest.ini").write_text("[pytest]\n")
    (tests / "pytest.ini").write_text("[pytest]\nnorecursedirs = plain project\n")
    words = [venv / "bin/pytest", "--rootdir", tests, "-c", tests / "pytest.ini", "-q", "-p", "no:cacheprovider"]
    told = [call([*words, tests], cwd=tests).strip().splitlines()[-1]]
    if plan.checks_types:
        project = tests / "project"
        shutil.copy(ROOT / "examples/custom_sandbox/company_sandbox.py", project)
        words = [venv / "bin/mypy", "--strict", "--cache-dir", folder / "mypy", *sorted(project.glob("*.py"))]
        told.append(f"mypy --strict: {call(words, cwd=project).strip()}")
    return ", ".join(told)


if __name__ == "__main__":
    sys.exit(main())
