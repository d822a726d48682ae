"""Open a session: introduce, authenticate, begin, then choose mode, model and effort and see that they hold."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, cast

from pytest_benchflow.agents.acp.choices import Option, contradicts
from pytest_benchflow.agents.acp.connection import Gone, Rejected
from pytest_benchflow.agents.acp.permissions import PermissionPolicy, approve_all
from pytest_benchflow.agents.acp.session import AcpSession
from pytest_benchflow.agents.acp.types import Inspect, SessionPlan, as_list, as_object, as_text
from pytest_benchflow.core.errors import Category, HandshakeError, SandboxError, UsageError
from pytest_benchflow.core.text import closest, one_line
from pytest_benchflow.core.types import Emit, Json

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Process


_PROTOCOL = 1
_AUTH_REQUIRED = -32000
_LISTED = 30
_REPORT_SEC = 1.0


async def open_session(
    process: Process,
    plan: SessionPlan,
    *,
    emit: Emit,
    log: Callable[[bytes], None],
    permit: PermissionPolicy = approve_all,
    inspect: Inspect | None = None,
) -> AcpSession:
    """Return a session that is ready for prompts; on any failure the process is killed.

    `inspect` reads the files in which the agent tells what it does not say over the protocol.
    """
    try:
        # Half a second the first time, which the loop's other rollouts should not wait for.
        await asyncio.to_thread(import_module, "acp.connection")
    except BaseException:
        await process.kill()
        raise
    session = AcpSession(process, plan, emit=emit, log=log, permit=permit, inspect=inspect)
    try:
        await _open(session, plan)
    except BaseException:
        # The sandbox ends what could not be killed, and the first error is the one to tell.
        with contextlib.suppress(SandboxError):
            await session.close()
        raise
    return session


async def _open(session: AcpSession, plan: SessionPlan) -> None:
    answer = await _step(session, "initialize", _introduction())
    session.introduce(answer.get("agentInfo"))
    spoken = answer.get("protocolVersion", _PROTOCOL)
    if isinstance(spoken, int) and spoken != _PROTOCOL:
        raise HandshakeError(f"{session.label} speaks version {spoken} of ACP, not {_PROTOCOL}", retryable=False)
    methods = [as_text(as_object(item).get("id")) for item in as_list(answer.get("authMethods"))]
    if plan.auth_method is not None and plan.auth_method in methods:
        await _step(session, "authenticate", {"methodId": plan.auth_method})
    params: dict[str, Json] = {"cwd": plan.cwd, "mcpServers": [*plan.mcp_servers]}
    if plan.meta:
        params["_meta"] = cast("Json", dict(plan.meta))
    made = await _step(session, "session/new", params)
    name = as_text(made.get("sessionId"))
    if name is None:
        raise HandshakeError(f"{session.label} answered session/new without a session id", retryable=False)
    session.session_id = name
    session.turns.choices.take(made)
    await _choose_mode(session, plan)
    await _choose_model(session, plan)
    await _choose_effort(session, plan)


def _introduction() -> Json:
    try:
        number = version("pytest-benchflow")
    except PackageNotFoundError:
        number = "0"
    return {
        "protocolVersion": _PROTOCOL,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "pytest-benchflow", "title": "pytest-benchflow", "version": number},
    }


async def _step(session: AcpSession, method: str, params: Json) -> dict[str, Json]:
    """Do one step of the handshake within its time."""
    limit = session.plan.handshake_timeout_sec
    try:
        async with asyncio.timeout(limit):
            return await session.peer.request(method, params)
    except TimeoutError:
        raise HandshakeError(
            _with_words(session, f"{session.label} did not answer {method} within {limit:g} s")
        ) from None
    except Gone:
        died = await session.peer.exit_summary()
        missing = "exited with status 127" in died or "exited with status 126" in died
        raise HandshakeError(f"{session.label} {died}", retryable=False if missing else None) from None
    except Rejected as error:
        text = f"{session.label} refused {method}: {one_line(error.message, 400)} (code {error.code})"
        if error.code == _AUTH_REQUIRED:
            advice = "check the API key or login that it uses"
            raise HandshakeError(text, advice=advice, category=Category.CREDENTIALS) from None
        raise HandshakeError(_with_words(session, text), retryable=False) from None


def _with_words(session: AcpSession, text: str) -> str:
    words = session.peer.stderr_tail()
    return f"{text}; it last printed: {words}" if words else text


async def _choose_mode(session: AcpSession, plan: SessionPlan) -> None:
    choices = session.turns.choices
    if plan.mode is None or plan.mode == choices.current_mode:
        return
    option = choices.options.get("mode")
    if plan.mode in choices.modes:
        await _step(session, "session/set_mode", {"sessionId": session.session_id, "modeId": plan.mode})
    elif option is not None and plan.mode in option.values:
        await _set_option(session, option.id, plan.mode)


async def _choose_model(session: AcpSession, plan: SessionPlan) -> None:
    if plan.model is None:
        return
    choices, asked = session.turns.choices, plan.model
    if plan.model_by != "launch":
        await _ask_for_model(session, plan, asked)
    reported = choices.reported_model(plan.model_option)
    if contradicts(asked, reported, at_launch=plan.model_by == "launch"):
        known = choices.known_models(plan.model_option)
        raise UsageError(f"{session.label} runs {reported} instead of {asked}", advice=_near(asked, known))


async def _ask_for_model(session: AcpSession, plan: SessionPlan, asked: str) -> None:
    choices = session.turns.choices
    option = choices.model_option(plan.model_option) if plan.model_by != "set-model" else None
    models = choices.models if plan.model_by != "config-option" else ()
    if option is not None and (asked in option.values or not option.values):
        await _set_option(session, option.id, asked)
    elif asked in models or (plan.model_by == "set-model" and not models):
        await _set_model(session, asked)
    elif option is None and not models:
        advice = "leave the model out, or choose it at launch"
        raise UsageError(f"{session.label} offers no choice of models, so {asked} cannot be asked for", advice=advice)
    elif choices.reported_model(plan.model_option) != asked:
        known = choices.known_models(plan.model_option)
        raise UsageError(f"{session.label} does not know the model {asked!r}", advice=_near(asked, known))


async def _choose_effort(session: AcpSession, plan: SessionPlan) -> None:
    if plan.effort is None:
        return
    choices, asked = session.turns.choices, plan.effort
    option = choices.effort_option(plan.effort_option)
    if option is None:
        with_effort = f"{plan.model}[{asked}]"
        if with_effort not in choices.models:
            what = f"{session.label} offers no choice of effort with this model, so {asked!r} cannot be asked for"
            raise UsageError(what, advice="leave the effort out, or choose another model")
        await _set_model(session, with_effort)
        return
    if option.current != asked:
        if option.values and asked not in option.values:
            raise UsageError(f"{session.label} does not know the effort {asked!r}", advice=_near(asked, option.values))
        await _set_option(session, option.id, asked)
    now: Option | None = choices.options.get(option.id)
    if now is None or now.current != asked:
        raise UsageError(f"{session.label} runs with effort {now.current if now else None} instead of {asked}")


async def _set_model(session: AcpSession, name: str) -> None:
    """Choose a model; an agent that accepts it and then says nothing of it is believed."""
    choices, option = session.turns.choices, session.plan.model_option
    before = choices.reported_model(option)
    choices.take(await _step(session, "session/set_model", {"sessionId": session.session_id, "modelId": name}))
    if choices.reported_model(option) == before:
        choices.assume(name, option)


async def _set_option(session: AcpSession, name: str, value: str) -> None:
    """Choose a value of an option, and give an agent that does not answer with it a moment to report it."""
    choices = session.turns.choices
    params: Json = {"sessionId": session.session_id, "configId": name, "value": value}
    answer = await _step(session, "session/set_config_option", params)
    choices.take(answer)
    if "configOptions" not in answer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REPORT_SEC):
                while (option := choices.options.get(name)) is None or option.current != value:
                    await session.next_report()


def _near(asked: str, known: tuple[str, ...] | list[str]) -> str:
    near = closest(asked, known)
    listed = ", ".join(known[:_LISTED]) + (f", and {len(known) - _LISTED} more" if len(known) > _LISTED else "")
    return f"did you mean {near}? It knows {listed}" if near else f"it knows {listed or 'no other'}"
