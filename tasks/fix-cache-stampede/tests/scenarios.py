"""Use the class in one scenario and print what was observed as JSON: scenarios.py NAME."""

import json
import sys
import threading
import time

sys.path.insert(0, "/app")
from memo import Memo

PATIENCE = 3.0


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Caller(threading.Thread):
    """A thread that calls a function and keeps its result or exception."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.call, self.outcome = (function, args), "hangs"
        self.start()

    def run(self):
        function, args = self.call
        try:
            self.outcome = function(*args)
        except Exception as error:
            self.outcome = f"{type(error).__name__}: {error}"

    def result(self):
        self.join(PATIENCE)
        return self.outcome


def settle(callers):
    """Wait until all threads stand still inside the class, so that a busy machine changes nothing."""

    def places():
        frames = sys._current_frames()
        return [place(frames.get(caller.ident)) for caller in callers]

    def place(frame):
        top, inside = frame, False
        while frame:
            inside = inside or frame.f_code.co_filename.endswith("memo.py")
            frame = frame.f_back
        return top and (inside, top.f_code.co_name, top.f_lasti)

    end = time.monotonic() + PATIENCE / 3
    before = None
    while time.monotonic() < end:
        now = places()
        if now == before and all(each is None or each[0] for each in now):
            return
        before = now
        time.sleep(0.02)


def counting(function=lambda key, number: number):
    """Return a load function and the list of keys it was called with; `number` counts the calls."""
    calls, lock = [], threading.Lock()

    def load(key):
        with lock:
            calls.append(key)
            number = len(calls)
        return function(key, number)

    return load, calls


def ages():
    clock = Clock()
    memo = Memo(counting()[0], ttl=10, clock=clock)
    seen = []
    for step in (0, 9.5, 0.5, 9.999, 0.002):
        clock.now += step
        seen.append(memo.get("k"))
    return seen


def empty_values():
    seen = []
    for value in (None, False, 0, ""):
        load, calls = counting(lambda key, number, value=value: value)
        memo = Memo(load, ttl=10)
        seen.append([memo.get("k"), memo.get("k"), len(calls)])
    return seen


def slow_load_is_young():
    clock = Clock()

    def slow(key, number):
        clock.now += 100
        return number

    memo = Memo(counting(slow)[0], ttl=10, clock=clock)
    return [memo.get("k"), memo.get("k")]


def stampede():
    started, release = threading.Event(), threading.Event()

    def slow(key, number):
        started.set()
        release.wait(PATIENCE)
        return number

    load, calls = counting(slow)
    memo = Memo(load, ttl=10)
    callers = [Caller(memo.get, "k") for _ in range(8)]
    started.wait(PATIENCE)
    settle(callers)
    release.set()
    return [[caller.result() for caller in callers], len(calls), memo.get("k")]


def expired_stampede():
    clock, go = Clock(), threading.Event()
    go.set()

    def slow(key, number):
        go.wait(PATIENCE)
        return number

    load, calls = counting(slow)
    memo = Memo(load, ttl=10, clock=clock)
    memo.get("k")
    clock.now += 10
    go.clear()
    callers = [Caller(memo.get, "k") for _ in range(6)]
    settle(callers)
    go.set()
    return [[caller.result() for caller in callers], len(calls)]


def keys_side_by_side():
    both = threading.Barrier(2)

    def meet(key, number):
        both.wait(PATIENCE)
        return key

    memo = Memo(counting(meet)[0], ttl=10)
    return [caller.result() for caller in [Caller(memo.get, "a"), Caller(memo.get, "b")]]


def nested_load():
    def nested(key, number):
        return [key, memo.get(key - 1)] if key else []

    memo = Memo(counting(nested)[0], ttl=10)
    return Caller(memo.get, 3).result()


def errors_reach_all_and_are_forgotten():
    release = threading.Event()

    def failing(key, number):
        release.wait(PATIENCE)
        if number == 1:
            raise LookupError("no database")
        return number

    load, calls = counting(failing)
    memo = Memo(load, ttl=10)
    callers = [Caller(memo.get, "k") for _ in range(4)]
    settle(callers)
    release.set()
    return [[caller.result() for caller in callers], len(calls), Caller(memo.get, "k").result(), memo.get("k")]


def invalidate_during_load():
    old = threading.Event()
    first_started = threading.Event()

    def price(key, number):
        if number == 1:
            first_started.set()
            old.wait(PATIENCE)
            return "old"
        return f"new {number}"

    load, calls = counting(price)
    memo = Memo(load, ttl=10)
    first = Caller(memo.get, "k")
    first_started.wait(PATIENCE)
    waiting = Caller(memo.get, "k")
    settle([first, waiting])
    memo.invalidate("k")
    later = Caller(memo.get, "k")
    later.join(PATIENCE / 6)
    early = later.outcome
    old.set()
    return [early, first.result(), waiting.result(), later.result(), memo.get("k"), len(calls)]


def invalidated_and_nobody_came():
    old, started = threading.Event(), threading.Event()

    def price(key, number):
        if number == 1:
            started.set()
            old.wait(PATIENCE)
        return number

    memo = Memo(counting(price)[0], ttl=10)
    first = Caller(memo.get, "k")
    started.wait(PATIENCE)
    memo.invalidate("k")
    old.set()
    return [first.result(), memo.get("k"), memo.get("k")]


def invalidate_simple():
    memo = Memo(counting()[0], ttl=10)
    memo.invalidate("unknown")
    seen = [memo.get("k"), memo.get("k")]
    memo.invalidate("k")
    return [*seen, memo.get("k")]


def least_recently_used():
    load, calls = counting(lambda key, number: key)
    memo = Memo(load, ttl=10, maxsize=3)
    for key in "abcadaebacd":
        memo.get(key)
    return "".join(calls)


def reloading_evicts_nothing():
    clock, (load, calls) = Clock(), counting(lambda key, number: key)
    memo = Memo(load, ttl=10, maxsize=2, clock=clock)
    memo.get("a")
    clock.now += 5
    memo.get("b")
    clock.now += 5
    for key in "aba":
        memo.get(key)
    return "".join(calls)


def many_threads():
    running, worst, lock = {}, [0], threading.Lock()

    def load(key):
        with lock:
            running[key] = running.get(key, 0) + 1
            worst[0] = max(worst[0], running[key])
        time.sleep(0.0005)
        with lock:
            running[key] -= 1
        return key * 2

    memo = Memo(load, ttl=0.003, maxsize=4)

    def work(seed):
        return all(memo.get((seed * 7 + step * step) % 6) == (seed * 7 + step * step) % 6 * 2 for step in range(12))

    return [[caller.result() for caller in [Caller(work, seed) for seed in range(8)]], worst[0]]


print(json.dumps(globals()[sys.argv[1]]()))
