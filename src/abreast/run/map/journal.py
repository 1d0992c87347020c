"""The map journal: writes a map's events, and reads recorded outcomes when a run is resumed."""

import hashlib
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from types import CodeType
from typing import Any

from abreast.core.errors import CannotStore, ItemChanged, OutcomeUnknown, RecordedError, TimedOut
from abreast.core.events import (
    ATTEMPT_FAILED,
    CALL_SETTLED,
    ITEM_QUEUED,
    ITEM_SETTLED,
    ITEM_STARTED,
    LIMIT_WAITED,
    MAP_ENDED,
    MAP_STARTED,
    MAP_STOPPED,
    Plain,
)
from abreast.core.outcome import Done, Failed, Outcome
from abreast.run.context import RunContext
from abreast.run.item_state import ItemState
from abreast.run.journal import Facts, Journal
from abreast.run.map.options import MapOptions
from abreast.run.outcome_record import facts_of, is_final, restore
from abreast.store.codec import codec
from abreast.store.port import Recorded, Store

MAX_KEYS_IN_MESSAGE = 10  # a message with more keys says "and N more"


class FunctionChanged(UserWarning):
    """The function of a resumed map differs from the one whose outcomes are recorded."""


class MapJournal:
    """Writes a map's events and reads its recorded outcomes.

    With a store, values are passed on in the form that they have when read back.
    """

    def __init__(
        self, context: RunContext, journal: Journal, path: str, *, repeats: bool = False
    ) -> None:
        """For the map at `path`; `repeats` in a further attempt of the item above it."""
        self._context = context
        self._journal = journal
        self._path = path
        self._writer = context.writer
        self._repeats = repeats
        self._in_doubt: frozenset[str] = frozenset()  # paths of `once` items started before
        self._reruns = False  # changed items run again instead of being refused

    @property
    def stored(self) -> bool:
        """Whether there is a store behind the journal."""
        return self._writer is not None

    async def open(self, fn: Any, options: MapOptions) -> None:
        """Record the start; on resume, find `once` items in flight and a changed function."""
        while hasattr(fn, "func"):
            fn = fn.func
        fingerprint = _fingerprint(fn)
        self._reruns = self._repeats or options.on_change == "rerun"
        if self._context.resumed:
            # A new version of abreast must not cause a warning.
            is_ours = str(getattr(fn, "__module__", "")).partition(".")[0] == "abreast"
            await self._compare_with_recorded(fingerprint, options, is_ours=is_ours)
        self._journal.emit(
            MAP_STARTED,
            self._path,
            data={
                "width": options.width,
                "span": options.span,
                "order": options.order,
                "effect": options.effect,
                "function": fingerprint,
            },
        )

    def queued(self, item: ItemState) -> None:
        """Record that the item was read and has to wait."""
        self._journal.emit(ITEM_QUEUED, item.path, lane=item.lane, data={"index": item.index})

    def waited(self, item: ItemState, limit: str, seconds: float) -> None:
        """Record that the item got the limits it waited for."""
        self._journal.emit(
            LIMIT_WAITED, item.path, lane=item.lane, data={"limit": limit, "seconds": seconds}
        )

    def started(self, item: ItemState, durable: Callable[[], None] | None = None) -> None:
        """Record that an attempt starts; from the second on with its number."""
        data = {"attempt": item.attempt} if item.attempt > 1 else None
        if durable is None:
            self._journal.begin(ITEM_STARTED, item.path, item.lane, data)
        else:
            self._journal.emit(ITEM_STARTED, item.path, lane=item.lane, durable=durable, data=data)

    def attempt_failed(self, item: ItemState, error: BaseException, backoff: float) -> None:
        """Record that an attempt failed and another will follow."""
        self._journal.over(item.path)
        facts: Facts = {"index": item.index, "attempt": item.attempt, "backoff": backoff}
        self._journal.emit(
            ATTEMPT_FAILED, item.path, lane=item.lane, data=facts, body=codec.encode_error(error)
        )

    def recorded_form(
        self, item: ItemState, outcome: Outcome[Any]
    ) -> tuple[Outcome[Any], str | None]:
        """The outcome as a resumed run would read it, and its text.

        It is a failure if the value can't be stored.
        """
        if isinstance(outcome, Done):
            return self._storable(item, outcome)
        return outcome, codec.encode_error(outcome.error) if isinstance(outcome, Failed) else None

    def settle(
        self,
        item: ItemState,
        outcome: Outcome[Any],
        body: str | None,
        freed: Callable[[ItemState], None] | None,
        landed: Callable[[ItemState, Outcome[Any]], None],
        *,
        speculative: bool,
    ) -> None:
        """Record an outcome in its `recorded_form`.

        `freed` is called once the record survives a kill of this process; `landed` is called with
        the outcome once it is on disk.
        """
        facts = facts_of(outcome, item.attempt, item.digest)
        if speculative:
            facts["speculative"] = True
        self._journal.over(item.path)
        self._journal.emit(
            ITEM_SETTLED,
            item.path,
            lane=item.lane,
            data=facts,
            body=body,
            written=None if freed is None else partial(freed, item),
            durable=partial(landed, item, outcome),
        )

    def flush_soon(self) -> None:
        """Commit and flush without delay: the map does nothing but wait for the disk."""
        if self._writer is not None:
            self._writer.flush_soon()

    def halted(self, at: int, reason: str) -> None:
        """Record that the map ends with item `at`; items after it are in no result."""
        self._journal.emit(MAP_STOPPED, self._path, data={"at": at, "reason": reason})

    def ended(self, peak: int, released: int, timing_causes: Collection[str]) -> None:
        """Record that the map is over, and what made its outcomes depend on timing, if any."""
        facts: dict[str, Plain | list[float]] = {"peak": peak, "released": released}
        if timing_causes:
            facts["timing_dependent"] = ",".join(sorted(timing_causes))
        self._journal.emit(MAP_ENDED, self._path, data=facts)

    def digest(self, item: ItemState) -> None:
        """Compute a digest of the item's value, so that a resumed run can detect a change."""
        if self.stored:
            item.digest = codec.digest(item.value)

    async def lookup(
        self, items: Sequence[ItemState], *, charged: bool = False
    ) -> dict[int, Outcome[Any]]:
        """The recorded outcomes of these items that are kept, by index.

        Raises `ItemChanged`, which names the items whose values differ. With `charged` (there is a
        budget) the other items are marked if they were charged for a request already.
        """
        if not (self._context.resumed or self._repeats) or not items:
            return {}
        paths = {item.path: item for item in items}
        found = await self._read(lambda store, run: store.recorded(run, list(paths)))
        changed: list[str] = []
        known: dict[int, Outcome[Any]] = {}
        for path, recorded in found.items():
            item = paths[path]
            then = recorded.data.get("digest")
            if then is not None and item.digest is not None and then != item.digest:
                if not self._reruns:
                    changed.append(item.key)
            elif is_final(recorded, retry_failed=self._retries(item.key)):
                known[item.index] = restore(
                    recorded, self._context.types, index=item.index, key=item.key
                )
            else:
                item.ignores_recorded_calls = recorded.data["state"] == "failed"
        if changed:
            raise ItemChanged(
                f"{self._path}: {_listed(changed)} changed since the run recorded them; "
                "start a new run, or give the items keys that name their content"
            )
        for path, item in paths.items():
            if (
                path in self._in_doubt
                and path not in found
                and not self._retries(item.key, unknown=True)
            ):
                error = OutcomeUnknown(
                    f"{item.path} was in flight when its driver died, and may run only once: "
                    "see whether it took effect; to run it again, resume with retry"
                )
                known[item.index] = Failed(item.index, item.key, error, item.lane)
        again = [item for item in items if item.index not in known]
        self._replace(found[item.path] for item in again if item.path in found)
        if charged:
            await self._find_charged([item for item in again if not item.ignores_recorded_calls])
        return known

    def _replace(self, recorded: Iterable[Recorded]) -> None:
        """Tell the run's totals that these outcomes are to be replaced."""
        if self._context.totals is not None:
            for one in recorded:
                self._context.totals.replace(one.path, str(one.data["state"]))

    async def _find_charged(self, items: Sequence[ItemState]) -> None:
        """Mark items whose request was charged already: a call or step beneath is recorded."""

        def find(store: Store, run: str) -> list[ItemState]:
            return [
                item
                for item in items
                if store.events(run, kinds={CALL_SETTLED}, prefix=f"{item.path}/", limit=1)
                or store.outcomes(run, prefix=f"{item.path}/", limit=1)
            ]

        for item in await self._read(find):
            item.charged_before = True

    @staticmethod
    def timed_out(known: Outcome[Any]) -> bool:
        """Whether an item is recorded as failed because of its timeout."""
        if not isinstance(known, Failed) or not isinstance(known.error, RecordedError):
            return False
        return codec.is_recorded(known.error, TimedOut)

    def _retries(self, key: str, *, unknown: bool = False) -> bool:
        """Whether to run an item with a recorded failure again, or with an `unknown` outcome."""
        context = self._context
        if self._repeats and not unknown:
            return True
        retries = context.retry_unknown if unknown else context.retry_failed
        return retries and (not context.retry_keys or key in context.retry_keys)

    async def fetch(self, items: Sequence[ItemState]) -> dict[int, Outcome[Any]]:
        """Read outcomes back that this driver recorded and dropped from memory."""
        paths = {item.path: item for item in items}
        found = await self._read(lambda store, run: store.recorded(run, list(paths)))
        types = self._context.types
        return {
            paths[path].index: restore(recorded, types, key=paths[path].key)
            for path, recorded in found.items()
        }

    async def _read(self, query: Callable[[Any, str], Any]) -> Any:
        context = self._context
        if self._writer is None or context.row is None:
            return {}
        run_id = context.row.id
        return await self._writer.read(lambda: query(context.store, run_id))

    def _storable(self, item: ItemState, outcome: Done[Any]) -> tuple[Outcome[Any], str | None]:
        """The outcome as it will be read back, and its text.

        It is a failure that names the item if the value can't be encoded.
        """
        if not self.stored:
            return outcome, None
        value = outcome.value
        if self._context.redact is not None:
            value = self._context.redact(item.path, value)
        try:
            body = codec.encode(value, item.path)
        except CannotStore as error:
            failed = Failed(
                outcome.index, outcome.key, error, outcome.lane, outcome.usage, outcome.times
            )
            return failed, codec.encode_error(error)
        read = codec.read_back(value, body)
        if read is not outcome.value:
            # Constructed directly: dataclasses.replace takes as long as the commit of an event.
            outcome = Done(
                outcome.index, outcome.key, read, outcome.lane, outcome.usage, outcome.times
            )
        return outcome, body

    async def _compare_with_recorded(
        self, fingerprint: str, options: MapOptions, *, is_ours: bool
    ) -> None:
        started = await self._read(
            lambda store, run: store.events(run, kinds={MAP_STARTED}, prefix=self._path)
        )
        before = next(
            (event.data.get("function") for event in started if event.path == self._path),
            fingerprint,
        )
        is_comparable = (
            str(before).partition(":")[0] == fingerprint.partition(":")[0] and not is_ours
        )
        if before != fingerprint and is_comparable:
            warnings.warn(
                f"{self._path}: the function changed since outcomes were recorded; "
                "they are kept as they are",
                FunctionChanged,
                stacklevel=2,
            )
        if options.effect == "once":
            events = await self._read(
                lambda store, run: store.events(
                    run, kinds={ITEM_STARTED}, prefix=self._path, limit=1_000_000
                )
            )
            self._in_doubt = frozenset(event.path for event in events)


def _listed(keys: Sequence[str]) -> str:
    more = len(keys) - MAX_KEYS_IN_MESSAGE
    shown = ", ".join(keys[:MAX_KEYS_IN_MESSAGE]) + (f" and {more} more" if more > 0 else "")
    return f"item {shown}" if len(keys) == 1 else f"items {shown}"


def _fingerprint(fn: Any) -> str:
    """A digest of a function's code, prefixed with the interpreter that compiled it.

    Digests of different interpreters can't be compared.
    """
    version = f"{sys.implementation.cache_tag}"
    code = getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
    if code is None:
        return f"{version}:{getattr(fn, '__qualname__', type(fn).__qualname__)}"
    return f"{version}:{hashlib.blake2b(_code_bytes(code), digest_size=8).hexdigest()}"


def _code_bytes(code: CodeType) -> bytes:
    """A function's code and constants, with those of inner functions, without line numbers."""
    consts = b"".join(
        _code_bytes(c) if isinstance(c, CodeType) else repr(c).encode() for c in code.co_consts[0:]
    )
    return code.co_code + consts + repr(code.co_names).encode()
