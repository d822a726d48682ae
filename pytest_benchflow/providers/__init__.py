"""Providers: from a model's name to an address and a credential, for agents, gateway and judge alike."""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
