"""An open session with an agent over ACP, and the limits of its time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_benchflow.agents.acp.choices import contradicts, is_alias, other_model
from pytest_benchflow.agents.acp.connection import Gone, Message, Peer, Rejected
from pytest_benchflow.agents.acp.evidence import FailureLog, is_helper_model
from pytest_benchflow.agents.acp.outcome import (
    Answered,
    Died,
    Ending,
    Failed,
    TimedOut,
    Unreachable,
    conclude,
    is_hopeless,
)
from pytest_benchflow.agents.acp.permissions import PermissionPolicy, approve_all, offered
from pytest_benchflow.agents.acp.types import Inspect, SessionPlan, as_object, as_text
from pytest_benchflow.agents.acp.updates import Turns
from pytest_benchflow.agents.acp.usage import answer_models
from pytest_benchflow.agents.base import PromptResult, Usage
from pytest_benchflow.core.errors import AgentError, ProviderError
from pytest_benchflow.core.types import Emit, Event, Json

if TYPE_CHECKING:
    from pytest_benchflow.sandboxes import Process


#: A tool call that has not ended puts idleness off, but not for ever.
_PENDING_FACTOR = 3


def idle_at(traffic: float, last_sign: float | None, idle_sec: float | None) -> float | None:
    """Return when an agent counts as idle, None if never.

    `traffic` is when it last sent anything, `last_sign` when one of its pending tool calls last showed life.
    """
    if idle_sec is None:
        return None
    if last_sign is None:
        return traffic + idle_sec
    return max(traffic + idle_sec, last_sign + _PENDING_FACTOR * idle_sec)


def idled(now: float, traffic: float, idle_sec: float, pending: list[str]) -> TimedOut:
    """Return the end of an agent that shows no life."""
    waiting = f", tool calls pending: {', '.join(pending)}" if pending else ""
    return TimedOut("idle_timeout", idle_sec, f"idle for {now - traffic:.0f} s{waiting}")


def overran(limit_sec: float) -> TimedOut:
    """Return the end of an agent that used up its time."""
    return TimedOut("wall_clock_timeout", limit_sec, f"stopped after {limit_sec:g} s")


_SEND_SEC = 1.0
#: What an agent says right after its answer still belongs to it.
_QUIET_SEC = 0.01
_QUIET_ROUNDS = 10
#: When the files of an agent that says nothing are looked at first, and how seldom at last.
_LOOK_SEC = 3.0
_LOOK_AT_MOST_SEC = 30.0


class AcpSession:
    """Implements `Session`; made by `open_session`."""

    def __init__(
        self,
        process: Process,
        plan: SessionPlan,
        *,
        emit: Emit,
        log: Callable[[bytes], None],
        permit: PermissionPolicy = approve_all,
        inspect: Inspect | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.permit = permit
        self.plan = plan
        self.agent_name: str | None = None
        self.agent_version: str | None = None
        self.session_id = ""
        self._clock = loop.time
        self._emit_event = emit
        self.turns = Turns(self._emit, loop.time, plan.quirks)
        self.turns.choices.aliases = plan.model_aliases
        self._answered = False
        self._over: str | None = None
        self._cancelling = False
        self._traffic = loop.time()
        self._updated = asyncio.Event()
        self._woken = asyncio.Event()
        self._inspect = inspect
        self._looked = 0.0
        self._models: dict[str, None] = {}
        self._log = log
        self._failure_log = FailureLog(plan.quirks.log_errors)
        self.peer = Peer(
            process,
            seen=self._seen,
            permission=self._permission,
            log=self.take_log,
            max_line_bytes=plan.max_line_bytes,
        )

    @property
    def model(self) -> str | None:
        """The model that the agent says it runs."""
        return self.turns.choices.reported_model(self.plan.model_option)

    @property
    def answered(self) -> bool:
        """Return whether the model answered at least once in this session."""
        return self._answered or self.turns.evidence.answered

    @property
    def label(self) -> str:
        """What to call the agent in messages."""
        return self.plan.name or self.agent_name or "the agent"

    def introduce(self, info: Json) -> None:
        """Take the agent's name and version."""
        self.agent_name = as_text(as_object(info).get("name"))
        self.agent_version = as_text(as_object(info).get("version"))

    async def next_report(self) -> None:
        """Wait for the next update of the agent's."""
        self._updated.clear()
        await self._updated.wait()

    async def prompt(self, text: str, *, timeout_sec: float | None) -> PromptResult:
        """Send one prompt and wait for its end; over time, the agent is cancelled and then killed in the sandbox."""
        if self._over is not None:
            raise AgentError(f"the session with {self.label} is over: {self._over}")
        turns, before = self.turns, self.answered
        await self._look()
        turns.begin(text)
        self._answered = before
        try:
            ending, answer = await self._converse(text, timeout_sec)
        except BaseException:
            self._over = self._over or "a prompt was interrupted"
            raise
        finally:
            turns.end("cancelled" if self._cancelling else None)
        await self._look()
        usage = turns.meter.end_turn(answer)
        turns.evidence.output_tokens = usage.output or 0
        stop_reason = as_text(as_object(answer).get("stopReason"))
        used = self._answering_models(answer)
        self._close_turn(ending, stop_reason, usage, used)
        if self.peer.failure is not None:
            raise self.peer.failure
        if isinstance(ending, Failed):
            turns.evidence.take_back(turns.message, ending.message)
        outcome, detail = conclude(
            ending, turns.evidence, answered_before=before, agent=self.label, model=self.plan.model
        )
        self._check_model()
        return PromptResult(
            outcome, detail, n_tool_calls=turns.calls.count, usage=usage, stop_reason=stop_reason, message=turns.message
        )

    async def close(self) -> None:
        """Kill the agent and everything it started, if that is not to go on; idempotent."""
        self._over = self._over or "closed"
        self.turns.end()
        await self.peer.stop(leaves_programs=self.plan.leaves_programs)

    async def _converse(self, text: str, timeout_sec: float | None) -> tuple[Ending, Json]:
        params: Json = {"sessionId": self.session_id, "prompt": [{"type": "text", "text": text}]}
        self._traffic = self._clock()
        answer = asyncio.create_task(self.peer.request("session/prompt", params))
        try:
            ending = await self._watch(answer, timeout_sec)
            if ending is not None:
                return ending, await self._stop(answer, ending)
            result = await answer
        except Rejected as error:
            return Failed(error.code, error.message), None
        except Gone:
            return await self._died(), None
        finally:
            await _end(answer)
        await self._settle()
        return Answered(as_text(result.get("stopReason")) or "unknown"), result

    async def _watch(
        self, answer: asyncio.Task[dict[str, Json]], timeout_sec: float | None
    ) -> TimedOut | Unreachable | None:
        """Wait for the answer; return why not, if time, signs of life or hope run out first."""
        deadline = None if timeout_sec is None else self._traffic + timeout_sec
        idle_sec, calls = self.plan.idle_timeout_sec, self.turns.calls
        answer.add_done_callback(lambda _: self._woken.set())
        while True:
            times = (deadline, idle_at(self._traffic, calls.last_sign, idle_sec), self._look_at)
            await self._wait_until(min((at for at in times if at is not None), default=None))
            # An answer that came in time and is noticed late is an answer.
            if answer.done():
                return None
            if self._look_at is not None and self._clock() >= self._look_at:
                await self._look()
            now = self._clock()
            if is_hopeless(self.turns.evidence, answered=self.answered):
                return Unreachable(self.turns.evidence.failures, self.turns.evidence.failing_sec)
            if timeout_sec is not None and deadline is not None and now >= deadline:
                return overran(timeout_sec)
            idle = idle_at(self._traffic, calls.last_sign, idle_sec)
            if idle_sec is not None and idle is not None and now >= idle:
                return idled(now, self._traffic, idle_sec, calls.pending)

    async def _wait_until(self, at: float | None) -> None:
        """Wait for the answer, a report of a failed call, or a time."""
        self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at):
                await self._woken.wait()

    @property
    def _look_at(self) -> float | None:
        """When to look at the agent's files next, the later the longer it has been silent; None if it has none."""
        if self._inspect is None:
            return None
        pause = min(_LOOK_AT_MOST_SEC, _LOOK_SEC + (self._looked - self._traffic) / 2)
        return max(self._traffic + _LOOK_SEC, self._looked + pause)

    async def _look(self) -> None:
        """Take what the agent's files tell."""
        if self._inspect is None:
            return
        findings = await self._inspect()
        self._looked = self._clock()
        self.turns.models |= dict.fromkeys(findings.models)
        if findings.failures:
            self.turns.evidence.report_failure(findings.failures[-1], len(findings.failures))

    async def _stop(self, answer: asyncio.Task[dict[str, Json]], why: TimedOut | Unreachable) -> Json:
        """Cancel, wait a little for the agent to end its turn, then kill it."""
        self._cancelling = True
        self._over = why.detail
        pending: list[Json] = [*self.turns.calls.pending]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SEND_SEC):
                await self.peer.notify("session/cancel", {"sessionId": self.session_id})
        grace = self.plan.cancel_grace_sec if isinstance(why, TimedOut) else _SEND_SEC
        await asyncio.wait([answer], timeout=grace)
        in_time = answer.done()
        await self.peer.stop()
        self.turns.end("cancelled")
        if isinstance(why, TimedOut):
            self._emit(
                {
                    "type": "agent_timeout",
                    "reason": why.reason,
                    "timeout_sec": why.limit_sec,
                    "pending_tool_call_ids": pending,
                    "terminal_trajectory_complete": in_time and not pending,
                }
            )
        return answer.result() if in_time and answer.exception() is None else None

    async def _died(self) -> Ending:
        detail = await self.peer.exit_summary()
        self._over = detail
        await self.peer.stop()
        return Died(detail)

    async def _settle(self) -> None:
        """Take what the agent says on the heels of its answer."""
        for _ in range(_QUIET_ROUNDS):
            seen = self._traffic
            await asyncio.sleep(_QUIET_SEC)
            if self._traffic == seen:
                return

    def _seen(self, message: Message) -> bool:
        """Take a message as it comes; return whether it needs an answer or is one."""
        self._traffic = self._clock()
        method = message.get("method")
        if method is None or "id" in message:
            return True
        params = as_object(message.get("params"))
        update = params.get("update")
        failures = self.turns.evidence.failures
        if isinstance(update, dict):
            self.turns.update(update)
            self._updated.set()
        else:
            self.turns.notice(params)
        if self.turns.evidence.failures > failures:
            self._woken.set()
        return False

    def take_log(self, data: bytes) -> None:
        """Take what the agent prints beside the protocol."""
        self._log(data)
        for line in self._failure_log.feed(data):
            self.turns.evidence.report_failure(line)
            self._woken.set()

    async def _permission(self, params: Json) -> Json:
        request = as_object(params)
        option = None if self._cancelling else self.permit(request)
        kinds = dict(offered(request))
        allowed = option is not None and not kinds.get(option, "").startswith("reject")
        self.turns.asked(request, option, allowed=allowed)
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option}}

    def _close_turn(self, ending: Ending, stop_reason: str | None, usage: Usage, models: list[str]) -> None:
        if isinstance(ending, Failed):
            self._emit({"type": "agent_error", "code": ending.code, "message": ending.message})
        elif isinstance(ending, Unreachable):
            message = f"{ending.detail}: {self.turns.evidence.complaint}"
            self._emit({"type": "agent_error", "code": None, "message": message})
        elif isinstance(ending, Died):
            self._emit({"type": "agent_crash", "detail": ending.detail})
        used: Event = {"input": usage.input, "output": usage.output, "cached": usage.cached, "cost_usd": usage.cost_usd}
        event: Event = {"type": "stop", "stop_reason": stop_reason, "usage": used}
        self._emit(event | ({"models": [*models]} if models else {}))

    def _answering_models(self, answer: Json) -> list[str]:
        """Return the models that answered in this turn, by their own names."""
        names = dict.fromkeys(answer_models(answer, self.plan.quirks)) | self.turns.models
        aliases = self.plan.model_aliases
        used = [*dict.fromkeys(aliases.get(name, name) for name in names if not is_alias(name))]
        self._models |= dict.fromkeys(used)
        return used

    def _check_model(self) -> None:
        """See that no other model than the one asked for has answered: agents fall back to others on their own."""
        asked = self.plan.model
        if asked is None:
            return
        used = [name for name in self._models if name == asked or not is_helper_model(name, self.plan.quirks)]
        other = other_model(asked, used, self.turns.choices.known_models(self.plan.model_option))
        if other is None and contradicts(asked, self.model, at_launch=self.plan.model_by == "launch"):
            other = self.model
        if other is not None:
            raise ProviderError(
                f"{self.label} went over from {asked} to {other} by itself",
                advice="see whether the provider limits the model, and ask for one that it gives",
            )

    def _emit(self, event: Event) -> None:
        """Write an event; a trajectory that cannot be written ends the session."""
        try:
            self._emit_event(event)
        except Exception as error:
            self.peer.fail(error)


async def _end(task: asyncio.Task[dict[str, Json]]) -> None:
    """Cancel a task, wait for its end and take note of its error."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
