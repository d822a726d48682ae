"""What the verifier does when things around it go wrong; what it does when they go right, whole runs show."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_sandbox import Answer, FakeSandbox, failed, ok

from pytest_benchflow.core.errors import BenchflowError, SandboxError, VerifierError
from pytest_benchflow.tasks import load_task
from pytest_benchflow.verify import EnvironmentSpoiled, Verifier


@dataclass
class Closed(FakeSandbox):
    """A sandbox out of which nothing can be copied."""

    why: BaseException = field(default_factory=FileNotFoundError)

    async def download_dir(self, source: str, target: Path) -> None:
        """Refuse."""
        raise self.why


def hanging(cmd: str) -> Answer:
    return TimeoutError() if "/tests/test.sh" in cmd else ok()


def full(code: int) -> OSError:
    return OSError(code, os.strerror(code), "/somewhere/deep")


@pytest.mark.parametrize(
    ("sandbox", "message"),
    [
        (Closed(), "the verifier removed /logs/verifier"),
        (
            Closed(why=full(errno.ENAMETOOLONG)),
            "what the verifier left in /logs/verifier cannot be kept: File name too long",
        ),
        (
            Closed(why=full(errno.ENOSPC)),
            "what the verifier left in /logs/verifier cannot be kept: No space left on device",
        ),
        (Closed(why=SandboxError("the sandbox sent more than 2048 MB")), "the sandbox sent more than 2048 MB"),
        (Closed(answer=hanging), "the verifier did not end within 5 s"),
        (Closed(answer=hanging, why=SandboxError("gone")), "the verifier did not end within 5 s"),
    ],
)
async def test_what_goes_wrong_first_is_told(
    sandbox: FakeSandbox, message: str, make_task: Callable[..., Path], tmp_path: Path
) -> None:
    step = load_task(make_task()).steps[0]
    with pytest.raises(BenchflowError) as caught:
        await Verifier(sandbox, step, "/tests", {}, timeout_sec=5).run(tmp_path / "verifier")
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("reason", "is_agents"),
    [
        ("mkdir: command not found", True),
        ("chmod: changing permissions of '/logs/verifier': Operation not permitted", True),
        ("mkdir: cannot create directory '/logs/verifier': No space left on device", False),
        ("rm: cannot remove '/tests': Input/output error", False),
        ("bash: fork: Resource temporarily unavailable", False),
    ],
)
async def test_the_agent_is_blamed_for_what_worked_before_it_and_not_for_the_machine(
    reason: str, is_agents: bool, make_task: Callable[..., Path], tmp_path: Path
) -> None:
    step = load_task(make_task()).steps[0]
    sandbox = FakeSandbox(lambda cmd: failed(1, reason))
    with pytest.raises(VerifierError) as caught:
        await Verifier(sandbox, step, "/tests", {}, timeout_sec=5).run(tmp_path / "verifier")
    assert isinstance(caught.value, EnvironmentSpoiled) is is_agents
