"""Read the YAML front matter of a Markdown file."""

from __future__ import annotations

import re

from .problems import Problem, TaskError
from .yaml_source import YamlSource

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
