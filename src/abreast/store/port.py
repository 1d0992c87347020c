"""The Store port: an append-only journal of events, whose outcomes are an index by (run, path).

Stores are plain and synchronous: every method blocks until it is done, may be called from any thread, and raises a
`StoreError` in one clear sentence. Who waits, in which thread, and how commits are grouped is decided once, by
`abreast.store.writer`, for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, Protocol, TypeAlias

from abreast.core.events import Event
from abreast.core.frozen import record

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"

RunState: TypeAlias = Literal[
    "running", "done", "failed", "halted", "spent", "cancelled", "interrupted", "paused"
]

PRUNED: Final[tuple[RunState, ...]] = ("done", "failed", "halted", "spent", "cancelled")
"""The states that are pruned unless others are named: interrupted and paused runs wait for someone."""


@record(frozen=True, slots=True)
class Driver:
    """Who drives a run: enough to name it to a person, and to see whether it is still alive."""

    pid: int
    host: str
    since: float
    command: str = ""

    def __str__(self) -> str:
        """As it is named in `RunBusy`."""
        return f"process {self.pid} on {self.host}" + (f" ({self.command})" if self.command else "")


@record(frozen=True, slots=True)
class RunRow:
    """One run, as the store knows it.

    `epoch` counts its drivers: each commit proves that it is the newest one's.
    """

    id: str
    name: str
    kind: str
    state: RunState
    seed: int
    epoch: int
    created: float
    ended: float | None = None
    last_seq: int = 0
    driver: Driver | None = None
    reason: str = ""
    tags: tuple[str, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    manifest: Mapping[str, JsonValue] = field(default_factory=dict)


@record(frozen=True, slots=True)
class Recorded:
    """What is recorded of one item: the newest `item-settled` event of its path."""

    path: str
    seq: int
    lane: str | None
    data: Mapping[str, JsonValue]
    body: str | None


@record(frozen=True, slots=True)
class ControlRequest:
    """A wish of another process (`cancel`, `approve`, `retune`), which only the driver carries out."""

    id: int
    run_id: str
    kind: str
    data: Mapping[str, JsonValue]
    created: float


@record(frozen=True, slots=True)
class Replies:
    """How many replies of one model are kept, how many characters they take, and when they were kept."""

    model: str
    count: int
    characters: int
    oldest: float
    newest: float


class Store(Protocol):
    """Where runs are kept. One contract, held by one test suite over every adapter."""

    url: str

    def begin(
        self,
        name: str,
        *,
        kind: str,
        seed: int,
        manifest: Mapping[str, JsonValue],
        tags: Sequence[str],
        driver: Driver,
        run_id: str | None = None,
    ) -> RunRow:
        """Make a new run, driven by `driver`; it is on disk when this returns.

        Its id is `name-N`, or just the `run_id` that is given; `RunExists` if there is a run of
        that id.
        """

    def take_over(self, run_id: str, driver: Driver) -> RunRow:
        """Become the driver of an existing run: its epoch goes up by one.

        `RunBusy` if another is alive on it.

        What the driver before had only jotted down is committed.
        """

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        """Write events in one transaction. `DriverReplaced` if the epoch is no longer the run's.

        When this returns they survive the end of this process; after the next `sync`, that of the
        machine too.
        """

    def jot(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> bool:
        """Note events, quickly, so that they survive the end of this process.

        False, and nothing noted, if it can't.

        They are to be committed all the same. Whoever takes the run over commits first what was
        only noted, as long as no event is missing: once this has said False, everything up to then
        must be committed before it is asked again.
        """

    def sync(self) -> None:
        """See to it that everything committed so far is on disk.

        Any thread may call it, beside a commit.
        """

    def end(self, run_id: str, epoch: int, state: RunState, reason: str, at: float) -> None:
        """Say how the driving ended, and let go of the run."""

    def let_go(self, run_id: str) -> None:
        """Drop this process's hold on the run without a word (as a crash would)."""

    def driven(self, run_id: str) -> bool:
        """Whether somebody alive drives the run right now.

        A `running` run without a driver has crashed.
        """

    def prune(self, before: float, states: Collection[RunState] = PRUNED) -> list[str]:
        """Remove the runs in these states that ended before that time; their ids."""

    def newest(self, name: str) -> RunRow | None:
        """The newest run of that name."""

    def get(self, run_id: str) -> RunRow:
        """The run of that id; `NoSuchRun` names some that exist."""

    def runs(
        self,
        *,
        name: str | None = None,
        state: str | None = None,
        tag: str | None = None,
        limit: int = 100,
    ) -> list[RunRow]:
        """Runs, newest first."""

    def recorded(self, run_id: str, paths: Collection[str]) -> dict[str, Recorded]:
        """What is recorded under just these paths."""

    def outcomes(
        self, run_id: str, *, prefix: str = "", after: int = 0, limit: int = 1000
    ) -> list[Recorded]:
        """The newest outcome of each path beneath `prefix`, in order of `seq`, from after that `seq`."""

    def count_states(self, run_id: str, most: int) -> dict[str, int]:
        """How many items are in each state, by their newest outcomes, of which at most `most` are looked at."""

    def events(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        kinds: Collection[str] = (),
        prefix: str = "",
    ) -> list[Event]:
        """Events in order of `seq`, from after that one."""

    def ask(self, run_id: str, kind: str, data: Mapping[str, JsonValue], at: float) -> int:
        """Leave a request for the run's driver; its id."""

    def asked(self, run_id: str) -> list[ControlRequest]:
        """Requests not yet carried out, oldest first."""

    def answer(self, request_id: int, at: float) -> None:
        """Mark a request as carried out."""

    def find_reply(self, key: str) -> str | None:
        """The reply kept under a key, if there is one."""

    def keep_reply(self, key: str, model: str, body: str, at: float) -> None:
        """Keep a model's reply under a key; it is on disk when this returns."""

    def replies(self) -> list[Replies]:
        """What is kept, by model."""

    def forget_replies(self, before: float, model: str | None = None) -> int:
        """Forget replies kept before that time, of one model or of all; how many."""

    def remove(self, run_id: str) -> None:
        """Delete a run and all that is recorded of it. `RunBusy` while it is driven."""

    def backup(self, path: str) -> None:
        """Write a consistent copy of the whole store to `path`."""

    def vacuum(self) -> None:
        """Give the room of removed runs back to the disk."""

    def close(self) -> None:
        """Close it; harmless the second time."""


def each_event(
    store: Store, run_id: str, kinds: Collection[str] = (), *, after: int = 0, page: int = 1000
) -> Iterator[Event]:
    """All events of a run, or those of some kinds, a page at a time."""
    while batch := store.events(run_id, after=after, limit=page, kinds=kinds):
        yield from batch
        after = batch[-1].seq


def each_outcome(
    store: Store, run_id: str, *, prefix: str = "", page: int = 1000
) -> Iterator[Recorded]:
    """All recorded outcomes beneath `prefix`, a page at a time."""
    after = 0
    while batch := store.outcomes(run_id, prefix=prefix, after=after, limit=page):
        yield from batch
        after = batch[-1].seq
