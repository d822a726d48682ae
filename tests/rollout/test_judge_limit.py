"""Questions to judges take turns, over all processes that share a directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pytest_benchflow.rollout.judge_limit import JudgeLimit


async def most_at_once(limits: list[JudgeLimit], n: int) -> int:
    """Enter limits in turns, n times in all, and return how many were inside at the same time."""
    inside = peak = 0

    async def ask(limit: JudgeLimit) -> None:
        nonlocal inside, peak
        async with limit:
            inside += 1
            peak = max(peak, inside)
            await asyncio.sleep(0.02)
            inside -= 1

    await asyncio.gather(*(ask(limits[number % len(limits)]) for number in range(n)))
    return peak


@pytest.mark.parametrize("shared", [False, True])
async def test_so_many_are_let_in(tmp_path: Path, shared: bool) -> None:
    limits = [JudgeLimit(3), JudgeLimit(3)]
    for limit in limits if shared else ():
        limit.share(tmp_path / "slots")
    assert await most_at_once(limits, 20) == (3 if shared else 6)
    assert await most_at_once(limits, 20) == (3 if shared else 6)


async def test_who_stops_waiting_keeps_no_place(tmp_path: Path) -> None:
    first, second = JudgeLimit(1), JudgeLimit(1)
    for limit in (first, second):
        limit.share(tmp_path)
    async with first:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), second:
                pytest.fail("entered")
    async with asyncio.timeout(5), second:
        pass


async def test_where_files_cannot_be_locked_each_process_counts_alone(tmp_path: Path) -> None:
    limit = JudgeLimit(2)
    (tmp_path / "file").write_text("")
    limit.share(tmp_path / "file")
    assert await most_at_once([limit], 6) == 2
