"""`cmd: some-program --flag`: any command of the image that speaks ACP, without a manifest."""

from __future__ import annotations

from pytest_benchflow.agents.legacy import command_argv
from pytest_benchflow.agents.manifest import AgentManifest, EffortChoice
from pytest_benchflow.errors import UsageError


def raw_manifest(command: str) -> AgentManifest:
    """Return the manifest of a command: nothing to install, model and effort by what its session offers."""
    command = command.strip()
    argv = command_argv(command)
    if not argv:
        raise UsageError("'cmd:' names no command", advice='write "cmd: PROGRAM ARGUMENTS"')
    return AgentManifest(name=f"cmd: {command}", launch=argv, description=command, effort=EffortChoice())
