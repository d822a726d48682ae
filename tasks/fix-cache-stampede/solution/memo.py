"""A cache for slow look-ups that many threads share."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any


class Memo:
    """Remember what `load(key)` returned.

    - `get(key)` returns the remembered value while it is younger than `ttl` seconds, else that of a new `load(key)`.
      Age counts from the moment at which `load` returned, by `clock`. Every value is remembered, None and False too.
    - At most one load of a key runs at a time: other threads that want the key wait for it and get the same result.
      Loads of different keys run side by side, and a load may itself call `get` for other keys.
    - If a load raises, its exception reaches every thread that waited for it. Nothing is remembered, and the next
      `get` loads again.
    - `invalidate(key)` forgets a value. A load of that key that is running then still serves the threads that
      already wait for it, but its result is not remembered, and a `get` that comes later does not wait for it.
    - At most `maxsize` values are remembered. Those that were not asked for the longest go first.
    """

    def __init__(
        self,
        load: Callable[[Hashable], Any],
        *,
        ttl: float,
        maxsize: int = 128,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._ttl = ttl
        self._maxsize = maxsize
        self._clock = clock
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, float]] = OrderedDict()
        self._loading: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable) -> Any:
        with self._lock:
            if key in self._values:
                value, loaded_at = self._values[key]
                if self._clock() - loaded_at < self._ttl:
                    self._values.move_to_end(key)
                    return value
            running = self._loading.get(key)
            if running is None:
                mine = self._loading[key] = Future()
        if running is not None:
            return running.result()
        try:
            value = self._load(key)
        except BaseException as error:
            self._finish(key, mine)
            mine.set_exception(error)
            raise
        self._finish(key, mine, value)
        mine.set_result(value)
        return value

    def _finish(self, key: Hashable, load: Future[Any], *values: Any) -> None:
        """End a load and remember its value, unless the key was invalidated meanwhile."""
        with self._lock:
            if self._loading.get(key) is not load:
                return
            del self._loading[key]
            self._values.pop(key, None)
            for value in values:
                self._values[key] = (value, self._clock())
            while len(self._values) > self._maxsize:
                self._values.popitem(last=False)

    def invalidate(self, key: Hashable) -> None:
        with self._lock:
            self._values.pop(key, None)
            self._loading.pop(key, None)
