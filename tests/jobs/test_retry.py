"""Which failures are tried again, how often and after which wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from project import write_task
from results import result

from pytest_benchflow.core.errors import Category, SandboxError
from pytest_benchflow.jobs import Job, LedgerReader, RetryConfig, Tally, collect_metrics, open_job
from pytest_benchflow.rollout import Resources, Rollout, RolloutConfig, RolloutResult, Tokens
from pytest_benchflow.tasks import load_task


@pytest.mark.parametrize(
    ("config", "delays"),
    [
        (RetryConfig(), [2, 4, 8, 16, 30, 30]),
        (RetryConfig(wait_multiplier=1, min_wait_sec=3), [3, 3, 3]),
        (RetryConfig(min_wait_sec=0), [0, 0]),
        (RetryConfig(max_wait_sec=5), [2, 4, 5, 5]),
    ],
)
def test_waits_grow_up_to_their_limit(config: RetryConfig, delays: list[float]) -> None:
    assert [config.delay(attempt) for attempt in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize(
    ("config", "given", "attempt", "again"),
    [
        (RetryConfig(), result(reward=0.0), 1, False),
        (RetryConfig(), result(reward=1.0), 1, False),
        (RetryConfig(), result(category=Category.SANDBOX, retryable=True), 1, True),
        (RetryConfig(), result(category=Category.SANDBOX, retryable=True), 2, True),
        (RetryConfig(), result(category=Category.SANDBOX, retryable=True), 3, False),
        (RetryConfig(), result(category=Category.CREDENTIALS), 1, False),
        (RetryConfig(), result(category=Category.REWARD), 1, False),
        (RetryConfig(max_retries=0), result(category=Category.SANDBOX, retryable=True), 1, False),
        (RetryConfig(retry_on_infra=False), result(category=Category.SANDBOX, retryable=True), 1, False),
        (RetryConfig(retry_on_install=False), result(category=Category.INSTALL, retryable=True), 1, False),
        (RetryConfig(retry_on_install=False), result(category=Category.SANDBOX, retryable=True), 1, True),
        (RetryConfig(retry_on_acp=False), result(category=Category.HANDSHAKE, retryable=True), 1, False),
        (
            RetryConfig(exclude_categories=frozenset({"sandbox"})),
            result(category=Category.SANDBOX, retryable=True),
            1,
            False,
        ),
        (RetryConfig(), result(category=None, reward=None, skipped="no solution"), 1, False),
    ],
)
def test_only_what_the_harness_could_not_do_is_tried_again(
    config: RetryConfig, given: object, attempt: int, again: bool
) -> None:
    assert config.should_retry(given, attempt) is again  # type: ignore[arg-type]


def test_what_a_mapping_leaves_out_is_as_usual() -> None:
    assert RetryConfig.from_mapping({"max_retries": 5}) == RetryConfig(max_retries=5)
    assert RetryConfig.from_mapping({"exclude_categories": ["timeout", "build"]}).exclude_categories == {
        "timeout",
        "build",
    }
    assert RetryConfig.from_mapping(None) == RetryConfig.from_mapping({}) == RetryConfig()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_retrys": 1}, "retry has the unknown key 'max_retrys'; did you mean max_retries?"),
        ({"max_retries": -1}, "max_retries is -1; give 0 or more"),
        ({"exclude_categories": ["sandbx"]}, "exclude_categories has 'sandbx'; did you mean sandbox?"),
    ],
)
def test_a_mistake_is_told(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        RetryConfig.from_mapping(given)
    assert str(caught.value) == message


class Paid(Rollout):
    """A rollout whose agent asks its model, and whose sandbox is lost as often as `failures` says."""

    failures = 0

    async def run(self) -> RolloutResult:
        made = self.recorder
        made.make_directory(self.config.jobs_dir / str(self.config.job_name))
        cost = {"cost_usd": 0.25, "tokens": Tokens(input=100, output=10), "n_prompts": 1, "agent": "gemini"}
        if Paid.failures > 0:
            Paid.failures -= 1
            made.add_error(SandboxError("the connection was lost"))
        else:
            cost |= {"rewards": {"reward": 1.0}, "reward": 1.0}
        ended = made.result().model_copy(update=cost)
        assert made.directory is not None
        (made.directory / "result.json").write_text(ended.model_dump_json())
        return ended


def run_paid(job: Job, task: Path, monkeypatch: pytest.MonkeyPatch, *, failures: int) -> RolloutResult:
    monkeypatch.setattr("pytest_benchflow.jobs.job.Rollout", Paid)
    Paid.failures = failures

    async def run() -> RolloutResult:
        resources = Resources.with_defaults()
        try:
            return await job.run(RolloutConfig(task_path=task, key="a"), load_task(task), resources)
        finally:
            await resources.aclose()

    return asyncio.run(run())


def test_failed_attempts_keep_their_directories_and_their_cost_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = open_job(tmp_path, "job", "run", exact=True, retry=RetryConfig(max_retries=2, min_wait_sec=0))
    scored = run_paid(job, write_task(tmp_path / "hello"), monkeypatch, failures=2)
    directories = sorted(path.name for path in job.directory.iterdir() if path.is_dir())
    assert scored.reward == 1.0
    assert sorted([scored.rollout_name, *(attempt.rollout_name for attempt in scored.attempts)]) == directories
    assert [(each.status, each.error and each.error.category, each.cost_usd) for each in scored.attempts] == [
        ("error", "sandbox", 0.25)
    ] * 2
    assert (scored.cost_usd, scored.spent_usd, scored.spent_tokens) == (0.25, 0.75, 330)
    tally = Tally.of([scored])
    assert (tally.cost_usd, tally.tokens, tally.cost_is_partial) == (0.75, 330, False)
    assert [event.cost_usd for event in LedgerReader(job.ledger.path).news() if event.kind in ("retry", "end")] == [
        0.25
    ] * 3


def test_what_earlier_runs_of_the_job_tried_in_vain_was_paid_for_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write_task(tmp_path / "hello")
    first = open_job(tmp_path, "job", "run", exact=True, retry=RetryConfig(max_retries=0))
    assert run_paid(first, task, monkeypatch, failures=1).status == "error"
    again = open_job(tmp_path, "job", "run", exact=True, resume=True)
    scored = run_paid(again, task, monkeypatch, failures=0)
    assert (scored.cost_usd, scored.spent_usd) == (0.25, 0.5)
    assert collect_metrics(tmp_path / "job").summary()["total_cost_usd"] == 0.5
    # One that was killed cannot say what it cost.
    (again.directory / scored.attempts[0].rollout_name / "result.json").unlink()
    (again.directory / scored.rollout_name / "result.json").unlink()
    third = run_paid(again, task, monkeypatch, failures=0)
    assert [attempt.status for attempt in third.attempts] == ["killed", "killed"]


def test_every_failure_knows_its_category_phase_and_advice(tmp_path: Path) -> None:
    job = open_job(tmp_path, "job", "run", exact=True)
    task = write_task(tmp_path / "mute", test="true")

    async def run() -> RolloutResult:
        resources = Resources.with_defaults()
        try:
            config = RolloutConfig(task_path=task, sandbox="local", sandbox_user=None)
            return await job.run(config, load_task(task), resources)
        finally:
            await resources.aclose()

    error = asyncio.run(run()).error
    assert error is not None
    assert (error.category, error.phase, error.retryable) == ("reward", "verify", False)
    assert error.advice
    assert "reward.txt" in error.advice
