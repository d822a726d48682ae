"""The Agent Client Protocol: hold a session with any agent that speaks it, whatever else it does."""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
