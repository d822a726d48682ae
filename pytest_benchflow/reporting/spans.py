"""Rollouts as OpenTelemetry spans, by the conventions for generative AI: one of the agent, below it one per tool call.

They go to the collector that OpenTelemetry's own variables name (`OTEL_EXPORTER_OTLP_ENDPOINT` …). What was said is not
among them: traces are read by more people than results are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from pytest_benchflow.core.errors import UsageError
from pytest_benchflow.core.text import one_line
from pytest_benchflow.reporting.dialogue import Call, passages_of
from pytest_benchflow.reporting.reasons import reason

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from pytest_benchflow.rollout import RolloutResult

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PREFIX = "pytest_benchflow"


def send_spans(results: Iterable[RolloutResult]) -> int:
    """Send the spans of all rollouts that ran to the collector, and return how many rollouts that are."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    except ImportError:
        advice = "pip install 'pytest-benchflow[otel]'"
        raise UsageError("spans need OpenTelemetry", advice=advice) from None
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        advice = "set OTEL_EXPORTER_OTLP_ENDPOINT, for example to http://localhost:4318"
        raise UsageError("no collector is named", advice=advice)
    memory, collector = InMemorySpanExporter(), OTLPSpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "pytest-benchflow"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("pytest_benchflow", version("pytest-benchflow"))
    sent = 0
    try:
        for result in results:
            if not result.rollout_name:
                continue
            _rollout(tracer, result)
            if collector.export(memory.get_finished_spans()) is not SpanExportResult.SUCCESS:
                advice = "see whether the collector runs, and takes OTLP over HTTP"
                raise UsageError(f"{sent} rollouts were sent, and then the collector took no more", advice=advice)
            memory.clear()
            sent += 1
    finally:
        provider.shutdown()
        collector.shutdown()  # type: ignore[no-untyped-call]
    return sent


def _rollout(tracer: Tracer, result: RolloutResult) -> None:
    from opentelemetry.trace import StatusCode, set_span_in_context

    span = tracer.start_span(
        f"invoke_agent {result.agent}",
        start_time=_nanoseconds(result.started_at),
        attributes={key: value for key, value in _facts(result).items() if value is not None},
    )
    for passage in passages_of(result.trajectory):
        for call in passage.calls:
            if call.began is not None:
                _tool(tracer, call, set_span_in_context(span))
    _evaluations(span, result)
    if result.error is not None:
        span.set_status(StatusCode.ERROR, one_line(reason(result), 400))
    span.end(_nanoseconds(result.finished_at))


def _facts(result: RolloutResult) -> dict[str, str | int | float | None]:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": result.agent,
        "gen_ai.agent.version": result.agent_version,
        "gen_ai.conversation.id": result.rollout_name,
        "gen_ai.request.model": result.model,
        "gen_ai.response.model": result.models[-1] if result.models else None,
        "gen_ai.usage.input_tokens": result.tokens.input,
        "gen_ai.usage.output_tokens": result.tokens.output,
        "error.type": None if result.error is None else result.error.category.value,
        f"{_PREFIX}.task": result.task_name,
        f"{_PREFIX}.task_digest": result.task_digest,
        f"{_PREFIX}.scene": result.scene,
        f"{_PREFIX}.trial": result.trial,
        f"{_PREFIX}.sandbox": result.sandbox,
        f"{_PREFIX}.status": result.status,
        f"{_PREFIX}.cost_usd": result.cost_usd,
    }


def _evaluations(span: Span, result: RolloutResult) -> None:
    """Add what the verifier gave, each reward by its name."""
    for name, value in (result.rewards or {}).items():
        attributes: dict[str, str | float] = {
            "gen_ai.evaluation.name": one_line(name),
            "gen_ai.evaluation.score.value": value,
        }
        if name == "reward":
            attributes["gen_ai.evaluation.score.label"] = result.status
        span.add_event("gen_ai.evaluation.result", attributes, timestamp=_nanoseconds(result.finished_at))


def _tool(tracer: Tracer, call: Call, context: object) -> None:
    from opentelemetry.trace import StatusCode

    assert call.began is not None
    span = tracer.start_span(
        f"execute_tool {one_line(call.kind)}",
        context=context,  # type: ignore[arg-type]
        start_time=int(call.began * 1e9),
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": one_line(call.kind),
            "gen_ai.tool.call.id": one_line(call.id),
        },
    )
    if call.status == "failed":
        span.set_status(StatusCode.ERROR)
    span.end(int((call.began + (call.seconds or 0.0)) * 1e9))


def _nanoseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1e9)
