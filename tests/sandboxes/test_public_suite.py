"""The public suite in the hands of others: it runs from a package of theirs, and says what their sandbox lacks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_sandbox"
#: No sandbox at all: its commands run on this machine. The tests chosen below do no harm there.
PLAIN = """
import asyncio, itertools
from pytest_benchflow.sandboxes import Capabilities, ExecResult

class Plain:
    capabilities, notes, workdir = Capabilities(), (), "/"
    _numbers = itertools.count()

    def __init__(self):
        self.id = f"plain-{next(self._numbers)}"

    async def start(self): pass
    async def stop(self, *, delete=True): pass

    async def exec(self, cmd, *, user=None, cwd=None, env=None, timeout_sec=None, stdin=None):
        process = await asyncio.create_subprocess_exec("bash", "-c", cmd, stdin=-1, stdout=-1, stderr=-1)
        out, err = await process.communicate(stdin)
        return ExecResult(process.returncode, out.decode(), err.decode())

class PlainBackend:
    name, capabilities, options = "plain", Capabilities(), ()

    async def preflight(self): pass
    def create(self, spec): return Plain()
    def leftovers(self, *, unused_for_sec=None): return ()
    async def aclose(self): pass
"""
SUITE = """
from pytest_benchflow.testing import SandboxConformance

class TestPlain(SandboxConformance):
    factory = {factory!r}
"""


@pytest.fixture
def results(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def test_the_example_passes_it(results: pytest.Pytester) -> None:
    shutil.copytree(EXAMPLE, results.path, dirs_exist_ok=True)
    chosen = (
        "test_exec_ or runner_is_killed or backend or option or leftovers or caches or two_sandboxes or snapshots_work"
    )
    done = results.runpytest_subprocess("test_company_sandbox.py", "-k", chosen)
    assert done.parseoutcomes()["passed"] >= 10
    assert "failed" not in done.parseoutcomes()


def test_what_a_sandbox_lacks_is_said(results: pytest.Pytester) -> None:
    results.makepyfile(plain=PLAIN, test_plain=SUITE.format(factory="plain:PlainBackend"))
    chosen = "exit_status or cwd_is_the_workdir or host_processes or no_network or user_by_name"
    done = results.runpytest_subprocess("-ra", "-k", chosen)
    done.assert_outcomes(passed=1, failed=2, skipped=2)
    for line in (
        "E * AssertionError: the sandbox sees processes of this machine",
        "SKIPPED *: the backend has no users",
        "SKIPPED *: the backend cannot take the network away",
    ):
        done.stdout.fnmatch_lines([line])


def test_a_class_without_a_factory_is_told_what_to_set(results: pytest.Pytester) -> None:
    results.makepyfile(test_plain=SUITE.format(factory=""))
    done = results.runpytest_subprocess("-k", "exit_status")
    done.stdout.fnmatch_lines(['set `factory = "module:callable"` on the test class'])
