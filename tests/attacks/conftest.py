"""Give the tests of attacks what they fight, and fight it: all that was chosen of a module at once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from arena import Arena, Fight
from fights import controls, fights, honest
from honest import Honest
from known import KNOWN

from pytest_benchflow.rollout import RolloutResult


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test all that its sandbox has for it."""
    for name, of in {"fight": fights, "control": controls, "honest": honest}.items():
        if name in metafunc.fixturenames:
            sandbox = metafunc.module.SANDBOX
            metafunc.parametrize(name, [_param(each, sandbox) for each in of(sandbox)])


def _param(each: Fight | Honest, sandbox: str) -> object:
    succeeds = each.name in KNOWN[sandbox]
    return pytest.param(each, id=each.name, marks=[pytest.mark.xfail(strict=True)] if succeeds else [])


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, RolloutResult | BaseException]:
    """Fight what was chosen of this module, many at a time."""
    params = [
        value
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
        for value in item.callspec.params.values()
    ]
    arena = Arena(tmp_path_factory.mktemp("arena"), request.module.SANDBOX)
    return arena.fight_all(
        [each for each in params if isinstance(each, Fight)], [each for each in params if isinstance(each, Honest)]
    )
