"""Compare two checkouts of this project in one run: `compare.py OTHER_CHECKOUT [THIS_CHECKOUT]`.

They take turns, so that what else the machine does hits both. Only command lines are run: module paths may differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from pathlib import Path
from statistics import median

import collection
import docker_rollouts
import measure
import rollouts
from measure import Checkout

ROUNDS = 5
COUNT = 16
PAIRS = 5
#: They would change what is measured, or which checkout is imported.
UNWANTED = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTEST_ADDOPTS")
#: Runs pytest and tells how many modules of this project, and how many in all, it has imported.
COUNT_MODULES = """
import sys, pytest
code = pytest.main(sys.argv[1:])
print("modules", sum(name.partition(".")[0] == "pytest_benchflow" for name in sys.modules), len(sys.modules))
sys.exit(code)
"""

#: Numbers of one turn by what they mean; in all of them, less is better.
Numbers = dict[str, float]


@dataclass(frozen=True)
class Benchmark:
    """A project to write once for each checkout, and what to measure on it at each turn."""

    write: Callable[[Path], None]
    measure: Callable[[Checkout, Path], Numbers]
    #: Turns per round: what is short and noisy takes more.
    turns: int = 1
    #: What is the same every time is measured in one turn.
    steady: bool = False
    #: Tells why it cannot be measured here.
    unavailable: Callable[[Checkout], str | None] = lambda checkout: None


@dataclass(frozen=True)
class Row:
    """All that was measured of one thing, turn by turn."""

    benchmark: str
    name: str
    a: list[float]
    b: list[float]

    @property
    def ratio(self) -> float:
        """Return the median of B by the median of A."""
        return _ratio(median(self.a), median(self.b))

    @property
    def ratios(self) -> list[float]:
        """Return the ratio of each turn, lowest first: how far they lie apart is the noise."""
        return sorted(filter(isfinite, map(_ratio, self.a, self.b))) or [nan]


def _ratio(a: float, b: float) -> float:
    return b / a if a > 0 else nan


def _collection(checkout: Checkout, project: Path) -> Numbers:
    files, cold, warm = collection.collect(checkout, project)
    return {
        "plain pytest, CPU s (control)": files.cpu,
        "cold, CPU s": cold.cpu,
        "cold, CPU × plain": cold.cpu / files.cpu,
        "cold, time × plain": cold.seconds / files.seconds,
        "warm, CPU s": warm.cpu,
        "warm, CPU × plain": warm.cpu / files.cpu,
        "warm, time × plain": warm.seconds / files.seconds,
    }


def _overhead(checkout: Checkout, project: Path) -> Numbers:
    # A few pairs to a turn: what is added is less than what two runs of the same differ by.
    added = median(collection.added_cpu(checkout, project) for _ in range(PAIRS))
    return {"added to a run without tasks, CPU ms": added * 1000}


def _instructions(checkout: Checkout, project: Path) -> Numbers:
    return {"added to a run without tasks, million": collection.added_instructions(checkout, project) / 1e6}


def _no_valgrind(checkout: Checkout) -> str | None:
    return None if shutil.which("valgrind") else "valgrind is not installed"


def _local(checkout: Checkout, project: Path) -> Numbers:
    one, many, each = rollouts.roll_out(checkout, project, COUNT)
    return {
        "one rollout, pytest included, CPU s": one.cpu,
        f"each of {COUNT}, pytest included, CPU s": many.cpu / COUNT,
        "each one more, CPU s": each,
    }


def _docker(checkout: Checkout, project: Path) -> Numbers:
    floor = docker_rollouts.floor(checkout, project, docker_rollouts.COUNT)
    many = docker_rollouts.roll_out_all(checkout, project)
    return {
        "floor, s (control)": floor,
        f"{docker_rollouts.COUNT} rollouts, s": many.wall,
        f"{docker_rollouts.COUNT} rollouts, × floor": many.wall / floor,
        "our processes, CPU s": many.cpu,
    }


def _memory(checkout: Checkout, project: Path) -> Numbers:
    cost = rollouts.in_flight(checkout, project)
    return {
        f"runner of {rollouts.IN_FLIGHT} rollouts, peak RSS MB": cost.rss_mb,
        "with all below it, peak PSS MB": cost.tree_mb,
    }


def _size(checkout: Checkout, project: Path) -> Numbers:
    argv = [checkout.python, "-c", COUNT_MODULES, "-p", "no:hypothesispytest", "tasks", *rollouts.OPTIONS]
    ours, all_modules = measure.run(argv, project).output.rpartition("modules ")[2].split()
    package = checkout.root / "pytest_benchflow"
    files = [path for path in package.rglob("*.py*") if path.suffix in {".py", ".pyi"}]
    return {
        "modules of ours in a rollout": int(ours),
        "modules in a rollout": int(all_modules),
        "files of the package": len(files),
        "lines of the package": sum(path.read_bytes().count(b"\n") for path in files),
    }


BENCHMARKS = {
    "collection": Benchmark(collection.write_both, _collection),
    "overhead": Benchmark(collection.write_suite, _overhead, turns=2),
    "instructions": Benchmark(collection.write_suite, _instructions, steady=True, unavailable=_no_valgrind),
    "local": Benchmark(partial(rollouts.write_many, count=COUNT), _local, turns=2),
    "docker": Benchmark(docker_rollouts.write_many, _docker, unavailable=docker_rollouts.unavailable),
    "memory": Benchmark(
        partial(rollouts.write_many, count=rollouts.IN_FLIGHT, linger_sec=rollouts.LINGER_SEC), _memory
    ),
    "size": Benchmark(partial(rollouts.write_many, count=1), _size, steady=True),
}


def main() -> None:
    """Measure what was asked for, print a table, and write all numbers if wanted."""
    options = _options()
    for name in UNWANTED:
        os.environ.pop(name, None)
    a, b = _checkout(options.other), _checkout(options.this)
    print(f"A {a.root} {_commit(a)}\nB {b.root} {_commit(b)}", flush=True)
    rows = [row for name in options.only or BENCHMARKS for row in _compare(name, a, b, options.rounds)]
    _print(rows)
    if options.json:
        options.json.write_text(json.dumps(_document(rows, a, b), indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", metavar="OTHER_CHECKOUT", type=Path)
    parser.add_argument("this", metavar="THIS_CHECKOUT", type=Path, nargs="?", default=measure.HERE.root)
    parser.add_argument("--rounds", metavar="N", type=int, default=ROUNDS)
    parser.add_argument("--only", metavar="NAME", action="append", choices=BENCHMARKS, help=", ".join(BENCHMARKS))
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the numbers of every turn")
    return parser.parse_args()


def _checkout(root: Path) -> Checkout:
    """Return the checkout at a path, with an environment of its own."""
    root = root.resolve()
    if not (root / "pytest_benchflow").is_dir():
        raise SystemExit(f"{root} is no checkout of this project")
    bin_dir = root / ".venv" / "bin"
    if not bin_dir.exists():
        print(f"installing {root}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", root / ".venv"], check=True)
        subprocess.run([bin_dir / "pip", "install", "--quiet", "--editable", ".[test]"], cwd=root, check=True)
    return Checkout(root, str(bin_dir / "python"))


def _commit(checkout: Checkout) -> str:
    argv = ["git", "-C", str(checkout.root), "describe", "--always", "--dirty"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def _compare(name: str, a: Checkout, b: Checkout, rounds: int) -> list[Row]:
    """Measure both checkouts in turns: A B, B A, A B and so on."""
    benchmark = BENCHMARKS[name]
    if missing := benchmark.unavailable(b):
        print(f"{name}: {missing}")
        return []
    seen: dict[Checkout, list[Numbers]] = {a: [], b: []}
    with tempfile.TemporaryDirectory(prefix="benchflow-bench-") as scratch:
        # Each has a project of its own: caches and jobs are left in it.
        projects = {a: Path(scratch, "a"), b: Path(scratch, "b")}
        for checkout, project in projects.items():
            benchmark.write(project)
            # Compiles, builds and reads into memory what later turns find there.
            benchmark.measure(checkout, project)
        turns = 1 if benchmark.steady else rounds * benchmark.turns
        for turn in range(turns):
            for checkout in (a, b) if turn % 2 == 0 else (b, a):
                seen[checkout].append(benchmark.measure(checkout, projects[checkout]))
            print(f"{name}: {turn + 1} of {turns}", file=sys.stderr)
    return [Row(name, what, [turn[what] for turn in seen[a]], [turn[what] for turn in seen[b]]) for what in seen[a][0]]


def _print(rows: list[Row]) -> None:
    width = max((len(row.name) for row in rows), default=0)
    print(f"{'':12} {'':{width}} {'A':>9} {'B':>9} {'B/A':>6}  of each turn")
    for row in rows:
        numbers = f"{_number(median(row.a)):>9} {_number(median(row.b)):>9} {row.ratio:6.3f}"
        print(f"{row.benchmark:12} {row.name:{width}} {numbers}  {row.ratios[0]:.2f} to {row.ratios[-1]:.2f}")


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _document(rows: list[Row], a: Checkout, b: Checkout) -> dict[str, object]:
    checkouts = {name: {"path": str(it.root), "commit": _commit(it)} for name, it in (("a", a), ("b", b))}
    return {"checkouts": checkouts, "measurements": list(map(_measurement, rows))}


def _measurement(row: Row) -> dict[str, object]:
    # JSON has no word for what is not a number.
    ratio = row.ratio if isfinite(row.ratio) else None
    return {**vars(row), "median_a": median(row.a), "median_b": median(row.b), "ratio": ratio}


if __name__ == "__main__":
    main()
