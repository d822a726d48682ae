"""`bf completion`: scripts by which shells complete the command, made from the parser itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_benchflow.cli.examples import commands_of

SHELLS = ("bash", "zsh", "fish")
#: Metavars that stand for directories; other paths are files.
_DIRECTORIES = {"DIR", "FOLDER", "TASK", "JOB", "NAME"}


def add_completion(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], parser: argparse.ArgumentParser
) -> None:
    """Add the command; `parser` is the one to complete."""
    completion = commands.add_parser(
        "completion",
        help="print a script by which your shell completes bf",
    )
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(action=lambda options: _print(parser, options.shell))


def _print(parser: argparse.ArgumentParser, shell: str) -> int:
    import shtab

    from pytest_benchflow.agents import AgentRegistry
    from pytest_benchflow.sandboxes import SandboxRegistry

    agents = AgentRegistry()
    agents.load_entry_points()
    names = {"agent": sorted(agents.names()), "sandbox": ["auto", *SandboxRegistry().names()]}
    for action in (action for _, command in commands_of(parser) for action in command._actions):
        if action.dest in names and action.choices is None:
            action.choices = names[action.dest]
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar in _DIRECTORIES else shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
    return 0
