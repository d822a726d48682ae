"""The engine: coroutines in order behind a cap, and an end that leaves nothing running."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError, Future

import pytest

from pytest_benchflow.jobs import Engine

SOON = 10


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine(2)
    yield made
    made.close()


class Gate:
    """Coroutines that report when they start and end when they are told to."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.ended: list[int] = []
        self.running = 0
        self.peak = 0
        self.changed = threading.Condition()
        self.opened = asyncio.Event()

    async def enter(self, number: int) -> int:
        with self.changed:
            self.started.append(number)
            self.running += 1
            self.peak = max(self.peak, self.running)
            self.changed.notify_all()
        try:
            await self.opened.wait()
            return number
        finally:
            with self.changed:
                self.running -= 1
                self.ended.append(number)
                self.changed.notify_all()

    async def open(self) -> None:
        self.opened.set()

    def wait_for(self, n_started: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.started) >= n_started, SOON)


def submit(engine: Engine, gate: Gate, count: int) -> list[Future[int]]:
    return [engine.submit(lambda number=number: gate.enter(number)) for number in range(count)]


def test_results_come_back_in_their_futures(engine: Engine) -> None:
    async def double(number: int) -> int:
        return number * 2

    futures = [engine.submit(lambda n=n: double(n)) for n in range(20)]
    assert [future.result(SOON) for future in futures] == [n * 2 for n in range(20)]


def test_coroutines_start_in_the_order_given_and_never_more_than_the_cap(engine: Engine) -> None:
    gate = Gate()
    futures = submit(engine, gate, 6)
    gate.wait_for(2)
    assert gate.started == [0, 1]
    engine.call(gate.open())
    assert [future.result(SOON) for future in futures] == list(range(6))
    assert gate.started == list(range(6))
    assert gate.peak == 2


def test_a_width_below_one_still_runs() -> None:
    engine = Engine(0)
    try:
        assert engine.submit(lambda: asyncio.sleep(0, "ran")).result(SOON) == "ran"
    finally:
        engine.close()


def test_an_exception_goes_to_its_own_future_only(engine: Engine) -> None:
    async def fail() -> None:
        raise ValueError("mine")

    broken = engine.submit(fail)
    whole = engine.submit(lambda: asyncio.sleep(0, "whole"))
    with pytest.raises(ValueError, match="mine"):
        broken.result(SOON)
    assert whole.result(SOON) == "whole"


def test_a_cancelled_future_in_the_queue_never_starts(engine: Engine) -> None:
    gate = Gate()
    futures = submit(engine, gate, 4)
    gate.wait_for(2)
    assert futures[2].cancel()
    engine.call(gate.open())
    assert futures[3].result(SOON) == 3
    assert gate.started == [0, 1, 3]


def test_cancelling_a_future_stops_what_runs_for_it(engine: Engine) -> None:
    gate = Gate()
    running, _ = submit(engine, gate, 2)
    gate.wait_for(2)
    running.cancel()
    with gate.changed:
        assert gate.changed.wait_for(lambda: gate.ended == [0], SOON)


def test_a_call_does_not_wait_for_a_free_place(engine: Engine) -> None:
    gate = Gate()
    submit(engine, gate, 4)
    gate.wait_for(2)
    assert engine.call(asyncio.sleep(0, "at once")) == "at once"
    assert engine.start(asyncio.sleep(0, "too")).result(SOON) == "too"


def test_closing_cancels_what_runs_and_lets_it_clean_up() -> None:
    engine, gate = Engine(2), Gate()
    futures = submit(engine, gate, 4)
    gate.wait_for(2)
    engine.close()
    assert sorted(gate.ended) == [0, 1]
    assert gate.started == [0, 1]
    for future in futures:
        with pytest.raises((CancelledError, asyncio.CancelledError)):
            future.result(SOON)


def test_what_does_not_end_in_time_is_still_cancelled_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_benchflow.jobs.engine._CLOSE_GRACE_SEC", 0.1)
    engine, seen, started = Engine(1), [], threading.Event()

    @contextlib.asynccontextmanager
    async def held() -> AsyncIterator[None]:
        yield

    async def stubborn() -> None:
        try:
            async with held():
                # The loop goes on for as long as this thread does.
                busy = asyncio.ensure_future(asyncio.to_thread(time.sleep, 1.5))
                started.set()
                try:
                    await asyncio.sleep(SOON)
                finally:
                    await asyncio.wait([busy], timeout=0.6)
        except BaseException as error:
            seen.append(type(error))
            raise

    engine.submit(stubborn)
    assert started.wait(SOON)
    engine.close()
    engine._thread.join(SOON)
    assert seen == [asyncio.CancelledError]


def test_closing_ends_the_thread_and_can_be_repeated() -> None:
    engine = Engine(2)
    engine.submit(lambda: asyncio.sleep(0)).result(SOON)
    engine.close()
    engine.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "benchflow-engine"]


def test_callbacks_at_close_run_last_added_first_after_the_last_rollout() -> None:
    engine, gate = Engine(1), Gate()
    order: list[str] = []

    async def note(word: str) -> None:
        order.append(f"{word} with {gate.running} running")

    engine.at_close(lambda: note("first"))
    engine.at_close(lambda: note("second"))
    submit(engine, gate, 1)
    gate.wait_for(1)
    engine.close()
    assert order == ["second with 0 running", "first with 0 running"]


def test_a_callback_that_fails_does_not_keep_the_others_from_running() -> None:
    engine = Engine(1)
    ran: list[str] = []

    async def good() -> None:
        ran.append("good")

    async def bad() -> None:
        raise OSError("gone")

    engine.at_close(good)
    engine.at_close(bad)
    with pytest.raises(OSError, match="gone"):
        engine.close()
    assert ran == ["good"]


def test_a_coroutine_may_submit_another(engine: Engine) -> None:
    async def outer() -> str:
        return await asyncio.wrap_future(engine.submit(lambda: asyncio.sleep(0, "inner")))

    assert engine.submit(outer).result(SOON) == "inner"


def test_submitting_after_the_end_is_refused_instead_of_waiting_for_ever() -> None:
    engine = Engine(1)
    engine.close()
    coroutine = asyncio.sleep(0)
    try:
        with pytest.raises((RuntimeError, CancelledError)):
            engine.submit(lambda: coroutine).result(SOON)
    finally:
        coroutine.close()


def test_what_is_not_prepared_lets_others_pass() -> None:
    engine, gate, built = Engine(1), Gate(), Gate()
    try:
        slow = engine.submit(lambda: gate.enter(0), prepare=lambda: built.enter(0))
        built.wait_for(1)
        quick = engine.submit(lambda: gate.enter(1), prepare=lambda: asyncio.sleep(0))
        gate.wait_for(1)
        assert gate.started == [1]
        engine.call(built.open())
        engine.call(gate.open())
        assert (slow.result(SOON), quick.result(SOON)) == (0, 1)
    finally:
        engine.close()


def test_preparations_run_while_all_places_are_taken_but_not_too_many() -> None:
    engine, gate, built = Engine(1, preparations=2), Gate(), Gate()
    try:
        futures = [engine.submit(lambda: gate.enter(9))]
        futures += [engine.submit(lambda n=n: gate.enter(n), prepare=lambda n=n: built.enter(n)) for n in range(4)]
        built.wait_for(2)
        gate.wait_for(1)
        assert engine.call(asyncio.sleep(0, [*built.started])) == [0, 1]
        engine.call(built.open())
        built.wait_for(4)
        engine.call(gate.open())
        assert [future.result(SOON) for future in futures] == [9, 0, 1, 2, 3]
        assert (built.peak, gate.peak) == (2, 1)
    finally:
        engine.close()


def test_a_preparation_that_fails_is_left_to_its_coroutine(engine: Engine) -> None:
    async def fail() -> None:
        raise OSError("no space left")

    assert engine.submit(lambda: asyncio.sleep(0, "ran"), prepare=fail).result(SOON) == "ran"


def test_what_has_no_permission_waits_and_gives_it_back_at_its_end(engine: Engine) -> None:
    gate, free = Gate(), [True]

    def permit() -> Callable[[], None] | None:
        if not free:
            return None
        free.clear()
        return lambda: free.append(True)

    limited = [engine.submit(lambda n=n: gate.enter(n), permit=permit) for n in range(2)]
    other = engine.submit(lambda: gate.enter(9))
    gate.wait_for(2)
    assert gate.started == [0, 9]
    engine.call(gate.open())
    assert [future.result(SOON) for future in (*limited, other)] == [0, 1, 9]
