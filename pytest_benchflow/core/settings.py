"""Settings: how one is declared, read from any source, and merged with what other sources say.

A setting is a field of a dataclass that `setting(…)` declares; options, ini keys, tables, file keys, `config.json`,
JSON Schemas and the page of options are made from that. Loaded at every start of pytest: the standard library only.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar, cast

if TYPE_CHECKING:
    from pytest_benchflow.core.errors import UsageError

T = TypeVar("T")
IniType = Literal["string", "args", "linelist", "float", "int", "bool"]

#: Which source of settings counts more, from the strongest to the weakest; a hook changes what comes out of it.
LAYERS = ("marker", "command line", "overrides", "scene file", "job file", "ini", "table", "task")
LayerName = Literal["marker", "command line", "overrides", "scene file", "job file", "ini", "table", "task"]


class Source:
    """Where a value comes from: how a message names it, and what its relative paths are relative to."""

    def __init__(self, name: str, base: Path = Path()) -> None:
        self.name = name
        self.base = base


def usage_error(message: str, advice: str | None = None) -> UsageError:
    """Return the error for a value that cannot be; errors are loaded when there is one."""
    from pytest_benchflow.core.errors import UsageError

    return UsageError(message, advice=advice)


class Kind:
    """What values a setting takes; `read` returns one from what a command line, a file or Python says."""

    takes: Literal["one", "many", "none", "maybe"] = "one"
    """How many words it takes on a command line; a flag takes none, and `maybe` is one after `=`, or none."""
    ini: IniType = "string"
    expected = "expected a string"

    def read(self, value: Any, source: Source) -> Any:
        """Return the value, or raise a UsageError that names the source."""
        if isinstance(value, bool) or not isinstance(value, str | int | float) or str(value).strip() == "":
            raise self.error(value, source)
        return str(value)

    def join(self, values: Sequence[Any]) -> Any:
        """Return what several sources mean together, the strongest first."""
        return values[0]

    def public(self, value: Any) -> Any:
        """Return what may be written down of a value."""
        return str(value) if isinstance(value, Path) else value

    def error(self, value: object, source: Source, expected: str | None = None) -> UsageError:
        """Return the error for a value that is not of this kind."""
        return usage_error(f"{source.name} is {value!r}", expected or self.expected)


class Text(Kind):
    """A string."""


class Choice(Kind):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def read(self, value: Any, source: Source) -> str:
        """Return the word."""
        text: str = super().read(value, source)
        if text not in self.words:
            raise self.error(text, source, f"give {', '.join(self.words[:-1])} or {self.words[-1]}")
        return text


class Number(Kind):
    """A finite number."""

    ini: IniType = "float"

    def __init__(self, above: float | None = 0.0) -> None:
        self.above = above
        self.expected = "give a number" if above is None else f"give a number above {above:g}"

    def read(self, value: Any, source: Source) -> float | None:
        """Return the number."""
        if not self.accepts(value):
            raise self.error(value, source)
        return float(str(value))

    def accepts(self, value: object) -> bool:
        """Return whether a value, as a number or as text, is a finite number within the bounds."""
        try:
            number = math.nan if isinstance(value, bool) else float(str(value))
        except ValueError:
            return False
        return math.isfinite(number) and (self.above is None or number > self.above)


class Limit(Number):
    """Seconds after which something is stopped, or none."""

    ini: IniType = "string"

    def read(self, value: Any, source: Source) -> float | None:
        """Return the seconds, None for no limit."""
        return None if value is None or str(value) in ("none", "0", "0.0") else super().read(value, source)


class Count(Kind):
    """A whole number, from 1 up unless said otherwise."""

    ini: IniType = "int"

    def __init__(self, at_most: int | None = None, at_least: int = 1) -> None:
        self.at_most = at_most
        self.at_least = at_least
        self.expected = f"give a whole number from {at_least} up"

    def read(self, value: Any, source: Source) -> int | None:
        """Return the number."""
        text = str(value)
        if isinstance(value, bool) or not text.isdecimal() or int(text) < self.at_least:
            raise self.error(value, source)
        if self.at_most is not None and int(text) > self.at_most:
            raise self.error(value, source, f"give at most {self.at_most}")
        return int(text)


class CountOrAuto(Count):
    """A whole number from 1 up, or `auto`."""

    ini: IniType = "string"

    def read(self, value: Any, source: Source) -> int | None:
        """Return the number, None for auto."""
        return None if value == "auto" else super().read(value, source)


class CountOrOff(Count):
    """A whole number from 1 up, or `off`."""

    ini: IniType = "string"

    def __init__(self) -> None:
        super().__init__()
        self.expected += ", or off"

    def read(self, value: Any, source: Source) -> int | None:
        """Return the number, None for off."""
        return None if value in ("off", "none", "0", 0, None) else super().read(value, source)


class Flag(Kind):
    """Yes or no."""

    takes = "none"
    ini: IniType = "bool"
    expected = "give true or false"

    def read(self, value: Any, source: Source) -> bool:
        """Return the truth value."""
        if not isinstance(value, bool):
            raise self.error(value, source)
        return value


class Texts(Kind):
    """Several strings."""

    takes = "many"
    ini: IniType = "args"
    expected = "expected a string or a list of strings"

    def read(self, value: Any, source: Source) -> tuple[Any, ...] | None:
        """Return the strings."""
        if isinstance(value, str):
            return (value,)
        if not are_texts(value):
            raise self.error(value, source)
        return tuple(value)

    def public(self, value: Any) -> Any:
        """Return them as a list."""
        return None if value is None else [*value]


class Lines(Texts):
    """Several strings that may hold spaces and quotes: one per line in an ini file."""

    ini: IniType = "linelist"


class Probability(Number):
    """A number between 0 and 1, both excluded."""

    expected = "give a number above 0 and below 1, for example 0.95"

    def __init__(self) -> None:
        super().__init__()
        self.expected = type(self).expected

    def accepts(self, value: object) -> bool:
        """Return whether a value is such a number."""
        return super().accepts(value) and float(str(value)) < 1


class PathTo(Kind):
    """A path, relative to where it was written."""

    def __init__(self, must_be: Literal["file", "directory"] | None = None) -> None:
        self.must_be = must_be

    def read(self, value: Any, source: Source) -> Path:
        """Return the path."""
        path: Path = source.base / os.path.expanduser(super().read(value, source))
        if (self.must_be == "file" and not path.is_file()) or (self.must_be == "directory" and not path.is_dir()):
            raise usage_error(f"{source.name}: {path} is not a {self.must_be}")
        return path


class Variables(Kind):
    """Environment variables; sources add to each other, and only the names may be written down."""

    takes = "many"
    ini: IniType = "args"
    expected = "write NAME=value"

    def read(self, value: Any, source: Source) -> dict[str, str]:
        """Return the variables by name."""
        if isinstance(value, Mapping):
            return dict(value)
        variables: dict[str, str] = {}
        for text in Texts().read(value, source) or ():
            name, equals, content = text.partition("=")
            if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                shown = name if equals else text  # never the value, which may be a secret
                raise usage_error(f"{source.name} {shown!r} is not an assignment", self.expected)
            variables[name] = content
        return variables

    def join(self, values: Sequence[Any]) -> dict[str, str]:
        """Return all of them."""
        return {name: content for value in reversed(values) for name, content in value.items()}

    def public(self, value: Any) -> list[str]:
        """Return the names."""
        return sorted(value)


class Structure(Kind):
    """Something that only Python or a file of ours can say."""

    def read(self, value: Any, source: Source) -> Any:
        """Return it as it is."""
        return value


class Setting:
    """One declared setting."""

    name = ""
    """Name of the field, which the class that declares it gives."""

    def __init__(
        self,
        default: Any,
        kind: Kind,
        help: str,
        *,
        option: str | None,
        metavar: str | None,
        shown: str | None,
        ini: bool,
        file: str | None,
        older: tuple[str, ...],
        task: str | None,
        task_beats_ini: str | None,
        marker: str | None,
        decides: bool,
    ) -> None:
        self.default = default
        self.kind = kind
        self.help = help
        self.option = option
        self.metavar = metavar
        self.shown = shown
        self.ini = ini
        self.file = file
        self.older = older
        self.task = task
        self.task_beats_ini = task_beats_ini
        self.marker = marker
        self.decides = decides

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        if self.file == "":
            self.file = name

    @property
    def ini_key(self) -> str:
        """The ini key and the name of the option's attribute."""
        return (self.option or "").removeprefix("--").replace("-", "_")

    @property
    def table_key(self) -> str:
        """The key in `[tool.benchflow]`."""
        return self.ini_key.removeprefix("bf_")

    @property
    def shown_default(self) -> str:
        """What applies when nobody says anything, as shown in help and docs."""
        if self.shown is not None:
            return self.shown
        if self.default is False:
            return "off"
        return "–" if self.default in (None, (), {}) else str(self.default)

    def order(self) -> Sequence[str]:
        """Return the layers from the strongest to the weakest, as they count for this setting."""
        if self.task_beats_ini is None:
            return LAYERS
        return sorted(LAYERS, key=lambda layer: LAYERS.index("ini") - 0.5 if layer == "task" else LAYERS.index(layer))


def setting(
    default: T,
    kind: Kind,
    help: str,
    *,
    option: str | None = None,
    metavar: str | None = None,
    shown: str | None = None,
    ini: bool = True,
    file: str | bool = True,
    older: Sequence[str] = (),
    task: str | None = None,
    task_beats_ini: str | None = None,
    marker: str | None = None,
    decides: bool = True,
) -> T:
    """Declare a setting: a field of a dataclass, with its default.

    `option` makes it one of the command line, of ini files (unless `ini` is off) and of `[tool.benchflow]`; `shown` is
    its default in words. `file` is its key in rollout files, by default the name of the field, and `older` are other
    words for that key. `task` is what a task calls it, `marker` the mark that sets it; `task_beats_ini` is the reason
    why a task's own value counts more than that of the whole project. `decides` is whether a rollout may end otherwise
    by it, so that a job is not continued with another value.
    """
    declared = Setting(
        default,
        kind,
        help,
        option=option,
        metavar=metavar,
        shown=shown,
        ini=ini,
        file=file if isinstance(file, str) else "" if file else None,
        older=tuple(older),
        task=task,
        task_beats_ini=task_beats_ini,
        marker=marker,
        decides=decides,
    )
    return cast("T", declared)


C = TypeVar("C", bound=type)


def declaration(**options: bool) -> Callable[[C], C]:
    """Mark a class whose fields are settings; `complete` makes a dataclass of it with these options.

    To type checkers it is `dataclass` itself, under another name.
    """

    def mark(cls: C) -> C:
        settings = {name: value for name, value in vars(cls).items() if isinstance(value, Setting)}
        cls.__settings__ = settings  # type: ignore[attr-defined]
        cls.__options__ = options  # type: ignore[attr-defined]
        return cls

    return mark


def settings_of(cls: type) -> Mapping[str, Setting]:
    """Return the settings that a class declares, by the names of their fields."""
    declared: Mapping[str, Setting] = cls.__settings__  # type: ignore[attr-defined]
    return declared


def complete(cls: type) -> None:
    """Make a dataclass of a class that declares settings."""
    from dataclasses import dataclass, field

    for name, declared in settings_of(cls).items():
        default = declared.default
        value = field(default_factory=default.copy) if isinstance(default, dict) else field(default=default)
        setattr(cls, name, value)
    dataclass(**cls.__options__)(cls)  # type: ignore[attr-defined]


class Layer:
    """What one source says, by the names of the fields; what it does not say is not there."""

    def __init__(self, name: LayerName, values: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.values = values or {}


def merge(settings: Iterable[Setting], *layers: Layer) -> dict[str, Any]:
    """Return what counts of every setting that any layer has a value for: LAYERS is the order of precedence."""
    merged: dict[str, Any] = {}
    by_name = {layer.name: layer.values for layer in layers}
    for one in settings:
        values = [by_name[name][one.name] for name in one.order() if name in by_name and one.name in by_name[name]]
        if values:
            merged[one.name] = one.kind.join(values)
    return merged


def are_texts(value: object) -> TypeGuard[list[str]]:
    """Return whether a value is a list of strings, none of them empty."""
    return isinstance(value, list | tuple) and all(isinstance(part, str) and part for part in value)
