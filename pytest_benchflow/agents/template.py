"""Fill `{name}` in what manifests say, and write the result so that no value can break out of its place.

`{name}` is the value; `{name:+text}` is the text if there is a value, and `{name:-text}` the text if there is none.
What still lacks a value is left out: an entry of a table, an item of a list, a variable, an argument.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from pytest_benchflow.core.errors import UsageError

Values = Mapping[str, str | None]
FileFormat = Literal["json", "toml", "yaml", "text"]

_PLACEHOLDER = re.compile(r"\{([a-z_]+)(?::([+-])([^{}]*))?\}")
#: What JSON leaves as it is and TOML or YAML would not take.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class _Absent(Exception):
    """A placeholder has no value."""


def names_in(content: object) -> Iterator[str]:
    """Yield the names of all placeholders in a text, or anywhere in a tree."""
    if isinstance(content, str):
        yield from (match[1] for match in _PLACEHOLDER.finditer(content))
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from names_in(key)
            yield from names_in(value)
    elif isinstance(content, list | tuple):
        for item in content:
            yield from names_in(item)


def fill(template: str, values: Values) -> str | None:
    """Return the text with its values; None if one is missing."""

    def value(match: re.Match[str]) -> str:
        text, sign, other = values.get(match[1]), match[2], match[3]
        if sign == "+":
            text = other if text else None
        elif sign == "-":
            text = text or other
        if text is None:
            raise _Absent
        return text

    try:
        return _PLACEHOLDER.sub(value, template)
    except _Absent:
        return None


def fill_env(templates: Mapping[str, str], values: Values) -> dict[str, str]:
    """Return variables with their values, without those that lack one."""
    filled = {name: fill(template, values) for name, template in templates.items()}
    return {name: value for name, value in filled.items() if value is not None}


def fill_argv(templates: tuple[str, ...], values: Values) -> list[str]:
    """Return arguments with their values, without those that lack one."""
    return [value for template in templates if (value := fill(template, values)) is not None]


def fill_tree(content: object, values: Values) -> object:
    """Return a tree of tables and lists with its values; None if nothing is left of it."""
    if isinstance(content, str):
        return fill(content, values)
    if isinstance(content, Mapping):
        filled = {fill(key, values): fill_tree(value, values) for key, value in content.items()}
        entries = {key: value for key, value in filled.items() if key is not None and value is not None}
        return entries if entries or not content else None
    if isinstance(content, list | tuple):
        items = [value for item in content if (value := fill_tree(item, values)) is not None]
        return items if items or not content else None
    return content


def render(content: object, form: FileFormat) -> bytes:
    """Write a filled tree as a file; any text is fit to be a value in it."""
    try:
        return (_write(content, form).rstrip("\n") + "\n").encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            "a value for a file of the agent is not valid text", advice="look for stray bytes in it"
        ) from None


def _write(content: object, form: FileFormat) -> str:
    if form == "text":
        return str(content)
    if form == "toml":
        assert isinstance(content, dict)
        return "\n".join(f"{_quoted(key)} = {_toml(value)}" for key, value in content.items())
    return _UNSAFE.sub(_escape, json.dumps(content, indent=2, ensure_ascii=False))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return _UNSAFE.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
