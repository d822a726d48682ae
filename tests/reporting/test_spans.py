"""Spans for a collector of OpenTelemetry, a real one's protocol on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from jobs.results import result
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from reporting.dialogues import rollout

from pytest_benchflow.core.errors import Category, UsageError
from pytest_benchflow.reporting import send_spans


class Collector(BaseHTTPRequestHandler):
    """Takes spans, or refuses them."""

    spans: ClassVar[list[Span]] = []
    status: ClassVar[int] = 200

    def do_POST(self) -> None:
        """Take one request."""
        import gzip

        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest()
        request.ParseFromString(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
        self.spans.extend(span for one in request.resource_spans for scope in one.scope_spans for span in scope.spans)
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Collector]]:
    """A collector on loopback, which the usual variable names."""
    Collector.spans, Collector.status = [], 200
    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield Collector
    server.shutdown()
    thread.join()
    server.server_close()


def _facts(span: Span) -> dict[str, object]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}


def test_an_agent_and_its_tool_calls_are_spans(tmp_path: Path, collector: type[Collector]) -> None:
    given = rollout(
        tmp_path / "hello__1", rewards={"reward": 1.0, "style": 0.5}, tokens={"input": 30, "output": 7}, models=["f-1"]
    )
    assert send_spans([given, result("never", None, rollout_name="", skipped="by design")]) == 1
    agent = next(span for span in collector.spans if not span.parent_span_id)
    tools = [span for span in collector.spans if span.parent_span_id == agent.span_id]
    assert agent.name == "invoke_agent gemini"
    facts = _facts(agent)
    assert facts["gen_ai.request.model"] == "flash"
    assert facts["gen_ai.response.model"] == "f-1"
    assert facts["gen_ai.usage.input_tokens"] == 30
    assert facts["pytest_benchflow.status"] == "passed"
    assert agent.end_time_unix_nano - agent.start_time_unix_nano == 10_000_000_000
    assert [event.name for event in agent.events] == ["gen_ai.evaluation.result"] * 2
    assert sorted(span.name for span in tools) == ["execute_tool edit", "execute_tool read"]
    edit = next(span for span in tools if span.name.endswith("edit"))
    assert edit.end_time_unix_nano - edit.start_time_unix_nano == pytest.approx(900_000_000, abs=1000)
    assert "Make it two." not in str(collector.spans)


def test_a_broken_harness_is_an_error(tmp_path: Path, collector: type[Collector]) -> None:
    send_spans([rollout(tmp_path / "broken__1", [], category=Category.SANDBOX)])
    (span,) = collector.spans
    assert span.status.code == 2
    assert _facts(span)["error.type"] == "sandbox"


def test_a_collector_that_refuses_is_told(tmp_path: Path, collector: type[Collector]) -> None:
    collector.status = 400
    with pytest.raises(UsageError, match="the collector took no more"):
        send_spans([rollout(tmp_path / "hello__1")])


def test_without_a_collector_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_ENDPOINT"):
        send_spans([])
