"""The library without pytest, with every type written out: `python library.py TASKS`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest_benchflow as bf


class Patient(bf.BaseUser):
    """Say the task, and nothing more once it is solved."""

    async def run(self, round: int, instruction: str, round_result: bf.RoundResult | None = None) -> str | None:
        return instruction if round_result is None or round_result.reward != 1.0 else None


def told(name: str, result: bf.RolloutResult) -> None:
    print(name, result.status)


def configuration(task: str) -> bf.RolloutConfig:
    roles = [bf.Role("solver", "oracle")]
    scene = bf.Scene("solve", roles=roles, turns=[bf.Turn("solver")])
    return bf.RolloutConfig(task_path=Path(task), scenes=[scene], sandbox="local", threshold=0.5)


async def one(task: str) -> None:
    named: bf.RolloutResult = await bf.run("oracle", task_path=task, sandbox="local")
    print("named", named.status, named.reward)
    configured: bf.RolloutResult = await bf.run(configuration(task))
    print("configured", configured.status, configured.reward)
    if configured.error is not None:
        raise SystemExit(f"{configured.error.phase}: {configured.error.message}")
    async with bf.Environment.from_task(task, sandbox="local") as env:
        found: bf.RuntimeResult = await bf.run(bf.Agent("oracle"), env, bf.RuntimeConfig(timeout=60))
        print("runtime", found.passed, (await env.exec("ls /app")).stdout.strip())


async def many(tasks: str) -> float | None:
    config = bf.EvaluationConfig(agent="oracle", sandbox="local", concurrency=2, retry=bf.RetryConfig(max_retries=1))
    done: bf.EvaluationResult = await bf.Evaluation(tasks, config=config, job_name="nightly", on_result=told).run()
    print("evaluated", done.passed, "of", done.total)
    metrics: bf.BenchmarkMetrics = bf.collect_metrics("jobs/nightly", benchmark="demo")
    print("pass@1", metrics.pass_at(1))
    return done.mean_reward


def main(tasks: str) -> None:
    try:
        bf.load_task(f"{tasks}/nowhere")
    except bf.BenchflowError as error:
        print("refused", type(error).__name__)
    asyncio.run(one(f"{tasks}/hello-world"))
    print("mean reward", asyncio.run(many(tasks)))


if __name__ == "__main__":
    main(sys.argv[1])
