"""Spans and metrics of calls by OpenTelemetry's gen_ai conventions (extra `otel`)."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.version import VERSION
from abreast.models.port import Hear, Model, Reply, Request

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

_NAME: Final = "abreast"
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_SECONDS: Final = (
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
_PROVIDERS: Final = {"gemini": "gcp.gemini", "mistral": "mistral_ai"}
"""Where the conventions have another name than ours."""


def is_wanted() -> bool:
    """Whether somebody collects: the program has loaded OpenTelemetry, or its environment configures it."""
    told = any(name.startswith("OTEL_") for name in os.environ)
    return "opentelemetry" in sys.modules or (told and find_spec("opentelemetry") is not None)


class TracedModel:
    """A model whose attempts are spans, named `chat MODEL`; no prompt and no reply is in them."""

    def __init__(self, model: Model) -> None:
        """Tell of this model's calls to whatever is configured when they are made."""
        from opentelemetry import metrics, trace

        self._model = model
        provider, _, name = model.name.partition("/")
        self._plain: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
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
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Time of a call",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def __getattr__(self, name: str) -> object:
        """What else the model is and does."""
        return getattr(self._model, name)

    @property
    def name(self) -> str:
        """`provider/model`, as it was asked for."""
        return self._model.name

    async def complete(self, request: Request, hear: Hear | None = None) -> Reply:
        """Answer once, inside a span."""
        began = SYSTEM_CLOCK.now()
        failed: dict[str, AttributeValue] = {}
        kind = self._trace.SpanKind.CLIENT
        with self._tracer.start_as_current_span(
            self._title,
            kind=kind,
            attributes=self._plain | _asked(request),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                reply = await self._model.complete(request, hear)
            except BaseException as error:
                # The type alone: a message may quote what was asked.
                failed = {"error.type": type(error).__name__}
                span.set_attributes(failed)
                span.set_status(self._trace.StatusCode.ERROR)
                raise
            finally:
                self._seconds.record(SYSTEM_CLOCK.now() - began, self._plain | failed)
            span.set_attributes(_answered(reply))
        self._tokens.record(reply.usage.input_tokens, self._plain | {"gen_ai.token.type": "input"})
        self._tokens.record(
            reply.usage.output_tokens, self._plain | {"gen_ai.token.type": "output"}
        )
        return reply

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


def _asked(request: Request) -> dict[str, AttributeValue]:
    facts: dict[str, AttributeValue] = {}
    for name in ("temperature", "seed", "max_tokens"):
        value = getattr(request, name)
        if value is not None:
            facts[f"gen_ai.request.{name}"] = value
    if request.stop:
        facts["gen_ai.request.stop_sequences"] = request.stop
    if request.schema is not None:
        facts["gen_ai.output.type"] = "json"
    return facts


def _answered(reply: Reply) -> dict[str, AttributeValue]:
    facts: dict[str, AttributeValue] = {
        "gen_ai.response.finish_reasons": (reply.finish,),
        "gen_ai.usage.input_tokens": reply.usage.input_tokens,
        "gen_ai.usage.output_tokens": reply.usage.output_tokens,
    }
    if reply.model:
        facts["gen_ai.response.model"] = reply.model
    if reply.id:
        facts["gen_ai.response.id"] = reply.id
    return facts
