"""The embedded model: a GGUF file, run inside this process with no key and no network."""

from __future__ import annotations

import asyncio
import os

from abreast.core.errors import CallFailed
from abreast.models.embedded.loaded_models import (
    BATCH,
    SHARED,
    Loaded,
    LoadSettings,
    Source,
    Statistics,
)
from abreast.models.embedded.request import EmbeddedRequest
from abreast.models.embedded.weights import Progress
from abreast.models.port import Hear, Reply, Request

SLOTS = 8
CONTEXT = 2048  # tokens of one slot; 8 such slots of smollm2 take 380 MB


class EmbeddedModel:
    """A model that runs in this process: `local/smollm2`, or any GGUF file as `local/path/to.gguf`.

    It is loaded by the first call, once per process and file however many of these there are, and
    freed when the last of them is closed. Several calls run side by side, as many as the one that
    loaded it has `slots`; others wait for their turn, which is no part of `Reply.seconds`. With a
    temperature of 0, the default, or a seed, the same request gives the same text, whatever runs
    beside it.

    Without a `path`, `local/smollm2` is fetched into the cache when it isn't there, telling
    `progress`.

        model = Embedded("local/smollm2")
        reply = await model.complete(Request((Message("user", "Name a colour."),), max_tokens=8))
    """

    greedy = True
    """It says the likeliest unless a temperature is given."""

    def __init__(
        self,
        name: str = "local/smollm2",
        path: str | os.PathLike[str] | None = None,
        *,
        slots: int = SLOTS,
        context: int = CONTEXT,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Load nothing yet. `threads` is `ABREAST_LOCAL_THREADS` or 1 unless given."""
        if not 1 <= slots <= BATCH:
            raise ValueError(f"slots must be between 1 and {BATCH}, not {slots!r}")
        self._name = name
        self._source = Source.of(name, path, progress)
        self._setting = LoadSettings(
            slots, context, threads or int(os.environ.get("ABREAST_LOCAL_THREADS", "1"))
        )
        self._calls: set[EmbeddedRequest] = set()
        self._loaded: Loaded | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """`provider/model`, as it was asked for."""
        return self._name

    def __repr__(self) -> str:
        return f"<Embedded {self._name}: {'closed' if self._closed else 'open'}, {len(self._calls)} calls>"

    def statistics(self) -> Statistics:
        """Of the loaded model, which others may share."""
        return self._loaded.statistics() if self._loaded else Statistics(0, 0, 0, 0, 0, 0, 0)

    async def complete(self, request: Request, hear: Hear | None = None) -> Reply:
        """Answer once; waits for the model to be loaded, and for a slot.

        Cancelling stops it at the next token.

        Raises TooLong for a prompt beyond the context, NoSuchModel for a file that can't be had or
        read, RequestRefused, ReplyBroken and ReplyInvalid.
        """
        if self._closed:
            raise CallFailed(f"{self._name} is closed")
        call = EmbeddedRequest(self._name, self._source.path.name, request, hear)
        self._loaded = self._loaded or SHARED.take(self._source, self._setting)
        self._calls.add(call)
        self._loaded.calls.put(call)
        try:
            return await call.reply
        finally:
            call.wanted = False
            self._calls.discard(call)

    async def close(self) -> None:
        """Stop what still runs; the last to close frees the memory. Harmless the second time."""
        self._closed = True
        for call in tuple(self._calls):
            call.wanted = False
            call.fail(CallFailed(f"{self._name} was closed before it had answered"))
        loaded, self._loaded = self._loaded, None
        if loaded is not None and SHARED.give_back(loaded):
            await asyncio.to_thread(loaded.end)
