"""Tasks: find, read and check them. Importing this package imports neither pydantic nor YAML."""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
