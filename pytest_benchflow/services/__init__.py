"""Services that run beside the agent in its sandbox, such as a mailbox or a calendar."""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
