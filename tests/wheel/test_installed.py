"""An installed wheel works as users need it to. `.ci/wheel.py` copies this folder out of the checkout and runs it."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import sysconfig
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import pytest_benchflow

BIN = Path(sys.executable).parent
PACKAGE = Path(pytest_benchflow.__file__).parent
#: A folder of tasks and nothing else, and a project with agents, sandboxes and tests of its own.
PLAIN, PROJECT = (Path(__file__).parent / name for name in ("plain", "project"))


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that knows nothing of the run we are in, and in which `auto` means the local sandbox."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    cache = tmp_path_factory.mktemp("cache")
    return {**kept, "BF_CACHE_DIR": str(cache), "DOCKER_HOST": "unix:///nowhere/docker.sock", "COLUMNS": "160"}


@pytest.fixture
def run(env: dict[str, str]):
    """Run an installed program, hold it to its exit status, and give what it prints."""

    def runs(cwd: Path, program: str, *args: str, status: int = 0) -> str:
        done = subprocess.run([BIN / program, *args], cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    return runs


def test_the_wheel_is_what_is_imported() -> None:
    assert PACKAGE.parent == Path(sysconfig.get_path("purelib"))


def test_what_is_not_a_module_is_installed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    # The package's own names are in its __init__.py itself.
    lazy = [path for path in PACKAGE.rglob("*/__init__.py") if "lazy_exports(" in path.read_text("utf-8")]
    assert len(lazy) > 10
    assert not [path for path in lazy if not path.with_suffix(".pyi").is_file()]
    assert {path.stem for path in (PACKAGE / "sandboxes/docker/guest").iterdir()} >= {"init", "exec", "kill", "common"}


def test_every_agent_has_its_manifest() -> None:
    from pytest_benchflow.agents import list_agents
    from pytest_benchflow.agents.registry import BUILT_IN

    assert {manifest.name for manifest in list_agents()} >= {*BUILT_IN}


def test_every_module_imports_with_no_more_than_the_declared_dependencies() -> None:
    names = [module.name for module in pkgutil.walk_packages([str(PACKAGE)], "pytest_benchflow.")]
    assert len(names) > 100
    for name in names:
        import_module(name)


def test_every_public_name_is_there() -> None:
    assert {"run", "RolloutConfig", "Evaluation", "collect_metrics"} <= {*pytest_benchflow.__all__}
    for name in pytest_benchflow.__all__:
        assert getattr(pytest_benchflow, name) is not None


def test_pytest_lists_the_plugin(run) -> None:
    assert f"pytest-benchflow-{version('pytest-benchflow')} at {PACKAGE}" in run(PLAIN, "pytest", "-VV")


def test_bf_tells_its_version(run) -> None:
    assert run(PLAIN, "bf", "--version") == f"pytest-benchflow {version('pytest-benchflow')}\n"


def test_tasks_pass_on_workers_and_their_results_count(run) -> None:
    out = run(
        PLAIN, "pytest", "tasks", "--bf-agent", "oracle", "--bf-sandbox", "local", "-n", "2", "--bf-jobs-dir", "two"
    )
    assert "2 of 2 " in out
    metrics = json.loads(run(PLAIN, "bf", "metrics", "two", "--json"))
    assert (metrics["total"], metrics["passed"], metrics["mean_reward"]) == (2, 2, 1.0)


def test_a_task_that_fails_ends_with_status_1(run) -> None:
    out = run(PLAIN, "pytest", "tasks/hello-world", "--bf-agent", "nop", "--bf-sandbox", "local", status=1)
    assert "reward 0.00 is below 1.00" in out


def test_a_project_with_its_own_agent_and_sandbox_works(run) -> None:
    named = ["--bf-agent", "greeting", "--bf-sandbox", "company"]
    out = run(PROJECT, "pytest", "-W", "error", "test_company.py", "tasks/hello-world", *named)
    assert "3 passed" in out
    assert "company: 1 rollouts" in out


def test_the_library_works_without_pytest(run) -> None:
    lines = run(PROJECT, "python", "library.py", "tasks").splitlines()
    assert lines[:4] == ["refused TaskError", "named passed 1.0", "configured passed 1.0", "runtime True hello.txt"]
    assert lines[-3:] == ["evaluated 2 of 2", "pass@1 1.0", "mean reward 1.0"]
