"""Errors of a verification that an agent has made impossible."""

from __future__ import annotations

import re

from pytest_benchflow.core.errors import VerifierError

_MACHINE_FAULT = re.compile(
    r"No space left|quota exceeded|Input/output error|Cannot allocate|temporarily unavailable|Too many open files",
    re.IGNORECASE,
)


class EnvironmentSpoiled(VerifierError):
    """The agent left an environment in which nothing can be verified: its own failure, not the harness's."""


def spoiled_error(message: str) -> VerifierError:
    """Blame the agent for what worked before it came, unless the message speaks of the machine."""
    return VerifierError(message) if _MACHINE_FAULT.search(message) else EnvironmentSpoiled(message)
