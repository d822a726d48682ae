"""Read the YAML front matter of a Markdown file safely, with the line of every key."""

from __future__ import annotations

import re
from typing import Protocol, cast

import yaml

from .problems import Problem, TaskError
from .sources import Data, Path, names

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

MAX_DEPTH = 50
MAX_VALUES = 100_000
_FENCE = re.compile(r"---[ \t]*\r?\n")
_END = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)


class _Loader(Protocol):
    def get_single_node(self) -> yaml.Node | None: ...
    def construct_document(self, node: yaml.Node) -> object: ...
    def dispose(self) -> None: ...


class FrontMatterSource:
    """The front matter and body of a `task.md` or `verifier.md`."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        header, self.body = split(file, text)
        self._node, self.data = _load(file, header)

    def line(self, path: Path) -> int | None:
        """Return the line of the key at `path`, else of the nearest mapping around it."""
        node, line = self._node, None
        for part in path:
            key, node = _child(node, part)
            if key is None:
                break
            line = key.start_mark.line + 2
        return line

    def key(self, path: Path) -> str | None:
        """Write `path` with dots: `agent.timeout_sec`."""
        return ".".join(names(path)) or None

    def table(self, name: str) -> str:
        """Write the name of a mapping: `agent`, and `sandbox` for the environment."""
        return {"environment": "sandbox", "solution": "oracle"}.get(name, name)


def has_front_matter(text: str) -> bool:
    """Say whether a text opens with a front matter fence."""
    return _FENCE.match(text) is not None


def split(file: str, text: str) -> tuple[str, str]:
    """Return front matter and body; the front matter starts on line 2."""
    opening = _FENCE.match(text)
    if opening is None:
        raise TaskError([Problem(file, 1, None, "has no front matter", "start it with a line ---")])
    closing = _END.search(text, opening.end())
    if closing is None:
        raise TaskError([Problem(file, 1, None, "has front matter that never ends", "end it with a line ---")])
    return text[opening.end() : closing.start()], text[closing.end() :].lstrip("\r\n")


def _load(file: str, header: str) -> tuple[yaml.Node | None, Data]:
    loader: _Loader | None = None
    try:
        _check_depth(header)
        loader = cast("_Loader", SafeLoader(header))
        node = loader.get_single_node()
        if node is None:
            return None, {}
        if not isinstance(node, yaml.MappingNode):
            raise TaskError([_problem(file, node.start_mark, "is not a mapping", "write key: value lines")])
        problems: list[Problem] = []
        _inspect(file, node, {}, problems)
        if problems:
            raise TaskError(problems)
        return node, cast("Data", loader.construct_document(node))
    except TaskError:
        raise
    except yaml.MarkedYAMLError as error:
        reason = f"is not valid YAML: {error.problem or error.context or 'syntax error'}"
        raise TaskError([_problem(file, error.problem_mark or error.context_mark, reason)]) from None
    except RecursionError:
        raise TaskError([_problem(file, None, "is nested too deeply")]) from None
    except Exception as error:  # PyYAML lets errors of many types out of its conversions, a bad date for one
        raise TaskError([_problem(file, None, f"is not valid YAML: {str(error).splitlines()[0]}")]) from None
    finally:
        if loader is not None:
            loader.dispose()


def _check_depth(header: str) -> None:
    """Refuse deep nesting before libyaml composes it recursively and overflows the C stack."""
    if len(header) < 4096:
        return
    depth = 0
    for event in yaml.parse(header, Loader=SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise RecursionError


def _inspect(file: str, node: yaml.Node, sizes: dict[int, int], problems: list[Problem], depth: int = 0) -> int:
    """Report duplicate and unusable keys; return how many values the node holds with its aliases followed."""
    if depth > MAX_DEPTH:
        raise RecursionError
    if id(node) in sizes:
        return sizes[id(node)]
    size = 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problems.append(_problem(file, key.start_mark, "has a key that is no plain word", "write key: value"))
            elif key.value in seen:
                problems.append(_problem(file, key.start_mark, "is given twice", "keep one of them", key.value))
            else:
                seen.add(key.value)
            size += _inspect(file, value, sizes, problems, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        size += sum(_inspect(file, item, sizes, problems, depth + 1) for item in node.value)
    if size > MAX_VALUES:
        raise TaskError([_problem(file, node.start_mark, "expands to too many values", "do not nest YAML aliases")])
    sizes[id(node)] = size
    return size


def _problem(file: str, mark: yaml.Mark | None, reason: str, fix: str | None = None, key: str | None = None) -> Problem:
    if key is None:
        reason = f"front matter {reason}"
    return Problem(file, None if mark is None else mark.line + 2, key, reason, fix)


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return the node that names a member and the member itself."""
    if isinstance(node, yaml.MappingNode) and isinstance(part, str):
        return next(((key, value) for key, value in node.value if key.value == part), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None, None
