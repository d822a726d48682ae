"""Files of settings: TOML and YAML in, a model or all problems at once out, each with its line."""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
