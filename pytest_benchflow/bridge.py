"""Let a test on any event loop, or on none, use an object that lives on the engine's loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from pytest_benchflow.jobs import Engine

T = TypeVar("T")


class OnEngine:
    """Forward to an object; its coroutine methods run on the engine's loop and can be awaited on any other."""

    def __init__(self, target: object, engine: Engine) -> None:
        self._bf_target = target
        self._bf_engine = engine

    @classmethod
    def wrap(cls, target: T, engine: Engine) -> T:
        """Return a stand-in that has the same interface."""
        return cast("T", cls(target, engine))

    @staticmethod
    def unwrap(target: T) -> T:
        """Return the object itself, which only code on the engine's loop may await."""
        return cast("T", target._bf_target) if isinstance(target, OnEngine) else target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._bf_target, name)
        if not inspect.iscoroutinefunction(value):
            return value

        @functools.wraps(value)
        async def on_engine(*args: object, **kwargs: object) -> object:
            return await asyncio.wrap_future(self._bf_engine.start(value(*args, **kwargs)))

        return on_engine

    def __repr__(self) -> str:
        return repr(self._bf_target)
