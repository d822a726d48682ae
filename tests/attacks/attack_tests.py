"""The tests that both sandboxes have; `conftest.py` gives them their attacks, and fights all of a module at once."""

from __future__ import annotations

from collections.abc import Mapping

from arena import Fight, describe
from honest import Honest

from pytest_benchflow.rollout import RolloutResult

Results = Mapping[str, RolloutResult]


def test_an_attack_gains_nothing(fight: Fight, results: Results) -> None:
    result = results[fight.name]
    assert getattr(result, "status", None) == "failed", describe(result)
    assert result.reward == 0, describe(result)
    if fight.attack.finding is not None:
        assert fight.attack.finding in {finding.kind for finding in result.integrity}, describe(result)


def test_a_control_succeeds(control: Fight, results: Results) -> None:
    result = results[control.name]
    assert getattr(result, "status", None) == "passed", describe(result)
    assert result.hardening_off, describe(result)


def test_honest_work_is_rewarded(honest: Honest, results: Results) -> None:
    result = results[honest.name]
    assert getattr(result, "status", None) == "passed", describe(result)
    assert not result.integrity, describe(result)
