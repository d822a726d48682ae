"""Read YAML, whole files and the front matter of Markdown, and find the line of a key afterwards."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol, cast

import yaml

from pytest_benchflow.configfile.problems import Problem, TaskError
from pytest_benchflow.configfile.sources import Data, Path, names

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

MAX_DEPTH = 50
MAX_VALUES = 100_000
_TEXT = "tag:yaml.org,2002:str"


class _Loader(Protocol):
    def get_single_node(self) -> yaml.Node | None: ...
    def construct_object(self, node: yaml.Node) -> object: ...
    def flatten_mapping(self, node: yaml.MappingNode) -> None: ...
    def dispose(self) -> None: ...


class YamlSource:
    """A file of `key: value` lines, or the part of one that starts on `first_line` and is called `subject`."""

    def __init__(self, file: str, text: str, *, first_line: int = 1, subject: str | None = None) -> None:
        self.file = file
        self._place = _Place(file, first_line, subject)
        self._node, self.data = _load(self._place, text)

    def line(self, path: Path) -> int | None:
        """Return the line of the key at `path`, else of the nearest mapping around it."""
        node, line = self._node, None
        for part in path:
            key, node = _child(node, part)
            if key is None:
                break
            line = key.start_mark.line + self._place.first_line
        return line

    def key(self, path: Path) -> str | None:
        """Write `path` with dots: `agent.timeout_sec`."""
        return ".".join(names(path)) or None

    def table(self, name: str) -> str:
        """Write the name of a mapping."""
        return name


class _Place(NamedTuple):
    """Where the text stands."""

    file: str
    first_line: int
    subject: str | None

    def problem(self, mark: yaml.Mark | None, reason: str, fix: str | None = None, key: str | None = None) -> Problem:
        """Describe what is wrong at a mark."""
        if key is None and self.subject is not None:
            reason = f"{self.subject} {reason}"
        return Problem(self.file, None if mark is None else mark.line + self.first_line, key, reason, fix)


def _load(place: _Place, text: str) -> tuple[yaml.Node | None, Data]:
    loader: _Loader | None = None
    try:
        _check_depth(text)
        loader = cast("_Loader", SafeLoader(text))
        node = loader.get_single_node()
        if node is None:
            return None, {}
        if not isinstance(node, yaml.MappingNode):
            raise TaskError([place.problem(node.start_mark, "is not a mapping", "write key: value lines")])
        builder = _Builder(place, loader)
        data, _ = builder.build(node, 0)
        if builder.problems:
            raise TaskError(builder.problems)
        return node, cast("Data", data)
    except TaskError:
        raise
    except yaml.MarkedYAMLError as error:
        reason = f"is not valid YAML: {error.problem or error.context or 'syntax error'}"
        raise TaskError([place.problem(error.problem_mark or error.context_mark, reason)]) from None
    except RecursionError:
        raise TaskError([place.problem(None, "is nested too deeply")]) from None
    except Exception as error:  # PyYAML lets errors of many types out of its conversions, a bad date for one
        raise TaskError([place.problem(None, f"is not valid YAML: {str(error).splitlines()[0]}")]) from None
    finally:
        if loader is not None:
            loader.dispose()


def _check_depth(text: str) -> None:
    """Refuse deep nesting before libyaml composes it recursively and overflows the C stack."""
    if len(text) < 4096:
        return
    depth = 0
    for event in yaml.parse(text, Loader=SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise RecursionError


class _Builder:
    """Build plain data from nodes: keys stay text as written, duplicates are problems, aliases are counted."""

    def __init__(self, place: _Place, loader: _Loader) -> None:
        self.problems: list[Problem] = []
        self._place = place
        self._loader = loader
        self._built: dict[int, tuple[object, int]] = {}

    def build(self, node: yaml.Node, depth: int) -> tuple[object, int]:
        """Return the value of a node, and how many values it holds with its aliases followed."""
        if isinstance(node, yaml.ScalarNode):
            return (node.value if node.tag == _TEXT else self._loader.construct_object(node)), 1
        if depth > MAX_DEPTH:
            raise RecursionError
        if id(node) not in self._built:
            built = self._mapping(node, depth) if isinstance(node, yaml.MappingNode) else self._sequence(node, depth)
            if built[1] > MAX_VALUES:
                fix = "do not nest YAML aliases"
                raise TaskError([self._place.problem(node.start_mark, "expands to too many values", fix)])
            self._built[id(node)] = built
        return self._built[id(node)]

    def _mapping(self, node: yaml.MappingNode, depth: int) -> tuple[object, int]:
        _check_tag(node, "map")
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                fix = "write key: value"
                self.problems.append(self._place.problem(key.start_mark, "has a key that is not a plain word", fix))
            elif key.value in seen:
                fix = "keep one of them"
                self.problems.append(self._place.problem(key.start_mark, "is given twice", fix, key.value))
            else:
                seen.add(key.value)
        if "<<" in seen:
            self._loader.flatten_mapping(node)
        values = {str(key.value): self.build(value, depth + 1) for key, value in node.value}
        return {key: value for key, (value, _) in values.items()}, 1 + sum(size for _, size in values.values())

    def _sequence(self, node: yaml.Node, depth: int) -> tuple[object, int]:
        _check_tag(node, "seq")
        values = [self.build(item, depth + 1) for item in node.value]
        return [value for value, _ in values], 1 + sum(size for _, size in values)


def _check_tag(node: yaml.Node, kind: str) -> None:
    if node.tag != f"tag:yaml.org,2002:{kind}":
        raise yaml.constructor.ConstructorError(None, None, f"the tag {node.tag} has no meaning here", node.start_mark)


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return the node that names a member and the member itself."""
    if isinstance(node, yaml.MappingNode) and isinstance(part, str):
        return next(((key, value) for key, value in node.value if key.value == part), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None, None


_FENCE = re.compile(r"---[ \t]*\r?\n")
_END = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)


class FrontMatterSource(YamlSource):
    """The front matter and body of a `task.md` or `verifier.md`."""

    def __init__(self, file: str, text: str) -> None:
        header, self.body = split(file, text)
        super().__init__(file, header, first_line=2, subject="front matter")

    def table(self, name: str) -> str:
        """Write the name of a mapping: `agent`, and `sandbox` for the environment."""
        return {"environment": "sandbox", "solution": "oracle"}.get(name, name)


def split(file: str, text: str) -> tuple[str, str]:
    """Return front matter and body; the front matter starts on line 2."""
    opening = _FENCE.match(text)
    if opening is None:
        raise TaskError([Problem(file, 1, None, "has no front matter", "start it with a line ---")])
    closing = _END.search(text, opening.end())
    if closing is None:
        raise TaskError([Problem(file, 1, None, "has front matter that never ends", "end it with a line ---")])
    return text[opening.end() : closing.start()], text[closing.end() :].lstrip("\r\n")
