"""Read what a builder prints, Docker's or Podman's: the step it is at, and why it failed."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping

from .context import BuildContext

_TAIL_LINES = 30
_STEP = re.compile(r"Step (\d+)/\d+ : (.*)")
#: Podman counts within each stage, and names the stage where there are several.
_PODMAN_STEP = re.compile(r"(?:\[(\d+)/\d+\] )?STEP (\d+)/\d+: (.*)")
_STATUS = re.compile(r"(?:returned a non-zero code:|while running runtime: exit status) (\d+)$")
_BUILDKIT_LINE = re.compile(r"^Dockerfile:(\d+)$|dockerfile parse error (?:on )?line (\d+)")
BUILDKIT_CHATTER = re.compile(r"#\d+ (sha256:|DONE |CACHED$|\[(?:\S+ )?internal\]|copy /context|transferring )")
_BUILDKIT_AROUND = re.compile(r"^(ERROR: )?(failed to solve[^:]*: )?(failed to create LLB definition: )?")
_PARSE_LINE = re.compile(r"^dockerfile parse error (?:on )?line (\d+): ", re.IGNORECASE)
_NOISE = re.compile(r"\x1b\[[0-9;]*m")
_CHATTER = (" --->", "--> ", "Removing intermediate container", "Removed intermediate container")
#: What Podman puts around a reason: the step once more, and how its parser sees it.
_PODMAN_AROUND = re.compile(
    r'^building at STEP ".*?": (?:Build error: )?|&imagebuilder\.Step\{.*|\(UNHANDLED LOGLEVEL\).*'
)
_PODMAN_NOISE = "(UNHANDLED LOGLEVEL)"


class BuildLog:
    """Knows the line of the Dockerfile that a build is at and the end of what it printed there."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._line = 1
        self._step = ""

    def read(self, line: bytes) -> str | None:
        """Take a line of the engine's answer and return why the build failed, if that is what it says."""
        message: Mapping[str, object] = json.loads(line) if line.strip() else {}
        for text in str(message.get("stream", "")).splitlines():
            self._read_text(_NOISE.sub("", text))
        error = str(message.get("error") or "").strip()
        if match := _STATUS.search(error):
            return f"exit status {match[1]}"
        return self._located(_PODMAN_AROUND.sub("", error).strip()) if error else None

    def read_plain(self, line: str) -> None:
        """Take a line that BuildKit prints."""
        if match := _BUILDKIT_LINE.search(line):
            self._line = int(match[1] or match[2])
        if line.strip() and not BUILDKIT_CHATTER.match(line):
            self._tail.append(line)

    def buildkit_error(self) -> str | None:
        """Return the last reason that BuildKit gave, and take it out of the output."""
        for line in reversed(self._tail):
            if line.startswith(("ERROR: ", "failed to ")):
                self._tail.remove(line)
                return _BUILDKIT_AROUND.sub("", line)
        return None

    def explain(self, reason: str) -> str:
        """Return where the build failed, why, and the end of its output."""
        reason = self._located(reason)
        if self._step.upper().startswith("FROM ") and "took longer" not in reason:
            reason = f"the image cannot be pulled: {reason}"
        where = f"{self._context.name}:{self._line}"
        first = f"{where}: {self._step}: {reason}" if self._step else f"{where}: {reason}"
        return "\n    ".join([first, *self._tail])

    def _read_text(self, text: str) -> None:
        if match := _STEP.match(text):
            self._at(self._context.line_of(int(match[1])), match[2])
        elif match := _PODMAN_STEP.match(text):
            self._at(self._context.line_of(int(match[2]), stage=int(match[1] or 1)), match[3])
        elif text.strip() and not text.startswith(_CHATTER) and _PODMAN_NOISE not in text:
            self._tail.append(text)

    def _at(self, line: int, step: str) -> None:
        self._line, self._step = line, step
        self._tail.clear()

    def _located(self, reason: str) -> str:
        """Take the line out of a parser's complaint, which comes before any step."""
        if match := _PARSE_LINE.match(reason):
            self._line = int(match[1])
        return _PARSE_LINE.sub("", reason)
