"""What there is to know about an agent, as plain data, and how such data are made from tables of TOML."""

from __future__ import annotations

import dataclasses
import shlex
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pytest_benchflow.agents.template import FileFormat
from pytest_benchflow.core.text import did_you_mean
from pytest_benchflow.providers import CredentialOption, GenericVariables, Login, WireProtocol

#: Names that templates of a manifest may use: what is known before anything starts, and what only a session knows.
EARLY_NAMES = frozenset(
    {
        "model",
        "base_url",
        "other_base_url",
        "api_key",
        "api",
        "provider",
        "effort",
        "api_version",
        "project",
        "location",
        "region",
    }
)
LATE_NAMES = frozenset({"home", "cwd", "port", "token"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """Where the agent's programs come from: pinned packages on the host, a command in the sandbox, or the image."""

    node: str | None = None
    npm: tuple[str, ...] = ()
    python: str | None = None
    pip: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    """Programs of the packages that are called by name; none means the one that is launched."""
    command: str | None = None
    timeout_sec: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """How the agent is told which model to use."""

    by: Literal["auto", "config-option", "set-model", "env", "flag", "file"] = "auto"
    option: str = "model"
    name: str = "{model}"
    """How the agent spells a model."""
    default: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    """What the agent takes short names of its own provider's models for."""
    required: bool = False
    """Whether it cannot start without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortChoice:
    """How the agent is told how hard to think."""

    by: Literal["config-option", "env", "flag", "file"] = "config-option"
    option: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One protocol that the agent speaks with models."""

    api: str | None = None
    """The agent's own word for it, `{api}` in templates."""
    suffix: str = ""
    """What the agent wants at the end of the base URL."""
    auth_method: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTemplate:
    """A file in the agent's home directory."""

    path: str
    format: FileFormat
    content: Mapping[str, object] | str
    variable: str | None = None
    """Variable that is to hold its absolute path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A program that has to run beside the agent and listen on `{port}` before it starts."""

    launch: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """For both programs."""
    ready_timeout_sec: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """Where an update reports a failed call of the model, beside the agent's messages."""

    text: tuple[str, ...]
    """Paths in the update to the parts of the report."""
    update: str | None = None
    """The `sessionUpdate` that carries it; None means any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedState:
    """How an update reports a state in which only the agent speaks, not its model."""

    path: str
    value: str
    """Any other value means that the state is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """A file that the agent writes about its calls of the model, for what it does not say over the protocol.

    Patterns are extended regular expressions of grep; the first group is the model, or what is reported.
    """

    path: str
    """Below the home directory; `*` stands for any name."""
    models: str | None = None
    """Pattern of an answer."""
    errors: str | None = None
    """Pattern of a failed call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """What the protocol leaves open and the agent does in its own way.

    Paths are keys joined by dots. Patterns are regular expressions, matched at the start and in any case of letters.
    """

    usage: Literal["prompt", "session"] = "prompt"
    """What the tokens in an answer count: the prompt, or the session up to then."""
    usage_paths: tuple[str, ...] = ("usage", "_meta.usage", "_meta.quota.token_count", "_meta")
    """Where the answer to a prompt has its tokens; the first path with a count is used."""
    model_paths: tuple[str, ...] = ("_meta.quota.model_usage",)
    """Where the answer has the models that were used: tables with a `model`, or a table by model."""
    update_models: tuple[str, ...] = ()
    """Where updates, and notifications of the agent's own, have the model that answered."""
    helper_models: tuple[str, ...] = ()
    """Patterns of models that it uses for titles, summaries and the like beside the one it is asked for."""
    reported_model: str | None = None
    """Pattern of the name by which it reports its model; the first group is the model."""
    notices: tuple[str, ...] = ()
    """Patterns of messages that it writes itself, before it asks its model or while that fails to answer."""
    opening_notices: tuple[str, ...] = ()
    """The same, but only where a message begins: a model may write it too, but seldom as its first word."""
    errors: tuple[ErrorReport, ...] = ()
    """Where updates, and notifications of its own, report failed calls of the model."""
    log_errors: tuple[str, ...] = ()
    """Patterns of lines on standard error that report failed calls of the model."""
    records: tuple[RecordFile, ...] = ()
    """Files in which it reports answers and failed calls."""
    failed_state: FailedState | None = None
    """How updates report that whatever follows is the agent's own word."""
    terminal_output: tuple[str, ...] = ("_meta.terminal_output.data", "_meta.terminal_output_delta.data")
    """Where updates of a tool call have its output piece by piece, beside the call's content."""
    terminal_exit: str = "_meta.terminal_exit"
    """Where they have a table with `exit_code` and `signal`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentManifest:
    """One agent that speaks ACP."""

    name: str
    launch: tuple[str, ...]
    """Program and arguments; without packages the program is one of the image."""
    aliases: tuple[str, ...] = ()
    description: str = ""
    protocol: Literal["acp"] = "acp"
    version: str | None = None
    install: Install = Install()
    env: Mapping[str, str] = field(default_factory=dict)
    auth_method: str | None = None
    mode: str | None = None
    """Session mode in which it asks for no permission."""
    model: ModelChoice = ModelChoice()
    effort: EffortChoice | None = None
    """None means that no effort can be chosen."""
    provider: str | None = None
    """Its own provider, used for models whose name tells no other."""
    key_env: str | None = None
    """Variable that takes the key, unless a credential of its own has another name."""
    protocols: Mapping[WireProtocol, Dialect] = field(default_factory=dict)
    """What it speaks with models; none means that it cannot be pointed anywhere."""
    credentials: tuple[CredentialOption, ...] = ()
    """Ways into its own provider, the best first."""
    login: Login | None = None
    generic: GenericVariables = field(default_factory=GenericVariables)
    requires_env: tuple[str, ...] = ()
    """Variables that have to be set, and are passed on."""
    files: tuple[FileTemplate, ...] = ()
    skill_dirs: tuple[str, ...] = ()
    """Where it looks for skills, with $HOME and $WORKSPACE."""
    home_dirs: tuple[str, ...] = ()
    companion: Companion | None = None
    handshake_timeout_sec: float = 120.0
    session_meta: Mapping[str, object] = field(default_factory=dict)
    """What it is told beside the protocol when a session begins."""
    quirks: Quirks = Quirks()

    @property
    def programs(self) -> tuple[str, ...]:
        """What its packages have to provide."""
        return self.install.programs or self.launch[:1]

    @property
    def launch_cmd(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.launch)


T = TypeVar("T")
_BAD = object()
_KINDS = {str: "a string", bool: "true or false", float: "a number"}


def build(cls: type[T], table: Mapping[str, object], problems: list[str], where: str = "") -> T | None:
    """Return an object of a dataclass, or None and add to `problems` what is wrong with the table."""
    assert dataclasses.is_dataclass(cls)
    fields = {each.name: each for each in dataclasses.fields(cls)}
    hints = get_type_hints(cls)
    before = len(problems)
    for key in table:
        if key not in fields:
            problems.append(f"{_place(where, key)} is not known; {did_you_mean(key, fields)}")
    for name, each in fields.items():
        has_default = each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
        if name not in table and not has_default:
            problems.append(f"{_place(where, name)} is missing")
    values = {
        name: _value(hints[name], value, problems, where, name) for name, value in table.items() if name in fields
    }
    return cls(**values) if len(problems) == before else None


def _value(kind: Any, value: object, problems: list[str], where: str, key: str) -> object:
    converted = _convert(kind, value, problems, f"{where}.{key}" if where else key)
    if converted is _BAD:
        problems.append(f"{_place(where, key)} is {_shown(value)}; give {_wanted(kind)}")
    return converted


def _convert(kind: Any, value: object, problems: list[str], path: str) -> object:
    """Return the value as its type wants it, `_BAD` if it is of another; problems inside are added, not returned."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        tried = (_convert(arg, value, problems, path) for arg in args if arg is not types.NoneType)
        return next((converted for converted in tried if converted is not _BAD), _BAD)
    if origin is Literal:
        return value if value in args else _BAD
    if origin is tuple:
        return _items(args[0], value, problems, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _table(args[0], args[1], value, problems, path)
    if dataclasses.is_dataclass(kind):
        return build(kind, value, problems, path) if isinstance(value, dict) else _BAD  # type: ignore[arg-type]
    if kind is float:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _BAD
    return value if kind is object or type(value) is kind else _BAD


def _items(kind: Any, value: object, problems: list[str], path: str) -> object:
    if not isinstance(value, list):
        return _BAD
    items = [_convert(kind, item, problems, path) for item in value]
    return _BAD if _BAD in items else tuple(items)


def _table(keys: Any, kind: Any, value: object, problems: list[str], path: str) -> object:
    if not isinstance(value, dict):
        return _BAD
    known = get_args(keys)
    for key in value:
        if known and key not in known:
            problems.append(f"{_place(path, key)} is not known; {did_you_mean(key, known)}")
    return {key: _value(kind, item, problems, path, key) for key, item in value.items()}


def _place(where: str, key: str) -> str:
    return f"[{where}] {key}" if where else key


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _wanted(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(_wanted(arg) for arg in args if arg is not types.NoneType)
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin is tuple:
        return "a list of tables" if dataclasses.is_dataclass(args[0]) else "a list of strings"
    return _KINDS.get(kind, "a table")
