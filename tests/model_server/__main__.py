"""Run the server as a process: `python -m model_server [--script FILE] [--port N] [--record FILE]`.

Its address is the first line it prints; it ends with SIGTERM, Ctrl-C or the end of its standard input.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from model_server.conversation import compact
from model_server.request import Request
from model_server.script_file import load_server
from model_server.server import ModelServer


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="model_server", description="a scripted model provider on loopback")
    parser.add_argument("--script", type=Path, help="scripts, models and keys as JSON")
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--record", type=Path, help="append every request to this file, one JSON object per line")
    given = parser.parse_args()
    server = load_server(given.script, port=given.port) if given.script else ModelServer(port=given.port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.ExitStack() as stack:
        if given.record:
            server.record = _recorder(stack.enter_context(given.record.open("a")))  # type: ignore[assignment]
        stack.enter_context(server)
        print(server.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()


def _recorder(file: TextIO) -> Callable[[Request], None]:
    def record(request: Request) -> None:
        file.write(compact({**asdict(request), "key": request.key, "model": request.model}) + "\n")
        file.flush()

    return record


if __name__ == "__main__":
    main()
