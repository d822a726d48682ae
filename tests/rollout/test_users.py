"""Users decide what is said next; loop strategies are users that come ready made."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.rollout.users import (
    MAX_FEEDBACK_CHARS,
    BaseUser,
    Feedback,
    FunctionUser,
    LoopStrategy,
    PassthroughUser,
    RoundResult,
    failing_names,
    feedback_text,
    load_user,
    loop_report,
    parse_loop,
    round_record,
)
from pytest_benchflow.verify import Checks

MISSED = RoundResult(0, rewards={"reward": 0.0})
PASSED = RoundResult(1, rewards={"reward": 1.0})


async def rounds(user: BaseUser, results: list[RoundResult]) -> list[str | None]:
    """Let a user speak at the start and after each result."""
    return [await user.run(n, "Do it.", result) for n, result in enumerate([None, *results])]


async def test_a_passthrough_user_hands_the_task_over_once() -> None:
    assert await rounds(PassthroughUser(), [MISSED]) == ["Do it.", None]


async def test_a_user_without_run_says_so() -> None:
    class Silent(BaseUser):
        pass

    with pytest.raises(NotImplementedError, match="Silent"):
        await Silent().run(0, "x")


async def test_a_function_can_be_a_user() -> None:
    def say(round: int, instruction: str, result: RoundResult | None) -> str | None:
        return None if result and result.reward == 1.0 else f"{round}: {instruction}"

    async def say_later(round: int, instruction: str, result: RoundResult | None) -> str | None:
        await asyncio.sleep(0)
        return say(round, instruction, result)

    for user in (FunctionUser(say), FunctionUser(say_later), FunctionUser(lambda *args: say_later(*args))):
        assert await rounds(user, [MISSED, PASSED]) == ["0: Do it.", "1: Do it.", None]


@pytest.mark.parametrize(
    ("rewards", "reward"), [(None, None), ({}, None), ({"reward": 0.5, "a": 1}, 0.5), ({"a": 0.0, "b": 1.0}, 0.5)]
)
def test_the_reward_of_a_round_is_that_of_a_rollout(rewards: dict[str, float] | None, reward: float | None) -> None:
    assert RoundResult(0, rewards=rewards).reward == reward


USERS = """
from __future__ import annotations
from dataclasses import dataclass, field
from pytest_benchflow.rollout.users import BaseUser

@dataclass
class Stubborn(BaseUser):
    said: list[int] = field(default_factory=list)

    async def run(self, round, instruction, round_result=None):
        self.said.append(round)
        return "Again!"

instance = Stubborn()
number = 7

def function(round, instruction, round_result):
    return "From a function."
"""


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("mine:Stubborn", "Again!"),
        ("mine.py:Stubborn", "Again!"),
        ("mine:function", "From a function."),
        ("mine:instance", "Again!"),
        ("pytest_benchflow.rollout.users:PassthroughUser", "Do it."),
    ],
)
async def test_a_user_is_found_by_name(tmp_path: Path, reference: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(USERS)
    assert await load_user(reference, tmp_path).run(0, "Do it.") == says


async def test_no_two_rollouts_share_a_user(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS)
    for name in ("Stubborn", "instance"):
        one, other = (load_user(f"mine:{name}", tmp_path) for _ in range(2))
        await one.run(0, "x")
        assert vars(one) == {"said": [0]}
        assert vars(other) == {"said": []}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("mine", "user 'mine' does not name an object; write module:object"),
        ("mine:", "user 'mine:' does not name an object"),
        ("mine:Stuborn", "user 'mine:Stuborn': mine has no Stuborn; did you mean Stubborn?"),
        ("mine:number", "user 'mine:number' is int; name a subclass of BaseUser or a function"),
        ("other.py:User", "user 'other.py:User': there is no "),
        ("no_such_module:User", "user 'no_such_module:User': ModuleNotFoundError: No module named"),
        ("broken:User", "user 'broken:User': SyntaxError: "),
    ],
)
def test_a_user_that_cannot_be_found_is_told(tmp_path: Path, reference: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(USERS)
    (tmp_path / "broken.py").write_text("def (")
    with pytest.raises(ValueError) as caught:
        load_user(reference, tmp_path)
    assert isinstance(caught.value, UsageError)
    assert str(caught.value).startswith(message)


def test_the_record_of_a_round_counts_what_happened() -> None:
    result = RoundResult(2, trajectory=[{"type": "tool_call"}], rewards={"reward": 0.5}, n_tool_calls=1, role="agent")
    recorder = round_record(result, prompt="Go.", wall_sec=1.23456, tokens=10, feedback_level="names")
    assert recorder["n_trajectory_events"] == 1
    assert recorder["wall_sec"] == 1.235
    assert recorder["feedback_level"] == "names"
    assert "feedback_level" not in round_record(result, prompt="Go.", wall_sec=1)


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("single-shot", LoopStrategy("single-shot")),
        ("verify-retry", LoopStrategy("verify-retry", 3, "names")),
        ("verify-retry:k=1", LoopStrategy("verify-retry", 1, "names")),
        ("verify-retry:feedback=raw, k=10", LoopStrategy("verify-retry", 10, "raw")),
        ("self-review:k=2", LoopStrategy("self-review", 2)),
    ],
)
def test_a_strategy_is_read(text: str, strategy: LoopStrategy) -> None:
    assert parse_loop(text) == strategy
    assert parse_loop(str(strategy)) == strategy
    assert strategy.max_user_rounds == strategy.k + 1
    assert (strategy.user() is None) == (text == "single-shot")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("verify-rety:k=3", "loop strategy 'verify-rety:k=3' is not known; did you mean verify-retry?"),
        ("", "loop strategy '' is not known; known: self-review, single-shot, verify-retry"),
        ("verify-retry:k=0", "loop strategy 'verify-retry:k=0' has k=0; give a whole number from 1 to 10"),
        ("verify-retry:k=11", "loop strategy 'verify-retry:k=11' has k=11"),
        ("verify-retry:k=two", "loop strategy 'verify-retry:k=two' has k=two"),
        ("verify-retry:k=²", "loop strategy 'verify-retry:k=²' has k=²"),
        ("verify-retry:feedback=name", "loop strategy 'verify-retry:feedback=name' has feedback=name; did you mean"),
        ("verify-retry:n=3", "loop strategy 'verify-retry:n=3' has 'n=3'; verify-retry takes k=…, feedback=…"),
        ("verify-retry:k=1,k=2", "loop strategy 'verify-retry:k=1,k=2' has 'k=2'"),
        ("self-review:feedback=raw", "loop strategy 'self-review:feedback=raw' has 'feedback=raw'; self-review takes"),
        ("single-shot:k=1", "loop strategy 'single-shot:k=1' has 'k=1'; single-shot takes nothing"),
    ],
)
def test_a_strategy_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_loop(text)
    assert str(caught.value).startswith(message)


async def test_verify_retry_stops_when_the_bar_is_reached() -> None:
    user = LoopStrategy("verify-retry", 3, "none").user()
    assert user is not None
    first, second, third = await rounds(user, [MISSED, PASSED])
    assert first == "Do it."
    assert second is not None
    assert second.endswith("The task:\n\nDo it.")
    assert third is None


async def test_verify_retry_stops_after_k_retries() -> None:
    user = LoopStrategy("verify-retry", 2, "none").user(threshold=0.5)
    assert user is not None
    said = await rounds(user, [MISSED] * 3)
    assert [text is not None for text in said] == [True, True, True, False]


async def test_verify_retry_takes_the_threshold_of_the_rollout() -> None:
    user = LoopStrategy("verify-retry", 2, "none").user(threshold=0.5)
    assert user is not None
    assert await user.run(1, "Do it.", RoundResult(0, rewards={"reward": 0.5})) is None


async def test_self_review_tells_nothing_of_the_verifier() -> None:
    user = LoopStrategy("self-review", 2).user()
    assert user is not None
    told = RoundResult(0, rewards={"reward": 1.0}, verifier_output="SECRET", checks=Checks(failed=("SECRET",)))
    said = await rounds(user, [told] * 3)
    assert [text is not None for text in said] == [True, True, True, False]
    assert "SECRET" not in "".join(filter(None, said))
    assert said[1] == said[2]


CHECKS = Checks(passed=("a", "b"), failed=("test_x.py::test_sum[3-answer=42]", "adds 1 and 2 to 3", "t::plain"))
OUTPUT = """
tests/test_x.py::test_sum[1-answer=42] FAILED [ 50%]
tests/test_x.py::test_fine PASSED
E   assert 41 == 42
FAILED tests/test_x.py::test_sum[1-answer=42] - assert 41 == 42
ERROR tests/test_x.py::test_setup - boom 42
============ 1 failed, 1 passed, 1 error in 0.1s ============
"""


@pytest.mark.parametrize(
    ("level", "result", "text"),
    [
        ("none", RoundResult(0, checks=CHECKS, verifier_output=OUTPUT), ""),
        ("counts", RoundResult(0, checks=CHECKS), "2 of 5 tests pass."),
        ("counts", RoundResult(0, verifier_output=OUTPUT), "1 of 3 tests pass."),
        ("counts", RoundResult(0, verifier_output="no numbers"), ""),
        ("counts", RoundResult(0), ""),
        ("names", RoundResult(0, checks=CHECKS), "2 of 5 tests pass. These fail:\n- test_x.py::test_sum\n- t::plain"),
        (
            "names",
            RoundResult(0, verifier_output=OUTPUT),
            "1 of 3 tests pass. These fail:\n- tests/test_x.py::test_sum\n- tests/test_x.py::test_setup",
        ),
        ("raw", RoundResult(0, verifier_output="x\n"), "The output of the tests ends with:\n\nx"),
        ("raw", RoundResult(0, verifier_error="timed out"), "The output of the tests ends with:\n\ntimed out"),
    ],
)
def test_feedback_tells_what_its_level_allows(level: Feedback, result: RoundResult, text: str) -> None:
    assert feedback_text(result, level) == text


@pytest.mark.parametrize("level", ["none", "counts", "names"])
@pytest.mark.parametrize("result", [RoundResult(0, checks=CHECKS), RoundResult(0, verifier_output=OUTPUT)])
def test_expected_values_do_not_leak(level: Feedback, result: RoundResult) -> None:
    assert "42" not in feedback_text(result, level)
    assert "adds" not in feedback_text(result, level)


@pytest.mark.parametrize("level", ["none", "counts", "names", "raw"])
def test_feedback_is_bounded_and_keeps_the_end_of_the_output(level: Feedback) -> None:
    names = tuple(f"test_{n}" for n in range(5000))
    long = RoundResult(0, checks=Checks(failed=names), verifier_output="x" * 10_000 + "THE END")
    text = feedback_text(long, level)
    assert len(text) <= MAX_FEEDBACK_CHARS
    assert level != "raw" or text.endswith("THE END")


def test_each_failing_test_is_named_once() -> None:
    assert failing_names(RoundResult(0, checks=Checks(failed=("t[1]", "t[2]", "t - why")))) == ["t"]


@pytest.mark.parametrize(
    ("results", "failed", "reason", "first", "tokens"),
    [
        ([MISSED, PASSED], False, "passed_bar", 1, 30),
        ([MISSED, MISSED, MISSED], False, "max_iterations", None, None),
        ([MISSED], False, "strategy_stop", None, None),
        ([MISSED], True, "error", None, None),
        ([], True, "error", None, None),
    ],
)
def test_the_report_of_a_loop_says_why_it_ended(
    results: list[RoundResult], failed: bool, reason: str, first: int | None, tokens: int | None
) -> None:
    strategy = LoopStrategy("verify-retry", 2, "names")
    report = loop_report(strategy, results, failed=failed, tokens=[10, 20, 30][: len(results)])
    assert report["stop_reason"] == reason
    assert report["first_pass_iteration"] == first
    assert report["tokens_to_pass"] == tokens
    assert report["iterations_run"] == len(results)
    assert report["reward_trajectory"] == [result.reward for result in results]
