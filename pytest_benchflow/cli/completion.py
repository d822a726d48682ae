"""`bf completion`: scripts by which shells complete the command, made from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

SHELLS = ("bash", "zsh", "fish")
_SCRIPTS = {
    "bash": "~/.local/share/bash-completion/completions/bf",
    "zsh": "a directory of $fpath, as _bf",
    "fish": "~/.config/fish/completions/bf.fish",
}
#: Metavars that stand for directories; other paths are files.
_DIRECTORIES = {"DIR", "FOLDER", "TASK", "JOB", "NAME"}


def add_completion(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], parser: argparse.ArgumentParser
) -> None:
    """Add the command; `parser` is the one to complete."""
    places = "\n".join(f"  bf completion {shell} > {place}" for shell, place in _SCRIPTS.items())
    completion = commands.add_parser(
        "completion",
        help="print a script by which your shell completes bf",
        epilog=f"where it goes:\n{places}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    for action in _actions(parser):
        if action.dest in names and action.choices is None:
            action.choices = names[action.dest]
        elif action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar in _DIRECTORIES else shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in {id(each): each for each in action.choices.values()}.values():
                yield from _actions(below)
        else:
            yield action
