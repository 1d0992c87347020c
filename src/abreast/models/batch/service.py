"""The service of batches that a provider has: submit, look up, ask for the state, download."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from abreast.core.errors import CallFailed
from abreast.models.http.client import HttpAnswer
from abreast.models.port import Reply, Request
from abreast.models.providers.provider import Document, Provider

if TYPE_CHECKING:
    from yarl import URL

Progress: TypeAlias = Literal["working", "ended", "failed"]
MISSED: Final = 0
"""The status of a request that was not answered: it expired, was cancelled or is missing."""
UNDECIDED: Final = ""
"""Instead of the id of a batch: it is not known yet whether one is ours."""
MAX_RESULT_BYTES: Final = 2 << 30
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """What a provider takes in one batch."""

    requests: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """The state of a batch; `reason` says why it failed, and `waits` whether another time helps."""

    progress: Progress
    reason: str = ""
    waits: bool = False
    document: Document | None = None


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The answer to the request at a place of a batch.

    `status` is that of HTTP, or `MISSED` with the reason in `why`.
    """

    place: int
    status: int
    body: Document
    why: str = ""


@dataclass(frozen=True, slots=True)
class SentBatch:
    """What is known of a submission: our name for it, how many requests, when (time of day)."""

    name: str
    size: int
    wall: float


class BatchService(ABC):
    """The batches of one model; subclasses know one provider's API.

    Each request has the id `NAME-PLACE`, so that results in any order find their calls.
    All methods raise subclasses of CallFailed, and never try again.
    """

    bounds: BatchBounds

    def __init__(self, provider: Provider) -> None:
        """The provider writes the requests and reads the replies."""
        self.provider = provider

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.provider.name}>"

    @property
    def name(self) -> str:
        """`provider/model`."""
        return self.provider.name

    def write(self, request: Request) -> tuple[Document, tuple[str, ...]]:
        """The body of a request, and what differs in it from what was asked for."""
        return self.provider.body_of(request)

    def read(self, request: Request, answer: BatchAnswer, changed: tuple[str, ...]) -> Reply:
        """The reply in an answer; raises the error that it has instead."""
        return self.provider.reply_of(request, answer.status, answer.body, changed)

    # --- for subclasses

    async def prepare(self, name: str, bodies: Sequence[Document]) -> str | Document:
        """Do what must precede a submission and costs nothing: upload a file, for example."""
        return self.whole(name, bodies)

    @abstractmethod
    def whole(self, name: str, bodies: Sequence[Document]) -> Document:
        """The body of a submission, for APIs without files."""

    @abstractmethod
    async def create(self, name: str, prepared: str | Document) -> str:
        """Submit a batch; returns the provider's id of it."""

    @abstractmethod
    async def find(self, sent: SentBatch, known: frozenset[str]) -> str | None:
        """The id of a batch that was perhaps submitted; None if there is none.

        `UNDECIDED` if one that has not ended may be it. `known` are the ids of other batches.
        """

    @abstractmethod
    async def status(self, upstream: str) -> BatchStatus:
        """The state of a batch."""

    @abstractmethod
    async def answers(self, upstream: str, status: BatchStatus) -> Iterator[BatchAnswer]:
        """The answers of a batch that has ended, in any order; some may be there twice."""

    @abstractmethod
    async def cancel(self, upstream: str) -> None:
        """Cancel what is not answered yet."""

    # --- requests

    @property
    @abstractmethod
    def base(self) -> URL:
        """The address beneath which batches are."""

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> Document:
        """Read a document of JSON."""
        return self._document(await self._send("GET", self._at(path).update_query(query or {})))

    async def post(self, path: str, body: Document | None = None) -> Document:
        """Send a document, and read the one that comes back."""
        return self._document(
            await self._send("POST", self._at(path), _encode(body or {}).encode())
        )

    async def lines(self, path: str) -> Iterator[Document]:
        """Read a file of JSON lines."""
        answer = await self._send("GET", self._at(path))
        return self._lines(answer)

    async def upload(self, path: str, body: bytes, kind: str) -> Document:
        """Send a body of another type than JSON."""
        headers = {"content-type": kind}
        return self._document(await self._send("POST", self._at(path), body, headers))

    def id_in(self, document: Document, field: str = "id") -> str:
        """The id of what was made."""
        if not isinstance(found := document.get(field), str):
            raise self.broken(f"the answer to a submission has no {field}")
        return found

    def _at(self, path: str) -> URL:
        base = self.base
        return base.with_path(f"{base.path.rstrip('/')}/{path}", keep_query=True)

    async def _send(
        self,
        method: str,
        url: URL,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        answer = await self.provider.send_other(
            method, url, body, headers or {}, largest=MAX_RESULT_BYTES
        )
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - success
            raise self.provider.raw_fault(answer)
        return answer

    def _document(self, answer: HttpAnswer) -> Document:
        try:
            found = json.loads(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self.broken("the answer about a batch is no object of JSON", answer)
        return found

    def _lines(self, answer: HttpAnswer) -> Iterator[Document]:
        for line in answer.body.splitlines():
            if line.strip():
                try:
                    found: Any = json.loads(line)
                except ValueError:
                    found = None
                if not isinstance(found, dict):
                    raise self.broken("a line of its results is no object of JSON", answer)
                yield found

    def broken(self, what: str, answer: HttpAnswer | None = None) -> CallFailed:
        """The error for an answer about a batch that can't be read."""
        body, status = (b"", None) if answer is None else (answer.body[:4096], answer.status)
        return self.provider.broken_answer(what, body, status)


def request_id(name: str, place: int) -> str:
    """The id of a request of a batch.

    >>> request_id("ab01", 7), place_of("ab01-7", "ab01"), place_of("other-7", "ab01")
    ('ab01-7', 7, None)
    """
    return f"{name}-{place}"


def place_of(given: object, name: str | None = None) -> int | None:
    """The place in an id; None if it is none of ours, or of another batch."""
    before, _, place = str(given).rpartition("-")
    if not place.isdecimal() or (name is not None and before != name):
        return None
    return int(place)
