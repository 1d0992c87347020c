"""Cached and replayed replies: a cache in the store, and a model that replays a recorded run."""

import asyncio

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import ModelUnknown, NotRecorded, StoreCorrupt
from abreast.core.events import CALL_SETTLED, Event
from abreast.models.port import OnText, Reply, Request
from abreast.run.calls.journal import (
    WHOLE_ITEM,
    call_path,
    digest_of,
    reply_text,
    restore,
    restored,
)
from abreast.run.item_state import current_state
from abreast.store.port import Store, each_event


class StoreCache:
    """Caches replies in a store, for all runs that use the store.

    It is used only when asked for by name, because a cached reply may be out of date.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, model: str, request: Request) -> Reply | None:
        """The reply to an equal request, if there was one."""
        text = self._store.find_reply(digest_of(model, request, size=16))
        try:
            return None if text is None else restored(text, request)
        except StoreCorrupt:
            return None  # the model is called again, and the reply overwritten

    async def keep(self, model: str, request: Request, reply: Reply) -> None:
        """Store a reply, in a thread so that the loop goes on meanwhile."""
        key = digest_of(model, request, size=16)
        body = reply_text(reply, f"the reply of {model}")
        await asyncio.to_thread(self._store.keep_reply, key, model, body, SYSTEM_CLOCK.wall())


class Replay:
    """A model that returns the recorded replies of a run, without a connection: `replay/RUN`.

    A call is found by its item's path within the run; if the item has another path now, by the
    content of the request.
    """

    def __init__(self, store: Store, run_id: str, model: str | None = None) -> None:
        """Replay the calls to `model`, which may be omitted if the run called only one model."""
        self.name = f"replay/{run_id}" + (f"/{model}" if model else "")
        self._run_id = run_id
        self._by_path: dict[str, Event] = {}
        self._by_digest: dict[str, list[Event]] = {}
        models: set[str] = set()
        for event in each_event(store, run_id, {CALL_SETTLED}):
            if event.data.get("state") != "cancelled":
                models.add(str(event.data["model"]))
                if model in (None, event.data["model"]):
                    self._by_path[_path_in_run(event.path)] = event
        if model is None and len(models) > 1:
            names = ", ".join(f"replay/{run_id}/{name}" for name in sorted(models))
            raise ModelUnknown(f"{run_id} asked several models; name one of them: {names}")
        if not self._by_path:
            raise ModelUnknown(f"no calls are recorded in {run_id}, so there is nothing to replay")
        for path, event in self._by_path.items():
            self._by_digest.setdefault(path.rpartition("/")[2].partition("-")[0], []).append(event)
        if set(self._by_digest) == {WHOLE_ITEM}:  # its replies are in its items
            raise ModelUnknown(
                f"{run_id} is a server's run, and no model: abreast serve --replay {run_id}"
            )
        # The model whose replies these are: calls are named after it, as they were.
        self.recorded_name = model or next(iter(models))
        # Draws of the embedded model had a temperature by default, which is part of a request.
        self.greedy = self.recorded_name.startswith("local/")

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """The recorded reply; `NotRecorded` if the run never made this request."""
        reply = restore(self._find(request), request)
        if hear is not None:
            hear(reply.text)
        return reply

    async def close(self) -> None:
        """Does nothing: there is no connection."""

    def _find(self, request: Request) -> Event:
        digest = digest_of(self.recorded_name, request)
        item = current_state()
        if item is not None:
            # An item that is itself one call counts none by its digest.
            number = item.calls.counts.get(digest, 0) - 1 if item.calls is not None else 0
            found = self._by_path.get(
                call_path(_path_in_run(item.path), digest, max(0, number), item.attempt)
            )
            if found is not None:
                return found
        same_request = self._by_digest.get(digest)
        if same_request:
            return same_request[0]
        raise NotRecorded(
            f"{self._run_id} never asked {self.recorded_name} this; "
            "a replay answers only what it did"
        )


def _path_in_run(path: str) -> str:
    """A path without the run's name: a replaying run has a name of its own."""
    return path.partition("/")[2]
