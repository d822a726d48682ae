"""An agent that a manifest describes: its programs, its files, its MCP servers, its process, its session over ACP."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_benchflow.agents.access import resolve_access
from pytest_benchflow.agents.base import AgentContext, AgentRequest, ModelAccess, PromptResult, Session
from pytest_benchflow.agents.companion import RunningCompanion, companion_values
from pytest_benchflow.agents.installation import Installation
from pytest_benchflow.agents.log import AgentLog, log_name
from pytest_benchflow.agents.manifest import AgentManifest
from pytest_benchflow.agents.template import Values, fill_argv, fill_env
from pytest_benchflow.configfile import resolve_env, resolve_headers
from pytest_benchflow.core.errors import HandshakeError, InstallError, ProviderError
from pytest_benchflow.core.types import Json
from pytest_benchflow.providers import Sources
from pytest_benchflow.sandboxes import exec_checked

if TYPE_CHECKING:
    from pytest_benchflow.agents.acp.session import AcpSession
    from pytest_benchflow.agents.acp.types import Inspect, SessionPlan
    from pytest_benchflow.agents.bundles.store import BundleStore
    from pytest_benchflow.providers import HomeFile
    from pytest_benchflow.sandboxes import Mount, Process
    from pytest_benchflow.tasks import McpServer, Task


_WRITE_SEC = 60.0
# A link that was left there is replaced, not followed.
_WRITE = """umask 077
path={path}
mkdir -p "${{path%/*}}" && rm -f "$path" && cat >"$path"
"""
_WRITE_TIMEOUT_SEC = 60.0


async def write_home_files(context: AgentContext, files: Iterable[HomeFile], agent: str) -> None:
    """Write the files; one that cannot be written is an error that says where and why, and not what."""
    for file in files:
        path = f"{context.home}/{file.path}"
        await exec_checked(
            context.sandbox,
            _WRITE.format(path=shlex.quote(path)),
            f"write {path}",
            user=context.user,
            cwd="/",
            stdin=file.content,
            timeout_sec=_WRITE_TIMEOUT_SEC,
            error=lambda message: InstallError(f"Agent {agent} install failed: {message}", retryable=False),
        )


def path_variables(context: AgentContext, files: Iterable[HomeFile]) -> dict[str, str]:
    """Return the variables that hold paths of files."""
    return {file.variable: f"{context.home}/{file.path}" for file in files if file.variable is not None}


#: The protocol knows no working directory for servers.
_IN_DIRECTORY = 'cd "$0" && exec "$@"'


def protocol_servers(
    servers: Iterable[McpServer], environ: Mapping[str, str], where: str
) -> tuple[dict[str, Json], ...]:
    """Return the servers in the shape of the protocol, with their references filled in from the environment."""
    return tuple(_server(server, environ, where) for server in servers)


def server_secrets(servers: Iterable[McpServer], environ: Mapping[str, str], where: str) -> frozenset[str]:
    """Return the values that servers get from the environment of the runner."""
    secrets: set[str] = set()
    for server in servers:
        for templates, filled in (
            (server.env, resolve_env(server.env, environ, where)),
            (server.headers, resolve_headers(server.headers, environ, where)),
        ):
            secrets |= {value for name, value in filled.items() if value != templates[name]}
    return frozenset(secrets)


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


#: Seconds before each new attempt when the connection is lost in the handshake.
RETRY_DELAYS = (2.0, 4.0, 8.0)
_REFUSED = re.compile(r"\b401\b|unauthori[sz]ed|authenticat|(?:invalid|incorrect).{0,20}key", re.IGNORECASE)


class AcpAgent:
    """Implements `Agent` for any program that speaks ACP."""

    takes_model = True
    calls_model = True
    runs_as_task_user = False

    def __init__(self, manifest: AgentManifest, store: BundleStore | None = None) -> None:
        self.manifest = manifest
        self.installation = Installation(manifest, store)

    @property
    def name(self) -> str:
        """The word users choose it by."""
        return self.manifest.name

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other words for it."""
        return self.manifest.aliases

    @property
    def skill_dirs(self) -> tuple[str, ...]:
        """Where it looks for skills, with $HOME and $WORKSPACE."""
        return self.manifest.skill_dirs

    def skip_reason(self, task: Task) -> str | None:
        """It can try any task."""
        return None

    def access(self, task: Task, request: AgentRequest) -> ModelAccess:
        """Return how it reaches the model it is asked for, from this process's variables and logins."""
        access = resolve_access(self.manifest, request, Sources.here(request.env))
        servers = task.config.environment.mcp_servers
        return replace(access, secrets=access.secrets | server_secrets(servers, os.environ, _where(task)))

    async def prepare_on_host(self, log_dir: Path) -> tuple[Mount, ...]:
        """Make its bundle, unless it is there."""
        return await self.installation.prepare_on_host(log_dir)

    async def install(self, context: AgentContext) -> None:
        """Make its programs ready and write its files."""
        await self.installation.deploy(context)
        await write_home_files(context, context.access.files, self.name)

    async def connect(self, context: AgentContext) -> Session:
        """Start it and open a session; a connection that is lost on the way is tried again."""
        log = AgentLog(context.log_dir / log_name(self.name), context.access.secrets)
        try:
            return await self._connect(context, log)
        except BaseException:
            log.close()
            raise

    async def _connect(self, context: AgentContext, log: AgentLog) -> Session:
        loop = asyncio.get_running_loop()
        for delay in (*RETRY_DELAYS, None):
            began = loop.time()
            try:
                return await self._attempt(context, log)
            except HandshakeError as error:
                # An agent that said nothing for so long will not do better the next time.
                slow = loop.time() - began >= self.manifest.handshake_timeout_sec
                if delay is None or slow or not error.retryable:
                    raise
                log.write(f"[{error.message}; trying again in {delay:g} s]\n".encode())
                await asyncio.sleep(delay)
        raise AssertionError("unreachable")

    async def _attempt(self, context: AgentContext, log: AgentLog) -> AgentSession:
        from pytest_benchflow.agents.acp.handshake import open_session

        env = {"HOME": context.home, **context.access.env, **path_variables(context, context.access.files)}
        printed = _CompanionLog(log)
        companion, extra = await self._companion(context, env, printed)
        try:
            argv = self._argv(self.manifest.launch, context, self._values(context))
            process = await self._open(argv, context, {**env, **extra})
            session = await open_session(
                process, self._plan(context), emit=context.emit, log=log.write, inspect=self._inspect(context)
            )
        except BaseException:
            if companion is not None:
                await companion.stop()
            raise
        printed.session = session
        return AgentSession(session, log, companion, context.access.if_refused)

    def _inspect(self, context: AgentContext) -> Inspect | None:
        """Return how to read what the agent tells in files, if it does."""
        from pytest_benchflow.agents.records import Records

        records = self.manifest.quirks.records
        return Records(context, records).read if records else None

    async def _open(self, argv: Sequence[str], context: AgentContext, env: Mapping[str, str]) -> Process:
        """Start the program that speaks the protocol."""
        return await context.sandbox.open_process(argv, user=context.user, cwd=context.cwd, env=env)

    async def _companion(
        self, context: AgentContext, env: Mapping[str, str], log: _CompanionLog
    ) -> tuple[RunningCompanion | None, dict[str, str]]:
        """Start the program that has to run beside the agent, and return what the agent must know of it."""
        companion = self.manifest.companion
        if companion is None:
            return None, {}
        values = companion_values(context)
        extra = fill_env(companion.env, values)
        argv = self._argv(companion.launch, context, values)
        port = values["port"] or ""
        running = await RunningCompanion.start(companion, argv, context, {**env, **extra}, port, log.write)
        return running, extra

    def _argv(self, templates: tuple[str, ...], context: AgentContext, values: Values) -> list[str]:
        program, *arguments = fill_argv(templates, values)
        return [self.installation.program(program, context), *arguments]

    def _values(self, context: AgentContext) -> Values:
        return {"model": context.access.model, "effort": context.request.effort}

    def _plan(self, context: AgentContext) -> SessionPlan:
        from pytest_benchflow.agents.acp.types import SessionPlan

        manifest, effort = self.manifest, self.manifest.effort
        asks = effort is not None and effort.by == "config-option"
        return SessionPlan(
            cwd=context.cwd,
            name=manifest.name,
            mcp_servers=protocol_servers(context.mcp_servers, os.environ, _where(context.task)),
            auth_method=context.access.auth_method,
            mode=manifest.mode,
            model=context.access.model,
            model_by=_model_by(manifest),
            model_option=manifest.model.option,
            model_aliases=manifest.model.aliases,
            effort=context.request.effort if asks else None,
            effort_option=None if effort is None else effort.option,
            handshake_timeout_sec=manifest.handshake_timeout_sec,
            idle_timeout_sec=context.idle_timeout_sec,
            leaves_programs=not context.step.verifier.hardening.does("kill_processes"),
            quirks=manifest.quirks,
            meta=manifest.session_meta,
        )


class _CompanionLog:
    """What a companion prints: it may be the one that calls the model, and tell of calls that fail."""

    def __init__(self, log: AgentLog) -> None:
        self._log = log
        self.session: AcpSession | None = None

    def write(self, data: bytes) -> None:
        """Write it to the agent's log, and let its session take note."""
        (self._log.write if self.session is None else self.session.take_log)(data)


class AgentSession:
    """An ACP session with what else lives as long as it does."""

    def __init__(
        self, session: AcpSession, log: AgentLog, companion: RunningCompanion | None, if_refused: str | None = None
    ) -> None:
        self._if_refused = if_refused
        self._session = session
        self._log = log
        self._companion = companion

    @property
    def agent_name(self) -> str | None:
        """What the agent calls itself."""
        return self._session.agent_name

    @property
    def agent_version(self) -> str | None:
        """The version it says it has."""
        return self._session.agent_version

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        """Send one prompt and wait for its end."""
        try:
            return await self._session.prompt(text, timeout_sec=timeout_sec)
        except ProviderError as error:
            if self._if_refused is None or not _REFUSED.search(error.message):
                raise
            raise ProviderError(error.message, advice=self._if_refused, retryable=False) from None

    async def close(self) -> None:
        """End the agent, its companion and its log; idempotent."""
        try:
            await self._session.close()
        finally:
            if self._companion is not None:
                await self._companion.stop()
            self._log.close()


def _model_by(manifest: AgentManifest) -> Literal["auto", "config-option", "set-model", "launch"]:
    match manifest.model.by:
        case "env" | "flag" | "file":
            return "launch"
        case by:
            return by


def _where(task: Task) -> str:
    return f"{task.file}: [[environment.mcp_servers]]"
