"""What a rollout costs other harnesses, whose sandbox does nothing either: the same tasks, beside ours, in one run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine import IN_FLIGHT, engine_cost
from measure import run
from workloads import write_tasks

COUNT = 320
#: The others ask for at least this version.
PYTHONS = ("3.13", "3.12")

HARBOR = """
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult


class Noop(BaseEnvironment):
    @staticmethod
    def type():
        return "noop"

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        pass

    async def stop(self, delete):
        pass

    async def upload_file(self, source_path, target_path):
        pass

    async def upload_dir(self, source_dir, target_dir):
        pass

    async def download_file(self, source_path, target_path):
        raise FileNotFoundError(source_path)

    async def download_dir(self, source_dir, target_dir):
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        if source_dir.endswith("/verifier"):
            (Path(target_dir) / "reward.txt").write_text("1")

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        return ExecResult(stdout="", stderr="", return_code=0)
"""

BENCHFLOW = """
import asyncio
import sys
from pathlib import Path

import benchflow.sandbox.docker
from benchflow.evaluation import Evaluation, EvaluationConfig
from benchflow.sandbox._base import BaseSandbox
from benchflow.sandbox.protocol import ExecResult


class Noop(BaseSandbox):
    @classmethod
    def preflight(cls):
        pass

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        pass

    async def stop(self, delete):
        pass

    async def upload_file(self, source_path, target_path, *, mode=None):
        pass

    async def upload_dir(self, source_dir, target_dir, service="main"):
        pass

    async def download_file(self, source_path, target_path):
        raise FileNotFoundError(source_path)

    async def download_dir(self, source_dir, target_dir, service="main"):
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        if str(source_dir).endswith("/verifier"):
            (Path(target_dir) / "reward.txt").write_text("1")

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None, service="main"):
        return ExecResult(0, "", "")


benchflow.sandbox.docker.DockerSandbox = Noop
config = EvaluationConfig(agent="oracle", concurrency=int(sys.argv[2]))
result = asyncio.run(Evaluation(sys.argv[1], "jobs", config).run())
print("Mean: 1.000" if result.passed == result.total else result)
"""


@dataclass(frozen=True)
class Peer:
    """Another harness: its package, our sandbox for it, and the command that runs a folder of tasks."""

    package: str
    sandbox: str
    command: Callable[[Path, Path], list[str]]


PEERS = (
    Peer(
        "harbor",
        HARBOR,
        lambda bin, tasks: [
            *(f"{bin}/harbor", "run", "--path", f"{tasks}", "--agent", "nop", "--yes", "--quiet"),
            *("--environment-import-path", "noop_sandbox:Noop", "--n-concurrent", f"{IN_FLIGHT}"),
        ],
    ),
    Peer("benchflow", BENCHFLOW, lambda bin, tasks: [f"{bin}/python", "noop_sandbox.py", f"{tasks}", f"{IN_FLIGHT}"]),
)


def overhead(scratch: Path) -> None:
    """Print the CPU time of a rollout if the sandbox costs nothing: ours, and of each other harness that installs."""
    ours = scratch / "ours"
    print(f"pytest-benchflow           {engine_cost(ours, COUNT) * 1000:6.1f} ms of CPU, {COUNT} rollouts")
    python = _python()
    for peer in PEERS:
        if python is None:
            print(f"{peer.package:26} not measured: it needs a Python of {' or '.join(PYTHONS)}")
            continue
        folder = scratch / peer.package
        try:
            version = _install(peer, python, folder)
        except subprocess.CalledProcessError as failed:
            print(f"{peer.package:26} not measured, pip says: {failed.stderr.strip().splitlines()[-1]}")
            continue
        each = (_roll_out(peer, folder, COUNT) - _roll_out(peer, folder, 1)) / (COUNT - 1)
        print(f"{peer.package + ' ' + version:26} {each * 1000:6.1f} ms of CPU")


def _install(peer: Peer, python: str, folder: Path) -> str:
    """Make an environment with the newest version that can be installed, and return that version."""
    pip = [f"{folder}/venv/bin/python", "-m", "pip", "--disable-pip-version-check"]
    for command in ([python, "-m", "venv", f"{folder}/venv"], [*pip, "install", "--quiet", peer.package]):
        subprocess.run(command, check=True, capture_output=True, text=True)
    (folder / "noop_sandbox.py").write_text(peer.sandbox)
    shown = subprocess.run([*pip, "show", peer.package], check=True, capture_output=True, text=True).stdout
    return next(line.split()[1] for line in shown.splitlines() if line.startswith("Version:"))


def _roll_out(peer: Peer, folder: Path, count: int) -> float:
    tasks = folder / f"{count}-tasks"
    write_tasks(tasks, count)
    os.environ["PYTHONPATH"] = str(folder)
    try:
        cost = run(peer.command(folder / "venv/bin", tasks), folder)
    finally:
        del os.environ["PYTHONPATH"]
    if "Mean: 1.000" not in cost.output:
        raise SystemExit(f"{peer.package} did not give every rollout a reward of 1:\n{cost.output[-2000:]}")
    return cost.cpu


def _python() -> str | None:
    """Return a Python that the others accept: this one, or one from PATH or pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in PYTHONS:
        for path in (sys.executable, f"python{version}", *map(str, pyenv.glob(f"versions/{version}.*/bin/python"))):
            try:
                done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            except OSError:
                continue
            if done.stdout.startswith(f"Python {version}."):
                return path
    return None
