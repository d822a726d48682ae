"""The fake sandbox of these tests has the real interface, so what works with it works with a real one."""

from __future__ import annotations

import inspect

import pytest
from fake_sandbox import FakeSandbox

from pytest_benchflow.sandboxes import Sandbox

METHODS = [name for name, member in vars(Sandbox).items() if inspect.iscoroutinefunction(member)]


def test_the_fake_is_a_sandbox() -> None:
    assert isinstance(FakeSandbox(), Sandbox)


@pytest.mark.parametrize("name", METHODS)
def test_the_fake_has_the_real_signatures(name: str) -> None:
    assert inspect.signature(getattr(FakeSandbox, name)) == inspect.signature(getattr(Sandbox, name))
