"""Put data and the app into one file that needs nothing else: no network, no server, nothing beside it.

Everything is inside as compressed text that the page unpacks piece by piece when somebody looks at it, so a report of
a thousand trajectories opens at once. Of what agents wrote nothing becomes markup: the page makes text nodes of it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_benchflow.reporting.html.page_data import MOST_BYTES, overview_of, rollout_json

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json
    from pytest_benchflow.reporting.report import Entry, Group, Report

#: Rollouts are packed together up to this size: what they have in common is kept once, and a page unpacks it quickly.
_PACK_BYTES = 768_000
#: Trajectories of all rollouts together, before compression, and what each may have however many there are.
_ALL_BYTES, _LEAST_BYTES = 1 << 30, 256_000
_LEVEL = 6
_WORKERS = 2
_STATIC_ROWS = 200
#: Parts of the one script of the page, in this order.
_SCRIPTS = (
    "dom", "data", "charts", "overview", "table", "prose", "diff", "events", "rollout", "side", "jobs", "app"
)  # fmt: skip


def write_html(report: Report, path: Path, *, title: str | None = None) -> None:
    """Write the report as one page, atomically."""
    title = title or (Path(report.job_dir).name if report.job_dir else "benchmark report")
    write_page(report, overview_of(report, title), path)


def write_page(report: Report, overview: dict[str, Json], path: Path) -> None:
    """Write the page of an overview with the rollouts of a report, atomically."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            _write(file, report, overview)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def live_page(title: str) -> str:
    """Return the page without data, for a server that gives it the data piece by piece."""
    before, after = _shell(title, "", connect="'self'")
    return before + after


def _write(file: IO[str], report: Report, overview: dict[str, Json]) -> None:
    before, after = _shell(str(overview["title"]), _static(report), connect="'none'")
    file.write(before)
    rows = overview["rollouts"]
    assert isinstance(rows, list)
    with ThreadPoolExecutor(_WORKERS, "benchflow-html") as pool:
        for number, blob in enumerate(_compressed(pool, _packs(report.rollouts, rows))):
            file.write(_script(f"bf-blob-{number}", blob))
    file.write(_script("bf-overview", _compress(json.dumps(overview).encode())))
    file.write(after)


def _packs(entries: Sequence[Entry], rows: list[Json]) -> Iterator[list[bytes]]:
    """Yield rollouts in packs, and note in its row where each is."""
    limit = min(MOST_BYTES, max(_LEAST_BYTES, _ALL_BYTES // max(1, len(entries))))
    pack: list[bytes] = []
    number, size = 0, 0
    for entry, row in zip(entries, rows, strict=True):
        data = rollout_json(entry.result, limit)
        if pack and size + len(data) > _PACK_BYTES:
            yield pack
            pack, size, number = [], 0, number + 1
        assert isinstance(row, dict)
        row |= {"blob": number, "place": len(pack)}
        pack.append(data)
        size += len(data)
    if pack:
        yield pack


def _compressed(pool: ThreadPoolExecutor, packs: Iterable[list[bytes]]) -> Iterator[bytes]:
    """Compress packs beside each other, in order, a few ahead of whoever takes them."""
    waiting: deque[Future[bytes]] = deque()
    for pack in packs:
        waiting.append(pool.submit(_compress, b"[" + b",".join(pack) + b"]"))
        if len(waiting) > 2 * _WORKERS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _compress(data: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(compressor.compress(data) + compressor.flush())


def _script(name: str, data: bytes) -> str:
    return f'<script type="application/octet-stream" id="{name}">{data.decode("ascii")}</script>\n'


def _shell(title: str, static: str, *, connect: str) -> tuple[str, str]:
    """Return what comes before the data and what comes after it."""
    style, script = _asset("style.css"), "".join(_asset(f"{name}.js") for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    before, _, after = _asset("page.html").partition("{{data}}\n")
    for name, value in {"csp": policy, "title": html.escape(title), "style": style, "static": static}.items():
        before = before.replace("{{" + name + "}}", value)
    return before, after.replace("{{script}}", script)


@cache
def _asset(name: str) -> str:
    return (files("pytest_benchflow.reporting.html") / "assets" / name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _static(report: Report) -> str:
    """Return what is shown where scripts do not run: CI servers often serve artifacts like that."""
    groups = "".join(map(_group_row, report.summary))
    worst = [entry for entry in report.rollouts if entry.status in ("failed", "error")]
    rows = "".join(map(_entry_row, worst[:_STATIC_ROWS]))
    more = f"<p>{len(worst) - _STATIC_ROWS} more</p>" if len(worst) > _STATIC_ROWS else ""
    head = "<tr><th>Agent</th><th>Passed</th><th>Failed</th><th>Errors</th><th>Reward</th></tr>"
    return (
        "<h1>Benchmark report</h1><p>Trajectories and filters need JavaScript.</p>"
        f"<table>{head}{groups}</table><h2>Failed rollouts</h2><table>{rows}</table>{more}"
    )


def _group_row(group: Group) -> str:
    name = "/".join(part for part in (group.agent, group.model, group.scene) if part)
    reward = "–" if group.mean_reward is None else f"{group.mean_reward:.2f}"
    return _cells(name, str(group.passed), str(group.failed), str(group.errors), reward)


def _entry_row(entry: Entry) -> str:
    error = entry.result.error
    why = error.message if error is not None else f"reward {entry.result.reward}"
    return _cells(entry.status, entry.id, why[:300])


def _cells(*texts: str) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in texts) + "</tr>"
