"""Read the files in which an agent tells of its calls of the model what it does not say over the protocol."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.agents.acp.types import Findings
from pytest_benchflow.core.errors import SandboxError

if TYPE_CHECKING:
    from pytest_benchflow.agents.base import AgentContext
    from pytest_benchflow.agents.manifest import RecordFile

_TIMEOUT_SEC = 10.0
_MOST_LINES = 200
_LONGEST_LINE = 600
_Kind = Literal["models", "errors"]


class Records:
    """The records of one session: what was there when it began is not its own."""

    def __init__(self, context: AgentContext, records: Sequence[RecordFile]) -> None:
        self._context = context
        self._patterns = [*_patterns(records)]
        self._counts: list[Counter[str]] | None = None

    async def read(self) -> Findings:
        """Return what is new since the last time; nothing the first time, or where the files cannot be read."""
        counts = None
        with contextlib.suppress(SandboxError, TimeoutError):
            counts = await self._read()
        before, self._counts = self._counts, counts or self._counts
        if counts is None or before is None:
            return Findings()
        new: dict[_Kind, list[str]] = {"models": [], "errors": []}
        for (kind, pattern, _), now, then in zip(self._patterns, counts, before, strict=True):
            new[kind] += [_first_group(pattern, match) for match in (now - then).elements()]
        return Findings(tuple(dict.fromkeys(new["models"])), tuple(new["errors"]))

    async def _read(self) -> list[Counter[str]]:
        """Let grep count matches in the sandbox: the files may be large, and few of their words matter."""
        script = "\n".join(_search(number, pattern, path) for number, (_, pattern, path) in enumerate(self._patterns))
        context = self._context
        done = await context.sandbox.exec(script, user=context.user, cwd=context.home, timeout_sec=_TIMEOUT_SEC)
        counts: list[Counter[str]] = [Counter() for _ in self._patterns]
        for line in done.stdout.splitlines():
            number, _, rest = line.partition(" ")
            count, _, match = rest.strip().partition(" ")
            if number.isdigit() and int(number) < len(counts) and count.isdigit():
                counts[int(number)][match] += min(int(count), _MOST_LINES)
        return counts


def _patterns(records: Sequence[RecordFile]) -> Iterator[tuple[_Kind, str, str]]:
    for record in records:
        if record.models is not None:
            yield "models", record.models, record.path
        if record.errors is not None:
            yield "errors", record.errors, record.path


def _search(number: int, pattern: str, path: str) -> str:
    """Return a command that prints every match with its number and how often there is one like it."""
    files = "*".join(shlex.quote(part) if part else "" for part in path.split("*"))
    counted = f"cut -c 1-{_LONGEST_LINE} | sort | uniq -c | tail -n {_MOST_LINES} | sed 's/^/{number} /'"
    return f"LC_ALL=C grep -ahoE -e {shlex.quote(pattern)} -- {files} 2>/dev/null | {counted}"


def _first_group(pattern: str, match: str) -> str:
    found = re.search(pattern, match)
    return found[1] if found is not None and found.re.groups and found[1] else match
