"""The MCP servers of a task, as a session is told about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pytest_benchflow.events import Json
from pytest_benchflow.tasks import resolve_env, resolve_headers

if TYPE_CHECKING:
    from pytest_benchflow.tasks import McpServer

#: The protocol knows no working directory for servers.
_IN_DIRECTORY = 'cd "$0" && exec "$@"'


def protocol_servers(
    servers: Iterable[McpServer], environ: Mapping[str, str], where: str
) -> tuple[dict[str, Json], ...]:
    """Return the servers in the shape of the protocol, with their references filled in from the environment."""
    return tuple(_server(server, environ, where) for server in servers)


def server_secrets(servers: Iterable[McpServer], environ: Mapping[str, str], where: str) -> frozenset[str]:
    """Return the values that servers get from the environment of the runner."""
    found: set[str] = set()
    for server in servers:
        for given, filled in (
            (server.env, resolve_env(server.env, environ, where)),
            (server.headers, resolve_headers(server.headers, environ, where)),
        ):
            found |= {value for name, value in filled.items() if value != given[name]}
    return frozenset(found)


def _server(server: McpServer, environ: Mapping[str, str], where: str) -> dict[str, Json]:
    if server.transport == "stdio":
        assert server.command is not None  # the task's model sees to that
        words = [server.command, *server.args]
        if server.cwd is not None:
            words = ["sh", "-c", _IN_DIRECTORY, server.cwd, *words]
        env = resolve_env(server.env, environ, where)
        return {"name": server.name, "command": words[0], "args": [*words[1:]], "env": _pairs(env)}
    kind = "http" if server.transport == "streamable-http" else "sse"
    headers = resolve_headers(server.headers, environ, where)
    return {"type": kind, "name": server.name, "url": server.url, "headers": _pairs(headers)}


def _pairs(values: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]
