"""Services that a task names are looked for once its sandbox is up, and before any agent costs anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sandbox import FakeComposed, FakeSandbox

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.rollout.setup import check_services
from pytest_benchflow.tasks import load_task


def test_a_service_that_only_compose_could_know_is_looked_for(make_task: Callable[..., Path]) -> None:
    toml = '[[verifier.collect]]\ncommand = "true"\nservice = "db"\n'
    task = load_task(make_task(toml=toml, files={"environment/docker-compose.yaml": "include: [more.yaml]\n"}))
    check_services(FakeComposed(services={"db": FakeSandbox()}), task)
    with pytest.raises(UsageError) as caught:
        check_services(FakeComposed(), task)
    assert str(caught.value) == f"{task.file}: verifier.collect.service is 'db': no service 'db'"
