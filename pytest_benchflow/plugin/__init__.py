"""The pytest plugin: hooks only, each a line or two; what they do is elsewhere and imported when it is needed.

Runs in every pytest process that has the package installed, so importing this module must stay cheap.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from pathlib import Path

import pytest

import pytest_benchflow.plugin.installed_bytecode  # noqa: F401 - before all that follows

# isort: split
from pytest_benchflow.plugin import hookspecs
from pytest_benchflow.plugin.collection import collect_directory, collect_file, outside_of_tasks
from pytest_benchflow.plugin.controller import Controller
from pytest_benchflow.plugin.fixtures import *  # noqa: F403 - pytest finds fixtures among the plugin's names
from pytest_benchflow.plugin.options import add_options, is_asked_for, keep_paths_apart
from pytest_benchflow.plugin.stash import existing_run, get_session

MARKERS = (
    "bf(agent, model, scene, sandbox, difficulty, category): a rollout of a benchmark task; select by any argument",
    "bf_tag(name): a tag or keyword of the task",
    "bf_task(path): the task a test's bf_* fixtures use",
    "bf_threshold(reward): reward needed to pass",
    "bf_timeout(seconds): time for the agent",
    "bf_trials(k): repeat a test that uses bf_* fixtures k times",
    "bf_quarantine: run and report, but never fail the run",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register options and ini keys."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register our hooks."""
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None]:
    """Spare the host the conftest files of verifiers."""
    keep_paths_apart(early_config, args)
    with outside_of_tasks(early_config):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register markers and, where pytest was started, what gathers the results."""
    # We bring pytest-asyncio to suites that never asked for it: its advice on its settings must not end `-W error`.
    warnings.filterwarnings("ignore", r"(?s).*asyncio_default_fixture_loop_scope", pytest.PytestDeprecationWarning)
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("bf_dry_run") and hasattr(config.option, "dist"):
        config.option.dist, config.option.numprocesses, config.option.tx = "no", 0, []  # nothing to distribute
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(config), "benchflow-controller")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Check the settings before xdist starts workers, and add the tasks of `--bf-source`."""
    hook = session.config.hook
    registering = (hook.pytest_bf_register_agents, hook.pytest_bf_register_sandboxes)
    if is_asked_for(session.config) or any(caller.get_hookimpls() for caller in registering):
        run = get_session(session.config)
        if run.settings.source or run.job_file is not None:
            from pytest_benchflow.plugin.job_files import add_sources

            add_sources(run)


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim task directories and folders of tasks."""
    return collect_directory(path, parent)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim task files named from outside the root directory."""
    return collect_file(file_path, parent)


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_collection_modifyitems_first(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell tasks of one name apart before anybody asks for the names of items."""
    if existing_run(config) is not None:
        from pytest_benchflow.plugin.items import name_apart

        name_apart(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tasks that a job file names, and of these this machine's slice; shuffle them where a test needs it."""
    run = existing_run(config)
    if run is not None and run.job_file is not None and (run.job_file.include or run.job_file.exclude):
        from pytest_benchflow.plugin.selection import keep_named

        keep_named(config, items, run.job_file)
    if run is not None and run.settings.shard is not None:
        from pytest_benchflow.plugin.selection import keep_shard

        keep_shard(config, items, *run.settings.shard)
    if run is not None and run.settings.confidence is not None:
        from pytest_benchflow.plugin.gating import shuffle_rollouts

        shuffle_rollouts(run, items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Remember what the task files said, and warn of what they should not say."""
    run = existing_run(session.config)
    if run is not None:
        run.after_collection()


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Say what would run and where, in a dry run."""
    run = existing_run(config)
    if run is None or config.option.collectonly or not run.settings.dry_run:
        return []
    from pytest_benchflow.plugin.controller import header
    from pytest_benchflow.plugin.items import RolloutItem

    n_items = sum(isinstance(item, RolloutItem) for item in items)
    return header(run, n_items) if n_items else []


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Print instead of running, in a dry run."""
    run = existing_run(session.config)
    if run is None or not run.settings.dry_run:
        return None
    from pytest_benchflow.plugin.preflight import list_cells

    return list_cells(session, run)


@pytest.hookimpl(wrapper=True, specname="pytest_runtestloop")
def pytest_runtestloop_with_rollouts(session: pytest.Session) -> Generator[None, object, object]:
    """Run rollouts beside pytest's loop."""
    run = existing_run(session.config)
    if run is None or session.config.option.collectonly or run.settings.dry_run:
        return (yield)
    from pytest_benchflow.plugin.run_loop import rollouts_in_flight

    with rollouts_in_flight(session, run):
        return (yield)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat tests that are marked with `bf_trials`."""
    marker = metafunc.definition.get_closest_marker("bf_trials")
    if marker is not None and any(name.startswith("bf_") for name in metafunc.fixturenames):
        from pytest_benchflow.plugin.fixtures import repeat

        repeat(metafunc, marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Complete the reports of items that have a rollout."""
    report = yield
    if existing_run(item.config) is not None:
        from pytest_benchflow.plugin.reports import amend

        amend(item, call, report)
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """End whatever a run that broke off left running."""
    run = existing_run(config)
    if run is not None:
        run.close()
