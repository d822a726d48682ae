"""The way from a sandbox to the outside: names, connections, and a proxy for programs that need one."""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
