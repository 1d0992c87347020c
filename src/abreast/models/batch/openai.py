"""OpenAI's batches: a file of requests goes up, files of results and errors come down."""

from __future__ import annotations

import json
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

LABEL: Final = "abreast_batch"
"""The field of a batch's metadata with our name for it."""
_PAGE: Final = 100
_CLOCK_DIFFERENCE: Final = 3600.0  # seconds by which the provider's clock may differ from ours
_ENDED: Final = ("completed", "expired", "cancelled")
_WAITS: Final = "token_limit_exceeded"  # more tokens are enqueued than the account may have
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class OpenAIBatches(BatchService):
    """`/v1/files` and `/v1/batches`, for chat completions or responses."""

    bounds = BatchBounds(50_000, 190 << 20)

    def __init__(self, provider: Provider) -> None:
        """For a provider whose address ends with the endpoint of the requests."""
        super().__init__(provider)
        path = provider.address.path
        ending = "chat/completions" if path.endswith("/chat/completions") else "responses"
        self._base = provider.address.with_path(
            path.removesuffix(f"/{ending}") or "/", keep_query=True
        )
        self._endpoint = f"/v1/{ending}"

    @property
    def base(self) -> URL:
        """The address without the endpoint."""
        return self._base

    def whole(
        self, name: str, bodies: Sequence[Document]
    ) -> Document:  # pragma: no cover - it has files
        """It has files instead."""
        raise NotImplementedError

    async def prepare(self, name: str, bodies: Sequence[Document]) -> str:
        """Upload the requests; returns the id of the file."""
        lines = [
            _encode(
                {
                    "custom_id": request_id(name, place),
                    "method": "POST",
                    "url": self._endpoint,
                    "body": body,
                }
            )
            for place, body in enumerate(bodies)
        ]
        mark = f"abreast-{name}"
        head = (
            f'--{mark}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{mark}\r\ncontent-disposition: form-data; name="file"; filename="{name}.jsonl"\r\n'
            "content-type: application/jsonl\r\n\r\n"
        )
        text = head + "\n".join(lines) + f"\r\n--{mark}--\r\n"
        kind = f"multipart/form-data; boundary={mark}"
        return self.id_in(await self.upload("files", text.encode(), kind))

    async def create(self, name: str, prepared: str | Document) -> str:
        """Submit the file."""
        body = {
            "input_file_id": prepared,
            "endpoint": self._endpoint,
            "completion_window": "24h",
            "metadata": {LABEL: name},
        }
        return self.id_in(await self.post("batches", body))

    async def find(self, sent: SentBatch, known: frozenset[str]) -> str | None:  # noqa: ARG002 - its name is enough
        """Look through the list, the newest first, for the batch with our name."""
        query: dict[str, str | int] = {"limit": _PAGE}
        while True:
            page = await self.get("batches", query)
            listed = page.get("data") or []
            for one in listed:
                if (one.get("metadata") or {}).get(LABEL) == sent.name:
                    return str(one["id"])
            oldest = min((one.get("created_at") or 0 for one in listed), default=0)
            if not page.get("has_more") or oldest < sent.wall - _CLOCK_DIFFERENCE:
                return None
            query["after"] = str(listed[-1]["id"])

    async def status(self, upstream: str) -> BatchStatus:
        """The state; one that was refused says why."""
        found = await self.get(f"batches/{upstream}")
        state = found.get("status")
        if state in _ENDED:
            return BatchStatus("ended", document=found)
        if state == "failed":
            faults = (found.get("errors") or {}).get("data") or [{}]
            why = str(faults[0].get("message") or "no reason is given")
            waits = faults[0].get("code") == _WAITS
            return BatchStatus("failed", why, waits, found)
        return BatchStatus("working", document=found)

    async def answers(self, upstream: str, status: BatchStatus) -> Iterator[BatchAnswer]:  # noqa: ARG002 - in the document
        """Download both files."""
        document = status.document or {}
        names = [document.get("output_file_id"), document.get("error_file_id")]
        files = [await self.lines(f"files/{name}/content") for name in names if name]
        return (answer for lines in files for line in lines if (answer := _answer(line)))

    async def cancel(self, upstream: str) -> None:
        """Cancel it."""
        await self.post(f"batches/{upstream}/cancel")


def _answer(line: Document) -> BatchAnswer | None:
    place = place_of(line.get("custom_id"))
    if place is None:
        return None
    response = line.get("response")
    if not response:
        why = str((line.get("error") or {}).get("code") or "no answer").removeprefix("batch_")
        return BatchAnswer(place, MISSED, {}, why)
    return BatchAnswer(place, int(response["status_code"]), response.get("body") or {})
