"""The embedded model: a GGUF file, run inside this process with no key and no network."""

import asyncio
import os

from abreast.core.errors import CallFailed, RequestRefused
from abreast.models.embedded.loaded_models import (
    BATCH,
    LOADED_MODELS,
    Loaded,
    LoadSettings,
    Source,
    Statistics,
)
from abreast.models.embedded.request import EmbeddedRequest
from abreast.models.embedded.weights import Progress
from abreast.models.port import OnText, Reply, Request

SLOTS = 8
CONTEXT = 2048  # tokens of one slot; 8 such slots of smollm2 take 380 MB


class EmbeddedModel:
    """A model that runs in this process: `local/smollm2`, or any GGUF file as `local/path/to.gguf`.

    The first call loads the file, once per process however many instances use it; closing the last
    instance frees the memory. Several calls run side by side, as many as the first instance has
    `slots`; others wait, which does not count in `Reply.seconds`. With a temperature of 0 (the
    default) or a seed, the same request gives the same text, whatever runs beside it.

    Without a `path`, `local/smollm2` is fetched into the cache if it isn't there; `progress` is
    called meanwhile.

        model = EmbeddedModel("local/smollm2")
        reply = await model.complete(Request((Message("user", "Name a colour."),), max_tokens=8))
    """

    greedy = True  # it chooses the most likely token unless a temperature is given

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
        """Load nothing yet. `threads` is by default `ABREAST_LOCAL_THREADS` or 1."""
        if not 1 <= slots <= BATCH:
            raise ValueError(f"slots must be between 1 and {BATCH}, not {slots!r}")
        self.name = name
        self._source = Source.of(name, path, progress)
        self._settings = LoadSettings(
            slots, context, threads or int(os.environ.get("ABREAST_LOCAL_THREADS", "1"))
        )
        self._calls: set[EmbeddedRequest] = set()
        self._loaded: Loaded | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Embedded {self.name}: {state}, {len(self._calls)} calls>"

    def statistics(self) -> Statistics:
        """Counts of the loaded model, which other instances may share."""
        return self._loaded.statistics() if self._loaded else Statistics(0, 0, 0, 0, 0, 0, 0)

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer once; waits for the model to be loaded, and for a slot.

        Cancelling stops it at the next token. Raises TooLong for a prompt beyond the context,
        NoSuchModel for a file that can't be fetched or read, RequestRefused, ReplyBroken and
        ReplyInvalid.
        """
        if self._closed:
            raise CallFailed(f"{self.name} is closed")
        if any(turn.files for turn in request.messages):
            raise RequestRefused(f"{self.name} can't see images and PDF files: it reads text alone")
        call = EmbeddedRequest(self.name, self._source.path.name, request, hear)
        self._loaded = self._loaded or LOADED_MODELS.take(self._source, self._settings)
        self._calls.add(call)
        self._loaded.calls.put(call)
        try:
            return await call.reply
        finally:
            call.wanted = False
            self._calls.discard(call)

    async def close(self) -> None:
        """Stop the running calls; the last instance frees the memory. May be called twice."""
        self._closed = True
        for call in tuple(self._calls):
            call.wanted = False
            call.fail(CallFailed(f"{self.name} was closed before it had answered"))
        loaded, self._loaded = self._loaded, None
        if loaded is not None and LOADED_MODELS.give_back(loaded):
            await asyncio.to_thread(loaded.end)
