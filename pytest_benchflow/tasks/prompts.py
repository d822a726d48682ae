"""The texts an agent reads: instruction files, and the sections of a `task.md` body."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_benchflow.configfile import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping


_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
_SECTION = re.compile(r"##[ \t]+(prompt|user-persona|(?:role|scene):[ \t]*(\S.*?))[ \t]*#*[ \t]*", re.IGNORECASE)
_CODE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SIDECAR = re.compile(r"(?:(role|scene)\.(.+)|user-persona)\.md")


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a native document says to whom."""

    base: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    scenes: Mapping[str, str] = field(default_factory=dict)
    user_persona: str | None = None


def without_canary(text: str) -> str:
    """Remove leading canary comment lines, then leading blank lines; line ends become newlines, all as in Harbor."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    start = 0
    while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])


def read_prompts(body: str, sidecars: str) -> Prompts:
    """Return the prompts of a body; files in the `sidecars` directory win over its sections."""
    sections = split_sections(without_canary(body))
    for name in _markdown_in(sidecars):
        if match := _SIDECAR.fullmatch(name):
            title = f"{match[1]}:{match[2]}" if match[1] else "user-persona"
            sections[title] = read_text(os.path.join(sidecars, name)).strip()
    return Prompts(
        base=sections.get("prompt", ""),
        roles={title[5:]: text for title, text in sections.items() if title.startswith("role:")},
        scenes={title[6:]: text for title, text in sections.items() if title.startswith("scene:")},
        user_persona=sections.get("user-persona"),
    )


def split_sections(body: str) -> dict[str, str]:
    """Map `prompt`, `role:x`, `scene:x`, `user-persona` to their text; without them all is prompt."""
    parts: dict[str, list[str]] = {"prompt": []}
    current, fence = "prompt", ""
    for line in body.splitlines(keepends=True):
        if code := _CODE.match(line):
            fence = "" if fence and code[1].startswith(fence) else fence or code[1]
        heading = None if fence else _SECTION.fullmatch(line.rstrip("\r\n"))
        if heading is None:
            parts[current].append(line)
            continue
        kind = heading[1].split(":")[0].lower()
        current = f"{kind}:{heading[2]}" if heading[2] else kind
        parts.setdefault(current, [])
    return {title: "".join(lines).strip() for title, lines in parts.items()}


def _markdown_in(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(".md"))
    except OSError:
        return []
