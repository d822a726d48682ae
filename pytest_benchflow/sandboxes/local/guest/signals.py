"""Handlers of SIGCHLD, set without the `signal` module: its enums are many objects to touch in every sandbox."""

from __future__ import annotations

from _signal import SIG_DFL, SIGCHLD, signal  # type: ignore[import-not-found]


def default() -> None:
    """Let children wait to be reaped."""
    signal(SIGCHLD, SIG_DFL)


def wake() -> None:
    """Interrupt waiting calls and write to the wakeup descriptor when a child ends."""
    signal(SIGCHLD, _nothing)


def _nothing(*_: object) -> None:
    pass
