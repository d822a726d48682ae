"""Decide when an agent has had its time."""

from __future__ import annotations

from pytest_benchflow.acp.outcome import TimedOut

#: A tool call that has not ended puts idleness off, but not for ever.
_PENDING_FACTOR = 3


def idle_at(traffic: float, last_sign: float | None, idle_sec: float | None) -> float | None:
    """Return when an agent counts as idle, None if never.

    `traffic` is when it last sent anything, `last_sign` when one of its pending tool calls last showed life.
    """
    if idle_sec is None:
        return None
    if last_sign is None:
        return traffic + idle_sec
    return max(traffic + idle_sec, last_sign + _PENDING_FACTOR * idle_sec)


def idled(now: float, traffic: float, idle_sec: float, pending: list[str]) -> TimedOut:
    """Return the end of an agent that shows no life."""
    waiting = f", tool calls pending: {', '.join(pending)}" if pending else ""
    return TimedOut("idle_timeout", idle_sec, f"idle for {now - traffic:.0f} s{waiting}")


def overran(limit_sec: float) -> TimedOut:
    """Return the end of an agent that used up its time."""
    return TimedOut("wall_clock_timeout", limit_sec, f"stopped after {limit_sec:g} s")
