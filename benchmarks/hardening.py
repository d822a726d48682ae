"""What hardening adds to a rollout: the same rollouts with it and with all of it off, in turns, in one process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from workloads import write_tasks

from pytest_benchflow.agents import (
    AgentContext,
    AgentOutcome,
    AgentRegistry,
    AgentRequest,
    ModelAccess,
    PromptResult,
)
from pytest_benchflow.rollout import Resources, Rollout, RolloutConfig
from pytest_benchflow.sandboxes import Mount
from pytest_benchflow.tasks import Task

ROUNDS = 9
BARS = {"local": 0.15, "docker": 0.5}
_OFF = "[verifier.hardening]\nenabled = false\n"


class _Session:
    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        return PromptResult(AgentOutcome.COMPLETED, stop_reason="end_turn", message="done")

    async def close(self) -> None:
        """Nothing to end."""


class Idle:
    """An agent that does nothing and is not trusted."""

    name = "idle"
    takes_model = False
    calls_model = False
    runs_as_task_user = False

    def skip_reason(self, task: Task) -> str | None:
        """It can do nothing anywhere."""
        return None

    def access(self, task: Task, request: AgentRequest) -> ModelAccess:
        """It needs nothing."""
        return ModelAccess(env=request.env)

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        """Nothing to mount."""
        return ()

    async def install(self, context: AgentContext) -> None:
        """Nothing to install."""

    async def connect(self, context: AgentContext) -> _Session:
        """Open the empty session."""
        return _Session()


def local(scratch: Path) -> None:
    """Print what hardening adds in the local sandbox (bar 0.15 s)."""
    asyncio.run(_compare(scratch, "local"))


def docker(scratch: Path) -> None:
    """Print what hardening adds in Docker (bar 0.5 s)."""
    asyncio.run(_compare(scratch, "docker"))


async def _compare(scratch: Path, sandbox: str) -> None:
    tasks = {}
    for name in ("on", "off"):
        write_tasks(scratch / name, 1)
        tasks[name] = next((scratch / name).iterdir())
    file = tasks["off"] / "task.toml"
    file.write_text(f"{file.read_text()}\n{_OFF}")
    registry = AgentRegistry()
    registry.register(Idle())
    resources = Resources.with_defaults(registry)
    try:
        for user in ("agent", None):
            times: dict[str, list[float]] = {name: [] for name in tasks}
            for number in range(ROUNDS + 1):
                for name, task in tasks.items():
                    config = RolloutConfig(
                        task_path=task,
                        agent="idle",
                        sandbox=sandbox,
                        sandbox_user=user,
                        jobs_dir=scratch / "jobs",
                        job_name="bench",
                        rollout_name=f"{name}-{user}-{number}",
                    )
                    began = time.perf_counter()
                    result = await (await Rollout.create(config, resources)).run()
                    if result.error is not None:
                        raise SystemExit(result.error.message)
                    times[name].append(time.perf_counter() - began)
            # The first round builds and fills caches.
            on, off = (median(times[name][1:]) for name in ("on", "off"))
            added = median(a - b for a, b in zip(times["on"][1:], times["off"][1:], strict=True))
            who = user or "root"
            print(
                f"{sandbox}, agent as {who:<6} {off:6.3f} s without, {on:6.3f} s with: "
                f"{added:+.3f} s (bar {BARS[sandbox]:g})"
            )
    finally:
        await resources.aclose()
