"""Spans and metrics of calls, as a collector sees them."""

import asyncio
import sys

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from abreast.core.errors import Refused
from abreast.models import tracing as traced
from abreast.models.port import Message, Request
from abreast.models.scripted import Scripted
from abreast.models.tracing import TracedModel, is_wanted


@pytest.fixture
def collected(monkeypatch):
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider(metric_readers=[reader])
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", meters.get_meter)
    yield spans, reader
    tracers.shutdown()
    meters.shutdown()


def request(text, **more):
    return Request((Message("user", text),), **more)


async def test_a_call_is_a_span_by_the_conventions_without_what_was_said(collected):
    spans, reader = collected
    model = TracedModel(Scripted({"a secret question": "a secret answer"}, name="gemini/model-x"))
    assert model.name == "gemini/model-x"
    assert (
        await model.complete(
            request("a secret question", temperature=0.5, seed=3, max_tokens=9, stop=("x",))
        )
    ).text
    (span,) = spans.get_finished_spans()
    assert span.name == "chat model-x"
    assert span.kind is trace.SpanKind.CLIENT
    facts = dict(span.attributes)
    assert facts["gen_ai.operation.name"] == "chat"
    assert facts["gen_ai.provider.name"] == "gcp.gemini"
    assert facts["gen_ai.request.model"] == "model-x"
    assert (facts["gen_ai.request.temperature"], facts["gen_ai.request.seed"]) == (0.5, 3)
    assert facts["gen_ai.request.max_tokens"] == 9
    assert facts["gen_ai.request.stop_sequences"] == ("x",)
    assert facts["gen_ai.response.finish_reasons"] == ("stop",)
    assert facts["gen_ai.usage.output_tokens"] > 0
    assert "secret" not in repr(facts)
    found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    assert {metric.name for metric in found} == {
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
    }
    assert "secret" not in repr(found)


async def test_a_failure_is_a_span_with_its_type_and_no_message(collected):
    spans, _ = collected
    model = TracedModel(Scripted([Refused("I will not say: the secret")]))
    with pytest.raises(Refused):
        await model.complete(request("x"))
    (span,) = spans.get_finished_spans()
    assert span.attributes["error.type"] == "Refused"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in span.to_json()
    assert span.events == ()


async def test_a_cancelled_call_ends_its_span(collected):
    spans, _ = collected
    model = TracedModel(Scripted(["late"], latency=3600.0))
    task = asyncio.ensure_future(model.complete(request("x", schema={"type": "object"})))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (span,) = spans.get_finished_spans()
    assert span.attributes["error.type"] == "CancelledError"
    assert span.attributes["gen_ai.output.type"] == "json"
    await model.close()


def test_nobody_pays_for_spans_that_nobody_collects(monkeypatch):
    for name in list(traced.os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "opentelemetry", raising=False)
    assert not is_wanted()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert is_wanted()
