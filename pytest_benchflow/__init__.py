"""Agent benchmark tasks as pytest items, and the plain asyncio library underneath.

import pytest_benchflow as bf

result = await bf.run("oracle", task_path="tasks/hello-world")
"""

from pytest_benchflow.core.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
