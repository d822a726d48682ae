"""The command line, the ini keys and the table in the docs, made from the declared settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_benchflow.core.settings import Setting, settings_of
from pytest_benchflow.rollout.settings import RolloutSettings, RunSettings

OPTIONS: tuple[Setting, ...] = tuple(
    declared
    for declaration in (RunSettings, RolloutSettings)
    for declared in settings_of(declaration).values()
    if declared.option is not None
)
_EXPECTED = {
    "string": "expected a string",
    "args": "expected strings, quoted where they hold spaces",
    "linelist": "expected strings, one per line",
    "float": "give a number",
    "int": "give a whole number",
    "bool": "give true or false",
}


def add_options(parser: pytest.Parser) -> None:
    """Register the command line options and ini keys."""
    group = parser.getgroup("benchflow", "agent benchmarks")
    for declared in OPTIONS:
        assert declared.option is not None
        shown = declared.shown_default
        text = declared.help if shown == "–" else f"{declared.help} (default: {shown})"
        arguments = {"dest": declared.ini_key, "default": None, "help": text}
        if declared.kind.takes == "none":
            group.addoption(declared.option, action="store_true", **arguments)
        elif declared.kind.takes == "maybe":
            group.addoption(declared.option, nargs="?", const="", metavar=declared.metavar, **arguments)
        elif declared.kind.takes == "many":
            group.addoption(declared.option, action="append", metavar=declared.metavar, **arguments)
        else:
            group.addoption(declared.option, metavar=declared.metavar, **arguments)
        if declared.ini:
            parser.addini(declared.ini_key, declared.help, type=declared.kind.ini, default=None)


def keep_paths_apart(early_config: pytest.Config, args: list[str]) -> None:
    """Keep options whose value is optional from taking the path that follows: a value stands behind `=`."""
    known = early_config.known_args_namespace
    for declared in OPTIONS:
        if declared.kind.takes != "maybe" or declared.option not in args:
            continue
        place = args.index(declared.option)
        args[place] = f"{declared.option}="
        if getattr(known, declared.ini_key):
            known.file_or_dir.insert(0, getattr(known, declared.ini_key))
            setattr(known, declared.ini_key, "")


def is_asked_for(config: pytest.Config) -> bool:
    """Return, at next to no cost, whether any option or setting of ours was set."""
    return any(_value(config, declared) is not None for declared in OPTIONS) or has_table(config)


def pyproject(config: pytest.Config) -> Path:
    """Return where a `[tool.benchflow]` table would be."""
    ini = config.inipath
    return ini if ini is not None and ini.name == "pyproject.toml" else config.rootpath / "pyproject.toml"


def has_table(config: pytest.Config) -> bool:
    """Return whether there is a `[tool.benchflow]` table, without parsing the file."""
    try:
        return b"tool.benchflow" in pyproject(config).read_bytes()
    except OSError:
        return False


def ini_value(config: pytest.Config, declared: Setting) -> object:
    """Return what pytest's configuration says of a setting, None if nothing; what cannot be read names its key."""
    if not declared.ini:
        return None
    try:
        return config.getini(declared.ini_key)
    except (ValueError, TypeError, pytest.UsageError) as error:
        message = str(error) if declared.ini_key in str(error) else f"{declared.ini_key}: {error}"
        raise pytest.UsageError(f"{message}; {_EXPECTED[declared.kind.ini]}") from None


def _value(config: pytest.Config, declared: Setting) -> object:
    value = config.getoption(declared.ini_key)
    return ini_value(config, declared) if value is None else value


def markdown_table() -> str:
    """Return the options as a Markdown table."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for declared in OPTIONS:
        usage = f"{declared.option} {declared.metavar}" if declared.metavar else f"{declared.option}"
        if declared.kind.takes == "maybe":
            usage = f"{declared.option}[={declared.metavar}]"
        rows.append(f"| `{usage.replace('|', chr(92) + '|')}` | {declared.shown_default} | {declared.help} |")
    return "\n".join(rows) + "\n"
