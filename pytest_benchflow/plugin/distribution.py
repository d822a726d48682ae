"""Rollouts on xdist: how many each worker is given, and how workers are stopped; where pytest was started.

Workers that have several rollouts in flight (`-n 4 --bf-concurrency 16`) are given a few more than that, so that none
of them sits on work that another could do; `plugin/worker_queue.py` is their side of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

STOP = "bf_stop"
"""What workers are told when nothing is to go on: an order that xdist itself does not know and passes by."""
_POLL_SEC = 0.05
_LAST_SEC = 0.3


def window_scheduler(
    config: pytest.Config, log: Any, width: int, in_start_order: Callable[[Sequence[str]], list[int]]
) -> object | None:
    """Return a scheduler that keeps `width` items and one more at each worker; None if this xdist has no such thing.

    Where workers run one item after another, in the order that pytest collected, xdist's own way is as good.
    """
    try:
        from xdist.scheduler import LoadScheduling  # type: ignore[import-untyped]
    except ImportError:
        return None

    class WindowScheduling(LoadScheduling):  # type: ignore[misc]
        """Gives every worker what fits into its engine and the next one, and more whenever one is done."""

        collection: list[str] | None
        is_plain = False

        def schedule(self) -> None:
            """Begin, or give a worker that came later its share."""
            if self.collection is None:
                if not self._check_nodes_have_same_collection():
                    return
                collection: list[str] = next(iter(self.node2collection.values()))
                order = in_start_order(collection)
                self.is_plain = width == 1 and order == [*range(len(collection))]
                if self.is_plain:
                    super().schedule()
                    return
                self.collection = collection
                self.pending[:] = order
                for _ in range(width + 1):  # in turns, so that few items go to all workers
                    for node in self.nodes:
                        self._send_tests(node, 1)
            for node in self.nodes:
                self.check_schedule(node)

        def check_schedule(self, node: Any, duration: float = 0) -> None:
            """Fill up what a worker has; end it when there is nothing left to give."""
            if self.is_plain:
                super().check_schedule(node, duration)
                return
            if node.shutting_down:
                return
            self._send_tests(node, width + 1 - len(self.node2pending[node]))
            if not self.pending:
                node.shutdown()

    return WindowScheduling(config, log)


def outlive(node: Any) -> None:
    """Let orders to a worker that has just died go nowhere: xdist is told of its death next, and gives its items away.

    Without that the first order it does not take ends the whole run.
    """
    send = getattr(node, "sendcommand", None)
    if send is None:
        return

    def sendcommand(name: str, **words: object) -> None:
        with contextlib.suppress(OSError):
            send(name, **words)

    node.sendcommand = sendcommand


def stop_workers(dsession: Any) -> list[Any]:
    """Tell all workers to cancel what they run; return them."""
    nodes = [*getattr(dsession, "_active_nodes", ())]
    for node in nodes:
        with contextlib.suppress(Exception):  # it is gone already
            node.sendcommand(STOP)
    return nodes


def wait_for_workers(nodes: Sequence[Any], deadline: float) -> None:
    """Wait until workers have ended, at most to a moment; what they say of it comes through xdist's own threads."""
    while time.monotonic() < deadline and not all(getattr(node, "_down", True) for node in nodes):
        time.sleep(_POLL_SEC)


def end_workers_by(dsession: Any, deadline: float) -> None:
    """Have xdist kill the processes of workers soon after a moment; it would wait ten seconds for them."""
    manager = getattr(dsession, "nodemanager", None)
    if manager is not None:
        manager.EXIT_TIMEOUT = max(_LAST_SEC, deadline - time.monotonic())
