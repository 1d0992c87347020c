"""Gemini's batches, with their requests in the submission."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from abreast.models.batch.service import (
    MISSED,
    BatchAnswer,
    BatchBounds,
    BatchService,
    BatchStatus,
    SentBatch,
    place_of,
    request_id,
)
from abreast.models.providers.provider import Document, Provider

if TYPE_CHECKING:
    from yarl import URL

_PAGE: Final = 100
_ENDED: Final = ("SUCCEEDED", "CANCELLED", "EXPIRED")
_MISSED: Final = {1: "cancelled", 4: "expired"}
_STATUS: Final = {3: 400, 5: 404, 7: 403, 8: 429, 14: 503, 16: 401}  # of a code of gRPC


class GeminiBatches(BatchService):
    """`:batchGenerateContent` and `/batches`."""

    bounds = BatchBounds(50_000, 19 << 20)

    def __init__(self, provider: Provider) -> None:
        """For a provider whose address ends with `models/MODEL:generateContent`."""
        super().__init__(provider)
        head, _, last = provider.address.path.rpartition("/models/")
        self._model = last.partition(":")[0]
        self._base = provider.address.with_path(head or "/")

    @property
    def base(self) -> URL:
        """The address without the model."""
        return self._base

    def whole(self, name: str, bodies: Sequence[Document]) -> Document:
        """The requests with their keys."""
        listed = [
            {"request": body, "metadata": {"key": request_id(name, place)}}
            for place, body in enumerate(bodies)
        ]
        batch = {"display_name": name, "input_config": {"requests": {"requests": listed}}}
        return {"batch": batch}

    async def create(self, name: str, prepared: str | Document) -> str:  # noqa: ARG002 - in the body
        """Submit it."""
        body = prepared if isinstance(prepared, dict) else {}
        found = await self.post(f"models/{self._model}:batchGenerateContent", body)
        return self.id_in(found, "name")

    async def find(self, sent: SentBatch, known: frozenset[str]) -> str | None:  # noqa: ARG002 - its name is enough
        """Look through the list for the batch with our name."""
        query: dict[str, str | int] = {"pageSize": _PAGE}
        while True:
            page = await self.get("batches", query)
            for one in page.get("operations") or []:
                if (one.get("metadata") or {}).get("displayName") == sent.name:
                    return str(one["name"])
            if not page.get("nextPageToken"):
                return None
            query["pageToken"] = str(page["nextPageToken"])

    async def status(self, upstream: str) -> BatchStatus:
        """The state; one that has ended has the results in it."""
        found = await self.get(upstream)
        state = str((found.get("metadata") or {}).get("state")).rpartition("STATE_")[2]
        if state == "FAILED":
            why = str((found.get("error") or {}).get("message") or "no reason is given")
            return BatchStatus("failed", why, document=found)
        return BatchStatus("ended" if state in _ENDED else "working", document=found)

    async def answers(self, upstream: str, status: BatchStatus) -> Iterator[BatchAnswer]:  # noqa: ARG002 - in the document
        """The results in the state."""
        document = status.document or {}
        output = document.get("response") or (document.get("metadata") or {}).get("output") or {}
        listed = (output.get("inlinedResponses") or {}).get("inlinedResponses") or []
        return (answer for line in listed if (answer := _answer(line)))

    async def cancel(self, upstream: str) -> None:
        """Cancel it."""
        await self.post(f"{upstream}:cancel")


def _answer(line: Document) -> BatchAnswer | None:
    place = place_of((line.get("metadata") or {}).get("key"))
    if place is None:
        return None
    error = line.get("error")
    if not error:
        return BatchAnswer(place, 200, line.get("response") or {})
    code = error.get("code")
    if code in _MISSED:
        return BatchAnswer(place, MISSED, {}, _MISSED[code])
    return BatchAnswer(place, _STATUS.get(code, 500), {"error": error})
