"""Spans and metrics of calls by OpenTelemetry's gen_ai conventions (extra `otel`)."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.version import VERSION
from abreast.models.port import (
    CallTurn,
    Model,
    OnText,
    Reply,
    Request,
    first_turn,
    is_bounded,
    is_greedy,
)

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

_NAME: Final = "abreast"
_TOKEN_BUCKETS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_DURATION_BUCKETS: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
# Providers with another name in the conventions.
_PROVIDER_NAMES: Final = {
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-chat": "openai",
}


def is_wanted() -> bool:
    """Whether OpenTelemetry is in use: the program has loaded it, or variables configure it."""
    configured = any(name.startswith("OTEL_") for name in os.environ)
    return "opentelemetry" in sys.modules or (configured and find_spec("opentelemetry") is not None)


class TracedModel:
    """A wrapper that makes a span `chat MODEL` of each attempt, without prompt and reply."""

    def __init__(self, model: Model) -> None:
        """Report the calls of `model` to the OpenTelemetry providers configured by then."""
        from opentelemetry import metrics, trace

        self._model = model
        self.name = model.name
        self.greedy = is_greedy(model)
        provider, _, name = model.name.partition("/")
        self._attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDER_NAMES.get(provider, provider),
            "gen_ai.request.model": name,
        }
        self._title = f"chat {name}"
        self._trace = trace
        self._tracer = trace.get_tracer(_NAME, VERSION)
        meter = metrics.get_meter(_NAME, VERSION)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a call",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Time of a call",
            explicit_bucket_boundaries_advisory=_DURATION_BUCKETS,
        )

    @property
    def is_bounded(self) -> bool:
        """That of the model."""
        return is_bounded(self._model)

    def first_turn(self, request: Request, *, stream: bool) -> CallTurn | None:
        """That of the model."""
        return first_turn(self._model, request, stream=stream)

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer once, inside a span."""
        began = SYSTEM_CLOCK.now()
        failed: dict[str, AttributeValue] = {}
        with self._tracer.start_as_current_span(
            self._title,
            kind=self._trace.SpanKind.CLIENT,
            attributes=self._attributes | _request_attributes(request),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                reply = await self._model.complete(request, hear)
            except BaseException as error:
                # Only the type: a message may quote the prompt.
                failed = {"error.type": type(error).__name__}
                span.set_attributes(failed)
                span.set_status(self._trace.StatusCode.ERROR)
                raise
            finally:
                self._seconds.record(SYSTEM_CLOCK.now() - began, self._attributes | failed)
            span.set_attributes(_response_attributes(reply))
        used = reply.usage
        for way, tokens in (("input", used.input_tokens), ("output", used.output_tokens)):
            self._tokens.record(tokens, self._attributes | {"gen_ai.token.type": way})
        return reply

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


def _request_attributes(request: Request) -> dict[str, AttributeValue]:
    facts = {
        "request.temperature": request.temperature,
        "request.seed": request.seed,
        "request.max_tokens": request.max_tokens,
        "request.stop_sequences": request.stop or None,
        "output.type": None if request.schema is None else "json",
    }
    return {f"gen_ai.{name}": value for name, value in facts.items() if value is not None}


def _response_attributes(reply: Reply) -> dict[str, AttributeValue]:
    facts: dict[str, AttributeValue | None] = {
        "response.finish_reasons": (reply.finish,),
        "usage.input_tokens": reply.usage.input_tokens,
        "usage.output_tokens": reply.usage.output_tokens,
        "response.model": reply.model or None,
        "response.id": reply.id or None,
    }
    return {f"gen_ai.{name}": value for name, value in facts.items() if value is not None}
