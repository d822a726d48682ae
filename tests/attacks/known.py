"""What is not stopped yet, by sandbox; a defence that lands turns its entry red until it is removed."""

from __future__ import annotations

KNOWN: dict[str, frozenset[str]] = {"local": frozenset(), "docker": frozenset()}
