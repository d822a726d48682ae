"""Turn an intent into a call of a tool that the agent really offers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from model_server.conversation import Tool, mapping
from model_server.replies import Call, Run, Write

SHELL_TOOL = re.compile(r"bash|shell|terminal|exec|command", re.IGNORECASE)
SHELL_NAMES = (
    "bash",
    "shell",
    "exec_command",
    "shell_command",
    "run_shell_command",
    "execute_bash",
    "terminal",
    "exec",
    "run_command",
)
WRITE_NAMES = ("write_file", "write", "create_file", "create", "file_editor", "str_replace_editor", "editor")
COMMAND_KEYS = ("command", "cmd", "commands", "script", "code")
PATH_KEYS = ("file_path", "filePath", "path", "absolute_path", "filename")
CONTENT_KEYS = ("content", "contents", "file_text", "text", "new_text")
PLAIN: Mapping[str, object] = {"boolean": False, "integer": 60, "number": 60, "array": [], "object": {}}


class ToolCall(NamedTuple):
    """A call as the model makes it."""

    tool: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NoTool(Exception):
    """The agent offers nothing that could do it."""

    intent: str


def tool_call(intent: Run | Write | Call, tools: Sequence[Tool]) -> ToolCall:
    """Return the call that does what is meant."""
    match intent:
        case Call(name, arguments):
            return ToolCall(name, arguments)
        case Write(path, content):
            writer = _named(tools, WRITE_NAMES)
            if writer is not None:
                return ToolCall(writer.name, _write_arguments(writer, path, content))
            directory = f"mkdir -p {shlex.quote(path.rpartition('/')[0] or '.')}"
            return tool_call(Run(f"{directory} && printf %s {shlex.quote(content)} > {shlex.quote(path)}"), tools)
        case Run(command):
            shell = _named(tools, SHELL_NAMES) or next((tool for tool in tools if SHELL_TOOL.search(tool.name)), None)
            if shell is None:
                raise NoTool(command)
            return ToolCall(shell.name, _shell_arguments(shell, command))


def filler(schema: Mapping[str, object]) -> object:
    """Return a value that a JSON schema allows, the smallest there is."""
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return "LOW" if "LOW" in options else options[0]
    kind = _kind(schema)
    if kind == "object":
        return {key: filler(mapping(part)) for key, part in mapping(schema.get("properties")).items()}
    return PLAIN.get(kind, "scripted")


def _named(tools: Sequence[Tool], names: Sequence[str]) -> Tool | None:
    """Return the first tool with one of these names, in the order of the names, that takes named arguments."""
    found = {tool.name.lower(): tool for tool in tools if tool.schema is not None}
    return next((found[name] for name in names if name in found), None)


def _write_arguments(tool: Tool, path: str, content: str) -> dict[str, object]:
    known = mapping(mapping(tool.schema).get("properties"))
    given: dict[str, object] = {_key(known, PATH_KEYS): path, _key(known, CONTENT_KEYS): content}
    if "command" in known:
        given["command"] = "create"
    return _with_required(tool, given)


def _shell_arguments(tool: Tool, command: str) -> dict[str, object]:
    known = mapping(mapping(tool.schema).get("properties"))
    key = _key(known, COMMAND_KEYS)
    argument = mapping(known.get(key))
    value: object = command
    if _kind(argument) == "array":
        value = ["bash", "-lc", command]
        if mapping(argument.get("items")).get("type") == "object":
            value = [{"command": command}]
        elif key == "commands":
            value = [command]
    return _with_required(tool, {key: value})


def _with_required(tool: Tool, given: dict[str, object]) -> dict[str, object]:
    schema = mapping(tool.schema)
    known, required = mapping(schema.get("properties")), schema.get("required")
    missing = [key for key in required if key not in given] if isinstance(required, list) else []
    return {**given, **{key: filler(mapping(known.get(key))) for key in missing}}


def _key(known: Mapping[str, object], names: Sequence[str]) -> str:
    return next((name for name in names if name in known), names[0])


def _kind(schema: Mapping[str, object]) -> str:
    kind = schema.get("type")
    alternatives = [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
    kinds = _list(kind) or ([kind] if kind else [mapping(option).get("type") for option in alternatives])
    return next((str(one).lower() for one in kinds if one not in (None, "null")), "string")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
