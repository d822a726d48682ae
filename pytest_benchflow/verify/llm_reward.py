"""A judge as a reward function, for rubrics in Python."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pytest_benchflow.core.errors import BadValue, JudgeEnvironmentError, RewardError
from pytest_benchflow.core.files import write_atomically
from pytest_benchflow.providers import Asker
from pytest_benchflow.verify.criteria import CriterionScore, JudgeRecord
from pytest_benchflow.verify.judge import Judge
from pytest_benchflow.verify.judge_prompt import Background
from pytest_benchflow.verify.judge_verifier import judge_endpoint
from pytest_benchflow.verify.reward_details import EVALUATION_DETAILS, REWARD_DETAILS, evaluation_details
from pytest_benchflow.verify.rewards import REWARD_JSON, REWARD_TXT, parse_txt
from pytest_benchflow.verify.rubric import RewardEvent
from pytest_benchflow.verify.rubric_file import load_rubric, rubric_of
from pytest_benchflow.verify.rubric_models import JudgeRubric
from pytest_benchflow.verify.submission import Work

_SCORE = "llm_judge_score.txt"
_RUBRICS = ("rubric.toml", "rubric.json")
#: Files of the verifier, which are no part of what is judged.
_NOT_JUDGED = frozenset({*_RUBRICS, _SCORE, REWARD_JSON, REWARD_TXT, REWARD_DETAILS, EVALUATION_DETAILS})


class LLMJudgeRewardFunc:
    """A model's verdict on the files in a directory: on its `artifacts/`, if it is the directory of a rollout.

    The criteria come from `rubric_path`, from `criteria` (descriptions or tables as in a rubric), from a rubric in the
    directory or beside it; without any, `prompt` itself is what the work is rated by, from 0 to 1. A score that was
    judged before, in `llm_judge_score.txt`, is taken as it is. `judge_env` has variables for this judge alone. What
    keeps it from a verdict raises a JudgeError, with `judge_errors_are_infra` or without.
    """

    def __init__(
        self,
        prompt: str = "",
        model: str = "claude-sonnet-4-6",
        *,
        rubric_path: Path | str | None = None,
        criteria: Sequence[Mapping[str, object] | str] | None = None,
        mode: Literal["individual", "batched"] = "individual",
        judge_model: str | None = None,
        judge_env: Mapping[str, str] | None = None,
        judge_errors_are_infra: bool = False,
    ) -> None:
        if mode not in ("individual", "batched"):
            raise BadValue(f"mode is {mode!r}", advice="give individual or batched")
        self.prompt = prompt
        self.model = model
        self.rubric_path = rubric_path
        self.criteria = criteria
        self.mode = mode
        self.judge_model = judge_model
        self.judge_env = dict(judge_env or {})
        self.judge_errors_are_infra = judge_errors_are_infra
        self.events: list[RewardEvent] = []
        """One for each criterion of the last score."""
        self.results: tuple[CriterionScore, ...] = ()
        """The criteria of the last score, with reasons."""
        self.record: JudgeRecord | None = None
        """What the last score used."""

    async def score(self, rollout_dir: Path) -> float:
        """Return the judge's score."""
        directory = Path(rollout_dir)
        self.events, self.results, self.record = [], (), None
        rubric = self._rubric(directory)
        if rubric is None:
            return _earlier_score(directory)
        endpoint = judge_endpoint(self.judge_model or rubric.model or self.model, self.judge_env)
        context = "" if rubric.file is None else self.prompt
        artifacts = directory / "artifacts"
        work = Work(artifacts if artifacts.is_dir() else directory, left_out=_NOT_JUDGED)
        async with Asker(endpoint) as asker:
            judge = Judge(rubric, asker, background=Background(context=context))
            try:
                judgement = await judge.score(work)
            finally:
                self.record = judge.record
        self.results = judgement.criteria
        self.events = [
            RewardEvent("dense", each.value, f"criterion:{each.name}", step, each.space, "step")
            for step, each in enumerate(judgement.criteria)
        ]
        details = json.dumps(evaluation_details(judgement.reward, judgement.criteria), indent=2, ensure_ascii=False)
        await asyncio.to_thread(write_atomically, directory / EVALUATION_DETAILS, details + "\n", errors="replace")
        return judgement.reward

    def _rubric(self, directory: Path) -> JudgeRubric | None:
        """Return what is judged by; None if it was judged before."""
        if self.rubric_path is not None:
            return load_rubric(self.rubric_path)
        if self.criteria is not None:
            return replace(rubric_of(self.criteria), mode=self.mode)
        places = (folder / name for folder in (directory, directory.parent) for name in _RUBRICS)
        if (path := next((place for place in places if place.is_file()), None)) is not None:
            return load_rubric(path)
        if (directory / _SCORE).is_file():
            return None
        if not self.prompt.strip():
            raise JudgeEnvironmentError(
                f"there is no rubric for {directory}", advice="give rubric_path, criteria or a prompt"
            )
        whole = rubric_of([{"name": "prompt", "description": self.prompt, "type": "numeric", "max": 1}])
        return replace(whole, file=None)


def _earlier_score(directory: Path) -> float:
    try:
        return parse_txt((directory / _SCORE).read_text("utf-8", "replace").strip())
    except RewardError as error:
        raise RewardError(error.message.replace("reward.txt", _SCORE), advice=error.advice) from None
