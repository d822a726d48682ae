"""Public names of a package that are imported when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def late(
    package: str, homes: Mapping[str, tuple[str, ...]], aliases: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package for its names by the module they are in, and for other words."""
    home = {name: module for module, names in homes.items() for name in names}
    actual = {name: name for name in home} | dict(aliases or {})

    def get(name: str) -> object:
        """Import a public name when it is first used."""
        if name not in actual:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{home[actual[name]]}"), actual[name])
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *actual})
