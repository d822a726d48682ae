"""Many rollouts in one process: an event loop in a thread, a cap on what is in flight, results as futures.

The engine knows nothing of pytest or of rollouts: it runs coroutines behind a cap, in the order given, except that one
whose preparation is not done, or that has no permission yet, lets others pass.
"""

from __future__ import annotations

import asyncio
import os
import threading
from bisect import insort
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")
Factory = Callable[[], Coroutine[object, object, T]]
Permit = Callable[[], Callable[[], None] | None]
"""Asks whether a coroutine may start; returns what is called at its end, or None if it has to wait."""
_CLOSE_GRACE_SEC = 20.0
#: Other processes tell nobody when they give a permission back, and time passes silently too.
_ASK_AGAIN_SEC = 0.25


@dataclass(eq=False, slots=True)
class _Queued:
    """A coroutine that waits."""

    factory: Factory[Any]
    future: Future[Any]
    prepare: Factory[object] | None
    permit: Permit | None
    number: int = 0
    preparing: asyncio.Task[None] | None = field(default=None)


class Engine:
    """Run submitted coroutines on a loop of its own; every public method may be called from any thread."""

    def __init__(self, width: int, *, preparations: int | None = None) -> None:
        """Run `width` coroutines at once, and beside them as many preparations, by default one for each core."""
        self.width = max(1, width)
        self.n_held_up = 0
        """How many in the queue others have passed because they were not ready to start."""
        self._preparations = preparations or max(2, len(os.sched_getaffinity(0)))
        self._queue: set[_Queued] = set()
        self._ready: list[_Queued] = []
        """Those of the queue that nothing keeps from starting but permits, in the order they came in."""
        self._numbers = count()
        self._unprepared: deque[_Queued] = deque()
        self._n_preparing = 0
        self._ask_again: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._at_close: list[Callable[[], Awaitable[None]]] = []
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self._is_cancelled = False
        self._called: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="benchflow-engine", daemon=True)
        self._thread.start()

    def submit(
        self, factory: Factory[T], *, prepare: Factory[object] | None = None, permit: Permit | None = None
    ) -> Future[T]:
        """Queue a coroutine; it starts when a place is free. Cancelling the future takes it out or stops it.

        What `prepare` awaits runs ahead of the free places, and its failure is no matter: the coroutine meets it again.
        """
        future: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._enqueue, _Queued(factory, future, prepare, permit))
        return future

    def call(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine at once, outside the cap, and wait for its result."""
        future = asyncio.run_coroutine_threadsafe(self._cancellable(coroutine), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _cancellable(self, coroutine: Coroutine[object, object, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._called.add(task)
        try:
            return await coroutine
        finally:
            self._called.discard(task)

    def start(self, coroutine: Coroutine[object, object, T]) -> Future[T]:
        """Run a coroutine at once, outside the cap, and return its future."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def at_close(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Await `callback()` on the loop when the engine closes, after the last rollout has ended."""
        self._at_close.append(callback)

    def cancel(self) -> None:
        """Cancel what runs and what is queued, and start nothing more; `close` waits for what cleans up."""
        with suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._cancel_all)

    def close(self, *, within_sec: float | None = None) -> None:
        """Cancel what runs, let it clean up within a bound, and end the thread; idempotent.

        Who interrupts it, or has little time, waits no longer: what has not ended by then ends with the process.
        """
        if self._closing:
            return
        self._closing = True
        stopped = asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop)
        try:
            stopped.result(timeout=_CLOSE_GRACE_SEC * 2 if within_sec is None else within_sec)
        except TimeoutError:
            if within_sec is None:
                self._end_thread()
                raise
            self._loop.call_soon_threadsafe(self._loop.stop)
            return
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise
        except BaseException:
            self._end_thread()
            raise
        self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_CLOSE_GRACE_SEC)

    def _cancel_all(self) -> None:
        self._is_cancelled = True
        for queued in self._leave_queue():
            if queued.preparing is not None:
                queued.preparing.cancel()
            queued.future.cancel()
        for task in (*self._running, *self._called):
            task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            if not asyncio.all_tasks(self._loop):
                # Closed below a task that has not ended in time, a generator raises an error of its own there.
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _enqueue(self, queued: _Queued) -> None:
        if self._closing or self._is_cancelled:
            queued.future.cancel()
            return
        queued.number = next(self._numbers)
        self._queue.add(queued)
        if queued.prepare is None:
            self._ready.append(queued)
        else:
            self._unprepared.append(queued)
        self._fill()

    def _leave_queue(self) -> set[_Queued]:
        queue, self._queue, self._ready = self._queue, set(), []
        self._unprepared.clear()
        return queue

    def _fill(self) -> None:
        """Start what may start, in order, and prepare what comes next; with no free place this costs nothing."""
        if self._closing:
            return
        place = 0
        while place < len(self._ready) and len(self._running) < self.width:
            queued = self._ready[place]
            if queued.future.cancelled() or self._start(queued):
                del self._ready[place]
                self._queue.remove(queued)
            else:
                place += 1
        self.n_held_up = len(self._queue) if len(self._running) < self.width else 0
        self._prepare_next()
        if self.n_held_up and self._ready and self._ask_again is None:
            self._ask_again = self._loop.call_later(_ASK_AGAIN_SEC, self._fill_again)

    def _fill_again(self) -> None:
        self._ask_again = None
        self._fill()

    def _start(self, queued: _Queued) -> bool:
        """Start a coroutine, unless it is not permitted."""
        release = queued.permit() if queued.permit is not None else None
        if queued.permit is not None and release is None:
            return False
        task = self._loop.create_task(self._serve(queued.factory, queued.future))
        self._running.add(task)
        if release is not None:
            task.add_done_callback(lambda _: release())
        task.add_done_callback(self._finished)
        queued.future.add_done_callback(partial(self._stop_if_cancelled, task))
        return True

    def _prepare_next(self) -> None:
        while self._unprepared and self._n_preparing < self._preparations:
            queued = self._unprepared.popleft()
            if queued.future.cancelled():
                self._queue.remove(queued)
                continue
            assert queued.prepare is not None
            self._n_preparing += 1
            queued.preparing = self._loop.create_task(_quietly(queued.prepare))
            queued.preparing.add_done_callback(partial(self._prepared, queued))

    def _prepared(self, queued: _Queued, task: asyncio.Task[None]) -> None:
        self._n_preparing -= 1
        if queued in self._queue:
            insort(self._ready, queued, key=attrgetter("number"))
        self._fill()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._fill()

    async def _serve(self, factory: Factory[T], future: Future[T]) -> None:
        try:
            result = await factory()
        except BaseException as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(result)

    def _stop_if_cancelled(self, task: asyncio.Task[None], future: Future[Any]) -> None:
        if future.cancelled() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(task.cancel)

    async def _shut_down(self) -> None:
        queue = self._leave_queue()
        preparing = {each.preparing for each in queue if each.preparing is not None}
        for queued in queue:
            queued.future.cancel()
        ending = preparing | self._running
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_GRACE_SEC)
        async with AsyncExitStack() as stack:  # one that fails does not keep the others from running
            for callback in self._at_close:
                stack.push_async_callback(_bounded, callback)


async def _quietly(prepare: Factory[object]) -> None:
    with suppress(Exception):
        await prepare()


async def _bounded(callback: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(_CLOSE_GRACE_SEC):
        await callback()
