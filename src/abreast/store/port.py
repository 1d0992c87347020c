"""The Store port: an append-only journal of events, whose outcomes are an index by (run, path).

Stores are synchronous: every method blocks until it is done, may be called from any thread, and
raises a `StoreError` in one clear sentence. `abreast.store.writer` decides for all stores which
thread calls them and how commits are grouped.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, Protocol, TypeAlias

from abreast.core.errors import StoreDamaged
from abreast.core.events import Event
from abreast.core.frozen import record
from abreast.store.checksums import StoredEvent, StoredRun

OnDamage: TypeAlias = Callable[[StoreDamaged], None]

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"

RunState: TypeAlias = Literal[
    "running", "done", "failed", "halted", "spent", "cancelled", "interrupted", "paused"
]

# The states that are pruned by default; interrupted and paused runs are to be resumed.
PRUNED: Final[tuple[RunState, ...]] = ("done", "failed", "halted", "spent", "cancelled")


@record(frozen=True, slots=True)
class Driver:
    """The process that drives a run: what messages name, and what tells whether it is alive."""

    pid: int
    host: str
    since: float
    command: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" + (f" ({self.command})" if self.command else "")


@record(frozen=True, slots=True)
class RunRow:
    """One run in the store.

    `epoch` counts its drivers: each commit states its epoch and is refused if it isn't the newest.
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
    """The recorded outcome of one item: the newest `item-settled` event of its path."""

    path: str
    seq: int
    lane: str | None
    data: Mapping[str, JsonValue]
    body: str | None


@record(frozen=True, slots=True)
class ControlRequest:
    """A request of another process (`cancel`, `approve`, `retune`) to the run's driver."""

    id: int
    run_id: str
    kind: str
    data: Mapping[str, JsonValue]
    created: float


@record(frozen=True, slots=True)
class Replies:
    """Statistics of the cached replies of one model: count, characters, oldest and newest time."""

    model: str
    count: int
    characters: int
    oldest: float
    newest: float


class Store(Protocol):
    """Stores runs. One test suite checks this contract for every adapter."""

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
        """Create a run, driven by `driver`; it is on disk when this returns.

        Its id is `run_id`, or `name-N` if None; `RunExists` if there is a run with that id.
        """

    def take_over(self, run_id: str, driver: Driver) -> RunRow:
        """Become the driver of an existing run: its epoch goes up by one.

        Raises `RunBusy` if another driver of it is alive.
        """

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        """Write events in one transaction. `DriverReplaced` if the epoch is no longer the run's.

        When this returns they survive a kill of this process; after the next `sync`, a crash of the
        machine too.
        """

    def sync(self) -> None:
        """Flush everything committed so far to the disk.

        Any thread may call it, also during a commit.
        """

    def end(self, run_id: str, epoch: int, state: RunState, reason: str, at: float) -> None:
        """Record how the run ended, and stop driving it."""

    def let_go(self, run_id: str) -> None:
        """Stop driving the run without recording anything (as a crash would)."""

    def driven(self, run_id: str) -> bool:
        """Whether a live process drives the run now.

        A `running` run without a driver has crashed.
        """

    def prune(self, before: float, states: Collection[RunState] = PRUNED) -> list[str]:
        """Remove the runs in these states that ended before that time; returns their ids."""

    def newest(self, name: str) -> RunRow | None:
        """The newest run with that name."""

    def get(self, run_id: str) -> RunRow:
        """The run with that id; `NoSuchRun` names some that exist."""

    def runs(
        self,
        *,
        name: str | None = None,
        state: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        on_damage: OnDamage | None = None,
    ) -> list[RunRow]:
        """Runs, newest first.

        A damaged row of a run raises `StoreDamaged`. With `on_damage`, that is called with the
        error instead, and the run is left out.
        """

    def recorded(self, run_id: str, paths: Collection[str]) -> dict[str, Recorded]:
        """The recorded outcomes of exactly these paths."""

    def outcomes(
        self, run_id: str, *, prefix: str = "", after: int = 0, limit: int = 1000
    ) -> list[Recorded]:
        """The newest outcome of each path beneath `prefix`, in order of `seq`, after that `seq`."""

    def count_states(self, run_id: str, most: int) -> dict[str, int]:
        """How many items are in each state, counting at most `most` of the newest outcomes."""

    def events(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        kinds: Collection[str] = (),
        prefix: str = "",
    ) -> list[Event]:
        """Events after that `seq`, in order."""

    def ask(self, run_id: str, kind: str, data: Mapping[str, JsonValue], at: float) -> int:
        """Store a request for the run's driver; returns its id."""

    def asked(self, run_id: str) -> list[ControlRequest]:
        """Requests not yet carried out, oldest first."""

    def answer(self, request_id: int, at: float) -> None:
        """Mark a request as carried out."""

    def find_reply(self, key: str) -> str | None:
        """The cached reply with that key, if there is one."""

    def keep_reply(self, key: str, model: str, body: str, at: float) -> None:
        """Cache a model's reply under a key; it is on disk when this returns."""

    def replies(self) -> list[Replies]:
        """Statistics of the cached replies, by model."""

    def forget_replies(self, before: float, model: str | None = None) -> int:
        """Delete replies cached before that time, of one model or of all; returns how many."""

    def change_ledger(self, name: str, change: Callable[[str | None, float], str]) -> None:
        """Replace the ledger of a shared lane by `change(text, now)`, in one transaction.

        The text is None at first; `now` is the store's time in seconds since 1970. `change` may be
        called again if the transaction has to be repeated. On disk when this returns. Raises
        `StoreCorrupt` if the ledger is damaged.
        """

    def ledgers(self) -> dict[str, str]:
        """The ledgers of shared lanes, by name; without damaged ones, which `check` names."""

    def remove_ledger(self, name: str) -> bool:
        """Forget what is held and spent of a shared lane; False if there is no such ledger."""

    def remove(self, run_id: str) -> None:
        """Delete a run and all its records. `RunBusy` while it is driven."""

    def backup(self, path: str) -> None:
        """Write a consistent copy of the whole store to `path`."""

    def stored_runs(self) -> list[StoredRun]:
        """All runs as they are stored, oldest first; nothing is checked."""

    def stored_events(self, run_id: str, last: int | None = None) -> Iterator[StoredEvent]:
        """All events of a run as they are stored, in order, up to number `last` if given.

        Nothing is checked, and what can't be read is left out.
        """

    def add_copy(self, run: StoredRun, events: Iterable[StoredEvent]) -> None:
        """Add a run as it is stored elsewhere, in one transaction; `RunExists` if there is one.

        It is not driven afterwards, and its checksums are those of the events given.
        """

    def integrity_faults(self) -> list[str]:
        """What is wrong apart from the events and runs: a sentence for each fault."""

    def vacuum(self) -> None:
        """Give the disk space of removed runs back."""

    def close(self) -> None:
        """Close it; a second call does nothing."""


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
