"""Every option, once: the command line, the ini keys and the table in the docs are made from this list."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

Kind = Literal["text", "list", "float", "int", "flag"]
_INI_TYPES: dict[str, Literal["string", "args", "float", "int", "bool"]] = {
    "text": "string",
    "list": "args",
    "float": "float",
    "int": "int",
    "flag": "bool",
}
_WANTED = {
    "text": "a text",
    "list": "texts, quoted where they hold spaces",
    "float": "a number",
    "int": "a whole number",
    "flag": "true or false",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One `--bf-…` option, which is also the ini key `bf_…`."""

    flag: str
    kind: Kind
    help: str
    metavar: str | None = None
    default: str = "–"
    """What applies when nobody says anything, as shown in help and docs."""
    ini: bool = True

    @property
    def name(self) -> str:
        """The ini key and attribute name."""
        return self.flag.removeprefix("--").replace("-", "_")


OPTIONS: tuple[Option, ...] = (
    Option("--bf-agent", "list", "agent to run, or several with commas; repeatable", "NAME[,NAME…]", "oracle"),
    Option("--bf-model", "list", "model for every agent, or agent=model for one; repeatable", "ID", "agent's own"),
    Option("--bf-effort", "text", "reasoning effort, where the agent offers it", "LEVEL"),
    Option("--bf-scene", "list", "rollout file, or its name in scenes/, that says who plays; repeatable", "FILE|NAME"),
    Option("--bf-config", "text", "job file with tasks, agents and everything else", "FILE", ini=False),
    Option("--bf-prompt", "list", "prompt instead of the task's, which is =@instruction; repeatable", "TEXT", "task's"),
    Option("--bf-sandbox", "text", "where rollouts run: local, docker, or any registered backend", "NAME", "auto"),
    Option("--bf-threshold", "float", "reward needed to pass; a task or a marker may set its own", "X", "1.0"),
    Option("--bf-trials", "int", "repetitions of every combination", "K", "1"),
    Option("--bf-concurrency", "text", "rollouts in flight inside one process", "N|auto", "auto"),
    Option("--bf-jobs-dir", "text", "directory that job directories go to", "DIR", "jobs"),
    Option("--bf-job-name", "text", "name of this run's job directory", "NAME", "timestamp", ini=False),
    Option("--bf-json", "text", "write all results to one JSON file", "FILE"),
    Option("--bf-agent-env", "list", "extra environment of the agent; repeatable", "K=V"),
    Option("--bf-verifier-env", "list", "extra environment of the verifier; repeatable", "K=V"),
    Option("--bf-agent-timeout", "float", "seconds for the agent, instead of the task's", "S", "task's"),
    Option("--bf-agent-idle-timeout", "text", "seconds without a sign of life before it is stopped", "S|none", "600"),
    Option("--bf-sandbox-user", "text", "who agents are in the sandbox; none is root", "NAME|none", "agent"),
    Option("--bf-sandbox-setup-timeout", "float", "seconds for making that user", "S", "120"),
    Option(
        "--bf-missing-credentials",
        "text",
        "whether an agent that cannot reach its model ends the run or is skipped",
        "error|skip",
        "error",
    ),
    Option("--bf-timeout-multiplier", "float", "factor for every time limit", "X", "1.0"),
    Option("--bf-source", "list", "git repository to take tasks from; repeatable", "ORG/REPO[@REF][:PATH]"),
    Option("--bf-shard", "text", "run the I-th of N slices of the rollouts", "I/N", ini=False),
    Option(
        "--bf-selftest",
        "flag",
        "check the tasks themselves: nop must not pass and oracle must",
        default="off",
    ),
    Option(
        "--bf-dry-run",
        "flag",
        "list the rollouts and what each lacks, start nothing",
        default="off",
        ini=False,
    ),
    Option(
        "--bf-report-only",
        "flag",
        "low rewards do not fail the run, a broken harness still does",
        default="off",
    ),
    Option("--bf-strict", "flag", "unknown keys in task files are errors", default="off"),
    Option("--bf-force-build", "flag", "build environments anew, past the cache", default="off"),
    Option("--bf-base-image-override", "text", "image that Dockerfiles stand on, instead of their own FROM", "IMAGE"),
    Option("--bf-context-root", "text", "where files that a Dockerfile copies are, if not in environment/", "DIR"),
    Option("--bf-docker-network", "text", "network of containers that may have one", "host|bridge|NAME", "engine's"),
    Option(
        "--bf-keep-sandbox",
        "text",
        "leave sandboxes for inspection, and print how to enter and remove them",
        "never|failed|always",
        "never",
    ),
)


def add_options(parser: pytest.Parser) -> None:
    """Register the command line options and ini keys."""
    group = parser.getgroup("benchflow", "agent benchmarks")
    for option in OPTIONS:
        text = option.help if option.default == "–" else f"{option.help} (default: {option.default})"
        if option.kind == "flag":
            group.addoption(option.flag, action="store_true", default=None, help=text)
        elif option.kind == "list":
            group.addoption(option.flag, action="append", metavar=option.metavar, help=text)
        else:
            group.addoption(option.flag, metavar=option.metavar, help=text)
        if option.ini:
            parser.addini(option.name, option.help, type=_INI_TYPES[option.kind], default=None)


def is_asked_for(config: pytest.Config) -> bool:
    """Tell, at next to no cost, whether any option or setting of ours was given."""
    return any(_given(config, option) is not None for option in OPTIONS) or has_table(config)


def pyproject(config: pytest.Config) -> Path:
    """Return where a `[tool.benchflow]` table would be."""
    ini = config.inipath
    return ini if ini is not None and ini.name == "pyproject.toml" else config.rootpath / "pyproject.toml"


def has_table(config: pytest.Config) -> bool:
    """Tell whether there is a `[tool.benchflow]` table, without parsing the file."""
    try:
        return b"tool.benchflow" in pyproject(config).read_bytes()
    except OSError:
        return False


def ini_value(config: pytest.Config, option: Option) -> object:
    """Return what pytest's configuration says about an option, None if nothing; what cannot be read names its key."""
    if not option.ini:
        return None
    try:
        return config.getini(option.name)
    except (ValueError, TypeError, pytest.UsageError) as error:
        said = str(error) if option.name in str(error) else f"{option.name}: {error}"
        raise pytest.UsageError(f"{said}; give {_WANTED[option.kind]}") from None


def _given(config: pytest.Config, option: Option) -> object:
    value = config.getoption(option.name)
    return ini_value(config, option) if value is None else value


def markdown_table() -> str:
    """Return the options as a Markdown table."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in OPTIONS:
        usage = f"{option.flag} {option.metavar}" if option.metavar else option.flag
        rows.append(f"| `{usage.replace('|', chr(92) + '|')}` | {option.default} | {option.help} |")
    return "\n".join(rows) + "\n"
