"""The sandbox `docker`: containers of a Docker engine, local or remote; importing it does not import the SDK."""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
