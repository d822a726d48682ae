"""Many rollouts in one process: an event loop in a thread, a cap on what is in flight, results as futures.

The engine knows nothing of pytest or of rollouts: it runs coroutines, in the order given, behind a cap.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Factory = Callable[[], Coroutine[object, object, T]]
_CLOSE_GRACE_SEC = 20.0


class Engine:
    """Run submitted coroutines on a loop of its own; every public method may be called from any thread."""

    def __init__(self, width: int) -> None:
        self.width = max(1, width)
        self._queue: deque[tuple[Factory[Any], Future[Any]]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._at_close: list[Callable[[], Awaitable[None]]] = []
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="benchflow-engine", daemon=True)
        self._thread.start()

    def submit(self, factory: Factory[T]) -> Future[T]:
        """Queue a coroutine; it starts when a place is free. Cancelling the future takes it out or stops it."""
        future: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._enqueue, factory, future)
        return future

    def call(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run a coroutine at once, outside the cap, and wait for its result."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[object, object, T]) -> Future[T]:
        """Run a coroutine at once, outside the cap, and return its future."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def at_close(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Await `callback()` on the loop when the engine closes, after the last rollout has ended."""
        self._at_close.append(callback)

    def close(self) -> None:
        """Cancel what runs, let it clean up within a bound, and end the thread; idempotent."""
        if self._closing:
            return
        self._closing = True
        stopped = asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop)
        try:
            stopped.result(timeout=_CLOSE_GRACE_SEC * 2)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=_CLOSE_GRACE_SEC)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _enqueue(self, factory: Factory[T], future: Future[T]) -> None:
        self._queue.append((factory, future))
        self._fill()

    def _fill(self) -> None:
        while self._queue and len(self._running) < self.width and not self._closing:
            factory, future = self._queue.popleft()
            if future.cancelled():
                continue
            task = self._loop.create_task(self._serve(factory, future))
            self._running.add(task)
            task.add_done_callback(self._finished)
            future.add_done_callback(partial(self._stop_if_cancelled, task))

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
        while self._queue:
            self._queue.popleft()[1].cancel()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSE_GRACE_SEC)
        async with AsyncExitStack() as stack:  # one that fails does not keep the others from running
            for callback in self._at_close:
                stack.push_async_callback(_bounded, callback)


async def _bounded(callback: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(_CLOSE_GRACE_SEC):
        await callback()
