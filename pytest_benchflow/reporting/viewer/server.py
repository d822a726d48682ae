"""The server of `bf view`: read-only, on 127.0.0.1, and only for pages that were loaded from there.

A page of another site may make a browser ask this server by a name that the site owns: such requests carry that name in
their Host header, and are refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlsplit

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.reporting.html.page import live_page
from pytest_benchflow.reporting.viewer.viewed_job import ViewedJob, ViewedJobs

if TYPE_CHECKING:
    from pytest_benchflow.core.types import Json

DEFAULT_PORT = 8888
_ADDRESS = "127.0.0.1"
_CHECK_SEC = 0.5
_BEAT_SEC = 15.0
_REQUEST_SEC = 30
_MOST_FOLLOWERS = 64
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class ViewerServer(ThreadingHTTPServer):
    """Serve the jobs below a directory until `shutdown()`."""

    daemon_threads = True

    def __init__(self, directory: Path, port: int = DEFAULT_PORT) -> None:
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a directory", advice="name a job, or a folder of jobs")
        self.jobs = ViewedJobs(directory)
        self.n_followers = 0
        try:
            super().__init__((_ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "not a port"
            raise UsageError(
                f"port {port} cannot be used: {why}", advice="choose another with --port, or 0 for any"
            ) from None

    @property
    def url(self) -> str:
        """Where the first page is."""
        return f"http://{_ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What browsers may call this server."""
        return tuple(f"{name}:{self.server_port}" for name in (_ADDRESS, "localhost"))

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser that goes away in the middle of an answer is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: ViewerServer
    protocol_version = "HTTP/1.1"
    server_version = "benchflow"
    sys_version = ""
    timeout = _REQUEST_SEC

    def do_GET(self) -> None:
        """Answer with a page or its data."""
        self._answer()

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _answer(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"ask for 127.0.0.1", "text/plain")
            return
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        *folders, last = address.path.removeprefix("/").split("/")
        if folders == [] and self.server.jobs.single is None:
            self._answer_list(last, query)
            return
        job = self._job(folders)
        if job is None:
            self._send(HTTPStatus.NOT_FOUND, b"there is no such job", "text/plain")
        else:
            self._answer_job(job, last, query)

    def _job(self, folders: list[str]) -> ViewedJob | None:
        jobs = self.server.jobs
        if folders == []:
            return jobs.single
        return jobs.find(unquote(folders[1])) if len(folders) == 2 and folders[0] == "job" else None

    def _answer_list(self, name: str, query: dict[str, list[str]]) -> None:
        jobs = self.server.jobs
        if name == "":
            self._send_page("jobs")
        elif name == "overview.json":
            state = jobs.state()
            cards: list[Json] = [
                {**card, "href": f"job/{quote(str(card['name']), safe='')}/"}
                for card in jobs.cards()
                if isinstance(card, dict)
            ]
            self._send_json({"title": "jobs", "directory": str(jobs.directory), "jobs": cards, "state": state})
        elif name == "changes":
            self._follow(jobs.state, _first(query, "state"))
        else:
            self._send(HTTPStatus.NOT_FOUND, b"there is no such page", "text/plain")

    def _answer_job(self, job: ViewedJob, name: str, query: dict[str, list[str]]) -> None:
        if name == "":
            self._send_page(job.directory.name)
        elif name == "overview.json":
            self._send_json({**job.overview(), "up": None if self.server.jobs.single is job else "../../"})
        elif name == "rollout.json" and (data := job.rollout(_first(query, "id"))) is not None:
            self._send(HTTPStatus.OK, data, "application/json")
        elif name == "changes":
            self._follow(job.state, _first(query, "state"))
        else:
            self._send(HTTPStatus.NOT_FOUND, b"there is no such page", "text/plain")

    def _follow(self, state: Callable[[], str], seen: str) -> None:
        """Tell of every change since a state, until the browser goes away.

        What changes are files of other processes, which can only be looked at again and again.
        """
        if self.server.n_followers >= _MOST_FOLLOWERS:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"too many pages are open", "text/plain")
            return
        self.server.n_followers += 1
        try:
            self._begin(HTTPStatus.OK, "text/event-stream", None)
            beat = time.monotonic()
            self.wfile.write(b"retry: 2000\n\n")
            while True:
                now = state()
                if now != seen:
                    self.wfile.write(b"event: change\ndata: {}\n\n")
                elif time.monotonic() - beat > _BEAT_SEC:
                    self.wfile.write(b": still here\n\n")
                else:
                    time.sleep(_CHECK_SEC)
                    continue
                seen, beat = now, time.monotonic()
        except OSError:
            self.close_connection = True
        finally:
            self.server.n_followers -= 1

    def _send_page(self, title: str) -> None:
        self._send(HTTPStatus.OK, live_page(title).encode(), "text/html; charset=utf-8")

    def _send_json(self, data: Json) -> None:
        self._send(HTTPStatus.OK, json.dumps(data).encode(), "application/json")

    def _send(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        self._begin(status, kind, len(data))
        if self.command != "HEAD":
            self.wfile.write(data)

    def _begin(self, status: HTTPStatus, kind: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()


def _first(query: dict[str, list[str]], name: str) -> str:
    return query.get(name, [""])[0]


def serve(directory: Path, port: int, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `announce` is told the address once the server answers."""
    with ViewerServer(directory, port) as server:
        announce(server.url)
        try:
            server.serve_forever(poll_interval=0.5)
        except KeyboardInterrupt:
            return
