"""Anthropic's message batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

from abreast.models.batch.service import (
    MISSED,
    UNDECIDED,
    BatchAnswer,
    BatchBounds,
    BatchService,
    BatchStatus,
    SentBatch,
    place_of,
    request_id,
)
from abreast.models.providers.provider import Document

if TYPE_CHECKING:
    from yarl import URL

_PAGE: Final = 100
_CLOCK_DIFFERENCE: Final = 3600.0  # seconds by which the provider's clock may differ from ours
_ERROR_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


class AnthropicBatches(BatchService):
    """`/v1/messages/batches`, which have no name of ours: their requests' ids have it."""

    bounds = BatchBounds(100_000, 240 << 20)

    @property
    def base(self) -> URL:
        """The address of messages."""
        return self.provider.address

    def whole(self, name: str, bodies: Sequence[Document]) -> Document:
        """The requests with their ids."""
        return {
            "requests": [
                {"custom_id": request_id(name, place), "params": body}
                for place, body in enumerate(bodies)
            ]
        }

    async def create(self, name: str, prepared: str | Document) -> str:  # noqa: ARG002 - in the body
        """Submit it."""
        body = prepared if isinstance(prepared, dict) else {}
        return self.id_in(await self.post("batches", body))

    async def find(self, sent: SentBatch, known: frozenset[str]) -> str | None:
        """Look for a batch of that time and size, and read its results to see whose it is.

        One that has not ended has no results yet, and may be ours.
        """
        query: dict[str, str | int] = {"limit": _PAGE}
        since = sent.wall - _CLOCK_DIFFERENCE
        while True:
            page = await self.get("batches", query)
            listed = page.get("data") or []
            for one in listed:
                if one["id"] not in known and _size(one) == sent.size and _wall(one) >= since:
                    if one.get("processing_status") != "ended":
                        return UNDECIDED
                    first = next(await self.lines(f"batches/{one['id']}/results"), {})
                    if place_of(first.get("custom_id"), sent.name) is not None:
                        return str(one["id"])
            if not page.get("has_more") or (listed and _wall(listed[-1]) < since):
                return None
            query["after_id"] = str(listed[-1]["id"])

    async def status(self, upstream: str) -> BatchStatus:
        """The state."""
        found = await self.get(f"batches/{upstream}")
        ended = found.get("processing_status") == "ended"
        return BatchStatus("ended" if ended else "working", document=found)

    async def answers(self, upstream: str, status: BatchStatus) -> Iterator[BatchAnswer]:  # noqa: ARG002 - the same for each
        """Download the results."""
        lines = await self.lines(f"batches/{upstream}/results")
        return (answer for line in lines if (answer := _answer(line)))

    async def cancel(self, upstream: str) -> None:
        """Cancel it."""
        await self.post(f"batches/{upstream}/cancel")


def _answer(line: Document) -> BatchAnswer | None:
    place, result = place_of(line.get("custom_id")), line.get("result") or {}
    if place is None:
        return None
    kind = result.get("type")
    if kind == "succeeded":
        return BatchAnswer(place, 200, result.get("message") or {})
    if kind == "errored":
        error = result.get("error") or {}
        inner = error.get("error") or error
        return BatchAnswer(place, _ERROR_STATUS.get(inner.get("type", ""), 500), {"error": inner})
    return BatchAnswer(place, MISSED, {}, "cancelled" if kind == "canceled" else str(kind))


def _size(batch: Document) -> int:
    return sum((batch.get("request_counts") or {}).values())


def _wall(batch: Document) -> float:
    with suppress(ValueError, TypeError):
        return datetime.fromisoformat(str(batch.get("created_at"))).timestamp()
    return 0.0
