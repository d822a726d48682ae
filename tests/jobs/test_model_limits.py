"""Limits per model: what is allowed at once, and how a provider's objections change it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from pytest_benchflow.jobs import JobEvent, ModelLimits


@dataclass
class Ledger:
    """Events for limits to learn from, at times that a test sets."""

    now: float = 1000.0
    n_started: int = 0
    limits: ModelLimits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = ModelLimits(None, clock=lambda: self.now)

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            self.n_started += 1
            self.limits.learn(JobEvent(kind="start", ts=self.now, key=str(self.n_started), model="m"))

    def end(self, number: int, *, message: str | None = None, reward: float | None = None) -> None:
        kind = "end" if reward is not None else "retry"
        self.limits.learn(JobEvent(kind=kind, ts=self.now, key=str(number), message=message, reward=reward))

    def allows(self) -> bool:
        return self.limits.permit("m") is not None


REFUSED = "the model never answered: HTTP 429 Too Many Requests"


def test_without_a_limit_everything_may_start() -> None:
    limits = ModelLimits(None)
    assert all(limits.permit("m") for _ in range(100))


def test_a_limit_holds_for_each_model_by_itself() -> None:
    limits = ModelLimits(2)
    releases = [limits.permit("m"), limits.permit("m"), limits.permit("other")]
    assert all(releases)
    assert limits.permit("m") is None
    assert releases[0] is not None
    releases[0]()
    assert limits.permit("m") is not None


def test_after_an_objection_half_as_many_may_run_and_none_starts_for_a_while() -> None:
    ledger = Ledger()
    ledger.start(8)
    ledger.end(1, message=REFUSED)
    ledger.end(2, message=REFUSED)  # of the same burst
    for number in (3, 4, 5, 6):
        ledger.end(number)
    assert not ledger.allows()
    ledger.now += 16
    assert ledger.allows()
    ledger.start(2)
    assert not ledger.allows()


def test_another_attempt_waits_for_the_end_of_the_pause_and_for_its_turn() -> None:
    ledger = Ledger()
    ledger.start(2)
    holds = [ledger.limits.permit("m"), ledger.limits.permit("m")]
    assert all(holds)
    ledger.end(1, message=REFUSED)
    assert not ledger.limits.may_try_again("m")
    ledger.now += 16
    assert not ledger.limits.may_try_again("m")  # the other one still runs, and one at a time may
    ledger.end(2)
    assert ledger.limits.may_try_again("m")
    ledger.start()
    assert not ledger.limits.may_try_again("m")


def test_each_score_allows_one_more_until_the_limit_is_gone() -> None:
    ledger = Ledger()
    ledger.start(4)
    ledger.end(1, message=REFUSED)
    ledger.now += 16
    for number in (2, 3, 4):
        ledger.end(number, reward=1.0)
    ledger.start(20)
    assert ledger.allows()


def test_a_second_objection_makes_the_pause_longer() -> None:
    ledger = Ledger()
    ledger.start(4)
    ledger.end(1, message=REFUSED)
    ledger.now += 16
    ledger.end(2, message=REFUSED)
    for number in (3, 4):
        ledger.end(number)
    ledger.now += 16
    assert not ledger.allows()
    ledger.now += 16
    assert ledger.allows()


def test_other_failures_change_nothing() -> None:
    ledger = Ledger()
    ledger.start(2)
    ledger.end(1, message="the sandbox died")
    assert ledger.allows()


HOLD = """
import sys
from pathlib import Path
from pytest_benchflow.jobs import ModelLimits
limits = ModelLimits(1, shared=Path(sys.argv[1]))
release = limits.permit("m")
print(release is not None, flush=True)
sys.stdin.read()
"""


def test_processes_share_a_limit_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "slots")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    limits = ModelLimits(1, shared=tmp_path / "slots")
    assert limits.permit("m") is None
    assert limits.permit("other") is not None
    holder.kill()
    holder.communicate()
    assert limits.permit("m") is not None
