"""A cache for slow look-ups that many threads share."""

import threading
import time
from collections.abc import Callable, Hashable
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
        self._values: dict[Hashable, tuple[Any, float]] = {}

    def get(self, key: Hashable) -> Any:
        now = self._clock()
        with self._lock:
            value, loaded_at = self._values.get(key, (None, 0.0))
        if value and now - loaded_at <= self._ttl:
            return value
        value = self._load(key)
        with self._lock:
            if len(self._values) >= self._maxsize:
                self._values.pop(next(iter(self._values)))
            self._values[key] = (value, now)
        return value

    def invalidate(self, key: Hashable) -> None:
        del self._values[key]
