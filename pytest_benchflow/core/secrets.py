"""Keep secrets out of everything that is written: replaced as text goes by, and looked for once more at the end."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_SECRET_NAME = re.compile(r"(?:token|secret|key|password|passwd|credentials?|jwt|cookie)$", re.IGNORECASE)
SHORTEST_SECRET = 8


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of this name probably holds a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_values(env: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables that must not be written down."""
    return frozenset(value for name, value in env.items() if is_secret_name(name) and len(value) >= SHORTEST_SECRET)


#: Shorter values cannot be told from ordinary text.
_SHORTEST = 6
_MASK = "[secret]"
_BLOCK = 1 << 20


class Redactor:
    """Knows the secret values of one rollout."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        self._spellings: tuple[str, ...] = ()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Learn more values; longer ones are looked for first, since one may hold another."""
        known = {*self._secrets, *(value for value in secrets if len(value) >= _SHORTEST)}
        self._secrets = tuple(sorted(known, key=lambda value: (-len(value), value)))
        as_json = (json.dumps(value, ensure_ascii=ascii)[1:-1] for value in self._secrets for ascii in (False, True))
        self._spellings = tuple(dict.fromkeys((*self._secrets, *as_json)))

    def text(self, text: str) -> str:
        """Return the text with every secret masked, also where it is spelled as JSON would."""
        for spelling in self._spellings:
            if spelling in text:
                text = text.replace(spelling, _MASK)
        return text

    @property
    def needles(self) -> tuple[bytes, ...]:
        """What to look for in bytes, the longer of two that overlap first."""
        return tuple(spelling.encode("utf-8", "surrogateescape") for spelling in self._spellings)

    def scrub(self, directory: Path) -> list[str]:
        """Mask secrets in every file below a directory, names included; return the files that held one."""
        if not self._secrets:
            return []
        affected = []
        for root, folders, files in os.walk(directory, topdown=False):
            for name in files:
                path = Path(root, name)
                if self._scrub_file(path):
                    affected.append(path.relative_to(directory).as_posix())
            for name in (*files, *folders):
                if (masked := self.text(name)) != name:
                    os.replace(Path(root, name), Path(root, masked))
                    affected.append(Path(root, masked).relative_to(directory).as_posix())
        return sorted(affected)

    def _scrub_file(self, path: Path) -> bool:
        needles = self.needles
        with suppress(OSError):
            if not stat.S_ISREG(path.lstat().st_mode):
                return False
            places = _places(path, needles)
            if places:
                _overwrite(path, places)
            return bool(places)
        return False


class StreamRedactor:
    """Masks secrets in bytes that come in pieces; a secret that is cut in two is found too."""

    def __init__(self, redactor: Redactor) -> None:
        self._needles = redactor.needles
        self._overlap = max(map(len, self._needles), default=1) - 1
        self._pending = b""

    def feed(self, data: bytes) -> bytes:
        """Take a piece; return what can be written of all that came so far."""
        data = self._pending + data
        for needle in self._needles:
            data = data.replace(needle, _MASK.encode())
        end = self._safe_end(data)
        self._pending = data[end:]
        return data[:end]

    def flush(self) -> bytes:
        """Return what was held back."""
        rest, self._pending = self._pending, b""
        return rest

    def _safe_end(self, data: bytes) -> int:
        """Return up to where no secret can begin that is not yet complete."""
        for start in range(max(0, len(data) - self._overlap), len(data)):
            if any(needle.startswith(data[start:]) for needle in self._needles):
                return start
        return len(data)


def _places(path: Path, needles: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return offset and length of every needle, reading in blocks that overlap by the longest of them."""
    overlap = max(map(len, needles)) - 1
    places: set[tuple[int, int]] = set()
    with path.open("rb") as file:
        start, rest = 0, b""
        while block := file.read(_BLOCK):
            window = rest + block
            base = start - len(rest)
            for needle in needles:
                at = window.find(needle)
                while at >= 0:
                    places.add((base + at, len(needle)))
                    at = window.find(needle, at + 1)
            start += len(block)
            rest = window[-overlap:] if overlap else b""
    return sorted(places)


def _overwrite(path: Path, places: list[tuple[int, int]]) -> None:
    """Replace bytes by as many stars: sizes and offsets of binary files stay what they were."""
    mode = path.stat().st_mode
    os.chmod(path, mode | stat.S_IWUSR | stat.S_IRUSR)
    with path.open("r+b") as file:
        for offset, length in places:
            file.seek(offset)
            file.write(b"*" * length)
    os.chmod(path, stat.S_IMODE(mode))
