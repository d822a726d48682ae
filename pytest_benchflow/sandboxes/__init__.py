"""Where agents and verifiers run: the `Sandbox` protocol and the registry of its backends."""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
