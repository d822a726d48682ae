"""Public names of a package, imported when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import cache


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the names that the package's `__init__.pyi` imports from its modules.

    The stub is what type checkers read too, so that each name is written once; it is read when a name is first missing.
    Without a stub the imports are in `__init__.py` itself, for type checkers only.
    """

    @cache
    def homes() -> dict[str, str]:
        import ast

        stub = f"{file.removesuffix('.py')}.pyi"
        with open(stub if os.path.exists(stub) else file, encoding="utf-8") as source:
            imports = [node for node in ast.walk(ast.parse(source.read())) if isinstance(node, ast.ImportFrom)]
        return {alias.name: f"{package}.{node.module}" for node in imports if node.level for alias in node.names}

    def get(name: str) -> object:
        """Import a public name when it is first used."""
        if name == "__all__":
            return sorted(homes())
        if name.startswith("_") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(homes()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes()})
