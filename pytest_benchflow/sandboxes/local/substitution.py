"""Words and variables as Dockerfiles write them: quotes, escapes, `$X`, `${X}`, `${X:-default}`, `${X:+value}`."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")


class SubstitutionError(ValueError):
    """A word that cannot be read."""


def split_words(text: str, escape: str = "\\") -> list[str]:
    """Split at unquoted blanks, leaving quotes and escapes in place."""
    words: list[str] = []
    current, quote, i = "", "", 0
    while i < len(text):
        char = text[i]
        if char == escape and quote != "'" and i + 1 < len(text):
            current += text[i : i + 2]
            i += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char.isspace():
            if current:
                words.append(current)
            current = ""
            i += 1
            continue
        current += char
        i += 1
    if quote:
        raise SubstitutionError(f"a {quote} is never closed")
    return [*words, current] if current else words


def expand(text: str, variables: Mapping[str, str], escape: str = "\\") -> str:
    """Replace variables and take quotes and escapes away, as a shell would."""
    return _Expander(text, variables, escape).run()


def expand_text(text: str, variables: Mapping[str, str], escape: str = "\\") -> str:
    """Replace variables as in a here-document, where quotes are ordinary characters."""
    return _Expander(text, variables, escape, quotes="").run()


class _Expander:
    def __init__(
        self, text: str, variables: Mapping[str, str], escape: str, depth: int = 0, quotes: str = "'\""
    ) -> None:
        if depth > 50:
            raise SubstitutionError("variables are nested too deeply")
        self._text = text
        self._variables = variables
        self._escape = escape
        self._depth = depth
        self._quotes = quotes
        self._i = 0

    def run(self) -> str:
        out: list[str] = []
        quote = ""
        while self._i < len(self._text):
            char = self._text[self._i]
            if char == self._escape and quote != "'":
                out.append(self._escaped(quote))
            elif char == "$" and quote != "'":
                out.append(self._variable())
            elif char in self._quotes and quote in ("", char):
                quote = "" if quote else char
                self._i += 1
            else:
                out.append(char)
                self._i += 1
        if quote:
            raise SubstitutionError(f"a {quote} is never closed")
        return "".join(out)

    def _escaped(self, quote: str) -> str:
        following = self._text[self._i + 1 : self._i + 2]
        self._i += 2
        # Inside double quotes and here-documents only these lose their escape.
        plain = ("$", self._escape) if not self._quotes else ('"', "$", self._escape) if quote else (following,)
        if following not in plain:
            return self._escape + following
        return following

    def _variable(self) -> str:
        self._i += 1
        if self._text[self._i : self._i + 1] == "{":
            return self._braced()
        match = _NAME.match(self._text, self._i)
        if match is None:
            return "$"
        self._i = match.end()
        return self._variables.get(match[0], "")

    def _braced(self) -> str:
        end = self._closing_brace()
        body = self._text[self._i + 1 : end]
        self._i = end + 1
        match = _NAME.match(body)
        if match is None:
            raise SubstitutionError(f"${{{body}}} names no variable")
        value, rest = self._variables.get(match[0]), body[match.end() :]
        if not rest:
            return value or ""
        operator = rest[: 2 if rest[0] == ":" else 1]
        word = rest[len(operator) :]
        present = bool(value) if operator.startswith(":") else value is not None
        if operator in (":-", "-"):
            return (value or "") if present else self._nested(word)
        if operator in (":+", "+"):
            return self._nested(word) if present else ""
        raise SubstitutionError(f"${{{body}}} is not supported; use ${{NAME:-default}} or ${{NAME:+value}}")

    def _nested(self, word: str) -> str:
        return _Expander(word, self._variables, self._escape, self._depth + 1).run()

    def _closing_brace(self) -> int:
        depth = 0
        for index in range(self._i, len(self._text)):
            if self._text[index] == "{":
                depth += 1
            elif self._text[index] == "}":
                depth -= 1
                if depth == 0:
                    return index
        raise SubstitutionError("a ${ is never closed")
