"""The judges of a task's steps: what each lacks is known before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import resolve_env
from pytest_benchflow.core.errors import CannotRunHere, JudgeEnvironmentError, UsageError

if TYPE_CHECKING:
    from pytest_benchflow.rollout.config import RolloutConfig
    from pytest_benchflow.tasks import Task, TaskStep
    from pytest_benchflow.verify import JudgeSetup


def verifier_env(task: Task, step: TaskStep, config: RolloutConfig) -> dict[str, str]:
    """Return the verifier's variables, filled in from the runner's environment."""
    resolved = resolve_env(step.verifier.env, os.environ, f"{task.file}: [verifier.env]")
    return {**resolved, **config.verifier_env}


def judges_of(task: Task, config: RolloutConfig) -> Mapping[str | None, JudgeSetup]:
    """Return the judge of every step that has one, by the step's name."""
    judged = [step for step in task.steps if step.verifier.type == "llm-judge"]
    if not judged or config.skip_verify:
        return {}
    from pytest_benchflow.verify import judge_setup

    try:
        return {step.name: judge_setup(step, verifier_env(task, step, config)) for step in judged}
    except JudgeEnvironmentError as error:
        if config.missing_credentials == "skip":
            raise CannotRunHere(f"judge: {error}") from None
        raise


def require_judge_prices(judges: Iterable[JudgeSetup], config: RolloutConfig) -> None:
    """Refuse judges whose price nobody knows: with a budget, an unknown price is not nothing."""
    from pytest_benchflow.providers import Prices, TokenUse, has_list, price_of

    prices, some = Prices.read(config.price), TokenUse(1000, 1000)
    for endpoint in (judge.endpoint for judge in judges):
        if price_of(endpoint, None, some, prices) is None:
            advice = "name it by --bf-price MODEL=IN/OUT"
            advice += "" if has_list() else ", or pip install 'pytest-benchflow[prices]'"
            raise UsageError(
                f"the budget needs the price of the judge {endpoint.asked}, which is not known", advice=advice
            )
