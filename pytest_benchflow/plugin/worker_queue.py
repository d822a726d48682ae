"""The queue of an xdist worker that has several rollouts in flight: they start when given, the finished come first.

Runs in workers only. xdist's own queue is replaced where it is as this release knows it; where it is not, items run one
after another as they come.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import takewhile
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_benchflow.plugin.distribution import STOP

if TYPE_CHECKING:
    from pytest_benchflow.plugin.session import BenchSession


class Starter(Protocol):
    """Starts the rollouts of items ahead of pytest."""

    def start(self, item: pytest.Item) -> Future[Any] | None:
        """Start the rollout of an item; None if it is to start when pytest reaches it."""


@dataclass(frozen=True)
class _Ended:
    """A rollout has ended."""

    index: int


class _Stopped:
    """The run is to stop."""


class ReadyFirstQueue:
    """Takes the numbers of items and xdist's own mark of the end, and gives out the next item that is ready."""

    def __init__(self, items: Sequence[pytest.Item], starter: Starter) -> None:
        self._items = items
        self._starter = starter
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._running: set[int] = set()
        self._ready: deque[int] = deque()
        self._mark: object = None
        self._is_stopped = False

    def put(self, item: object) -> None:
        """Take a number, or the mark of the end, from any thread."""
        self._events.put(item)

    def stop(self) -> None:
        """Give out nothing more but the mark."""
        self._events.put(_Stopped())

    def get(self) -> object:
        """Return the next item that is ready, on pytest's own thread, where rollouts are resolved."""
        while not self._events.empty():
            self._take(self._events.get())
        while not (self._ready or (self._mark is not None and not self._running)):
            self._take(self._events.get())
        return self._ready.popleft() if self._ready else self._mark

    @property
    def is_at_end(self) -> bool:
        """Whether nothing can come but the mark."""
        return self._mark is not None and not self._ready and not self._running and self._events.empty()

    def _take(self, event: object) -> None:
        if isinstance(event, _Stopped):
            self._is_stopped = True
        elif isinstance(event, _Ended):
            self._running.discard(event.index)
            if not self._is_stopped:
                self._ready.append(event.index)
        elif isinstance(event, int):
            self._start(event)
        else:
            self._mark = event
        if self._is_stopped:
            self._ready.clear()
            self._running.clear()

    def _start(self, index: int) -> None:
        future = None if self._is_stopped else self._starter.start(self._items[index])
        if future is None or future.done():
            self._ready.append(index)
        else:
            self._running.add(index)
            future.add_done_callback(lambda _: self._events.put(_Ended(index)))


def take_over(session: pytest.Session, run: BenchSession, starter: Starter) -> None:
    """Put our queue in the place of xdist's, and listen for the order to stop."""
    interactor: Any = next((each for each in session.config.pluginmanager.get_plugins() if _is_interactor(each)), None)
    if interactor is None:
        return
    queue = ReadyFirstQueue(session.items, starter) if run.width.number > 1 else None
    if queue is not None:
        interactor.torun = queue
        interactor.run_one_test = _OneByOne(session, interactor, queue)
    handle = interactor.handle_command

    def handle_command(command: Any) -> None:
        if isinstance(command, tuple) and command[0] == STOP:
            session.shouldstop = "stopped by the controller"
            if queue is not None:
                queue.stop()
            run.cancel()
        else:
            handle(command)

    interactor.handle_command = handle_command


class _OneByOne:
    """Runs the items that a queue gives out, without waiting for the next before it runs one, as xdist does."""

    def __init__(self, session: pytest.Session, interactor: Any, queue: ReadyFirstQueue) -> None:
        self._session = session
        self._interactor = interactor
        self._queue = queue
        self._strangers = _two_strangers(session.items)

    def __call__(self) -> None:
        """Run the item whose turn it is, and wait for the next."""
        interactor, index = self._interactor, self._interactor.nextitem_index
        interactor.item_index = index
        began = time.perf_counter()
        item = self._session.items[index]
        self._session.config.hook.pytest_runtest_protocol(item=item, nextitem=self._next(item))
        seconds = time.perf_counter() - began
        interactor.sendevent("runtest_protocol_complete", item_index=index, duration=seconds)
        interactor.nextitem_index = self._queue.get()

    def _next(self, item: pytest.Item) -> pytest.Item | None:
        """Return an item that has as little in common with this one as the next may have.

        pytest keeps those fixtures that the next item uses too, and nobody knows yet which one that will be.
        """
        if self._queue.is_at_end:
            return None
        depth, *strangers = self._strangers
        chain = item.listchain()
        return next((each for each in strangers if each.listchain()[: depth + 1] != chain[: depth + 1]), None)


def _two_strangers(items: Sequence[pytest.Item]) -> tuple[int, pytest.Item, pytest.Item]:
    """Return how many collectors all items have in common, and two items that have no more than these."""
    first, depth, other = items[0], len(items[0].listchain()), items[0]
    chain = first.listchain()
    for item in items[1:]:
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(chain, item.listchain(), strict=False)))
        if shared < depth:
            depth, other = shared, item
    return depth, first, other


def _is_interactor(plugin: object) -> bool:
    names = ("torun", "handle_command", "run_one_test", "nextitem_index", "sendevent")
    return all(hasattr(plugin, name) for name in names)
