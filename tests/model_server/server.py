"""The server: one loopback port, a thread per connection, everything recorded."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Collection, Sequence
from http.server import ThreadingHTTPServer
from re import Pattern
from types import TracebackType

from model_server.handler import Handler
from model_server.listing import models_listing
from model_server.replies import Reply
from model_server.request import Request
from model_server.scripts import Answerer, Player, Script
from model_server.wire import Json, Usage

DEFAULT_MODELS = ("scripted-model", "scripted-model-2")


class ModelServer:
    """A scripted model provider; start it with `with` or `start()`.

    `models` are the ids it knows: it lists them, and any other is "not found" if it is `strict`. `keys` are the API
    keys it takes; None takes any. A prompt without a script is answered with "Done.", unless it brings its own script
    (`model_server.directives`).
    """

    def __init__(
        self,
        scripts: Sequence[Script] = (),
        *,
        models: Sequence[str] = DEFAULT_MODELS,
        strict: bool = False,
        keys: Collection[str] | None = None,
        usage: Usage | None = None,
        port: int = 0,
    ) -> None:
        self.scripts = [*scripts]
        self.models = models
        self.strict = strict
        self.keys = keys
        self.usage = usage or Usage()
        self.player = Player()
        self.requests: list[Request] = []
        """Everything that came in, oldest first."""
        self.closing = threading.Event()
        self._port = port
        self._http: _Http | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end; OpenAI's clients want `/v1` behind it."""
        if self._http is None:
            raise RuntimeError("the model server is not running; use it in a with statement")
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def calls(self) -> list[Request]:
        """The requests in which an agent was at work, oldest first."""
        return [request for request in [*self.requests] if request.is_work]

    def script(
        self,
        prompt: str | Pattern[str],
        *replies: Reply | Answerer,
        key: str | None = None,
        model: str | None = None,
        seen: str | None = None,
        unseen: str | None = None,
    ) -> Script:
        """Add a script for prompts that contain a text; of several that fit, the one added first plays."""
        added = Script(replies, prompt, key=key, model=model, seen=seen, unseen=unseen)
        self.scripts.append(added)
        return added

    def prompted(self, text: str) -> list[Request]:
        """Return the requests at work on a prompt that holds a text."""
        return [request for request in self.calls if request.prompt and text in request.prompt]

    def record(self, request: Request) -> None:
        """Remember a request; subclasses may do more with it."""
        self.requests.append(request)

    def listing(self, request: Request) -> Json | None:
        """Return the list of models if that is what is asked for."""
        return models_listing(request.path, request.headers, self.models)

    def start(self) -> ModelServer:
        """Listen; returns when connections are taken."""
        self._http = _Http(self, self._port)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), name="model-server", daemon=True).start()
        return self

    def close(self) -> None:
        """End every connection and stop listening; idempotent."""
        self.closing.set()
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Http(ThreadingHTTPServer):
    """Threads that end with the server, and no complaints about clients that leave."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, model_server: ModelServer, port: int) -> None:
        self.model_server = model_server
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Handler)

    def get_request(self) -> tuple[socket.socket, object]:
        """Take a connection, and remember it until it ends."""
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """End a connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Also end the connections on which nobody is saying anything."""
        for connection in [*self._open]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves is none of our business; anything else is a bug to be seen."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
