"""Checks all rows of a store against their checksums, and copies runs that are whole."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from abreast.core.errors import NoSuchRun, RunBusy, StoreDamaged
from abreast.core.events import ITEM_SETTLED, MAP_ENDED
from abreast.core.frozen import record
from abreast.core.item import position_key
from abreast.store.checksums import ChainCheck, Fault, StoredEvent, StoredRun, named, run_fault
from abreast.store.port import Store
from abreast.store.rows import facts_of

Verdict: TypeAlias = Literal["ok", "unchecked", "damaged"]


@record(frozen=True, slots=True)
class RunCheck:
    """What a check of one run found; a run with some rows of before is `unchecked`."""

    run_id: str
    events: int
    checked: int
    faults: tuple[Fault, ...]
    lost: tuple[str, ...]
    """The items whose outcomes are not whole, as far as they can be named."""

    @property
    def verdict(self) -> Verdict:
        """Whether all its rows are as they were written."""
        if self.faults:
            return "damaged"
        return "ok" if self.checked == self.events else "unchecked"


@record(frozen=True, slots=True)
class StoreCheck:
    """What a check of a store found: in the file as a whole, and in each run."""

    faults: tuple[str, ...]
    runs: tuple[RunCheck, ...]

    @property
    def is_whole(self) -> bool:
        """Whether no damage was found."""
        return not self.faults and not any(run.faults for run in self.runs)


class RunSieve:
    """Lets the whole events of a run pass, and remembers what is wrong with the others."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._chain = ChainCheck(str(run.id), run.checked_from)
        self._checked = self._events = 0
        self._lost: list[str] = []
        self._seen: dict[str, set[int]] = {}  # the indexes of the outcomes of each map
        self._named: set[str] = set()  # maps whose items have keys of their own
        self._released: dict[str, int] = {}  # how many outcomes each map gave out

    def whole(self, events: Iterable[StoredEvent]) -> Iterator[StoredEvent]:
        """The events that are as they were written, or have no checksum."""
        for event in events:
            self._events += 1
            self._checked += event.sum is not None
            if self._chain.add(event):
                self._note(event)
                yield event
            elif event.kind == ITEM_SETTLED:
                self._lost.append(str(event.path))

    def result(self) -> RunCheck:
        """What was found; call it after the last event."""
        run, chain = self._run, self._chain
        fault = run_fault(run)
        if fault is None:
            chain.finish(run.last_seq, run.tail, run.settled)
        faults = [*([fault] if fault else []), *chain.faults]
        lost = self._lost + (self._missing() if faults else [])
        return RunCheck(
            str(run.id), self._events, self._checked, tuple(faults), tuple(dict.fromkeys(lost))
        )

    def _note(self, event: StoredEvent) -> None:
        if event.kind == ITEM_SETTLED:
            index = facts_of(event.data).get("index")
            path, _, key = event.path.rpartition("/")
            if isinstance(index, int):
                self._seen.setdefault(path, set()).add(index)
                if key != position_key(index):
                    self._named.add(path)
        elif event.kind == MAP_ENDED:
            released = facts_of(event.data).get("released")
            self._released[event.path] = released if isinstance(released, int) else 0

    def _missing(self) -> list[str]:
        """The items of a map of which there is no outcome, and others after them have one."""
        missing = [
            f"item {index} of {path}" if path in self._named else f"{path}/{position_key(index)}"
            for path in dict.fromkeys((*self._seen, *self._released))
            for index in range(self._count(path))
            if index not in self._seen.get(path, ())
        ]
        return missing if len(missing) > len(self._lost) else []

    def _count(self, path: str) -> int:
        """How many items a map gave out, or has to have had."""
        return max(self._released.get(path, 0), max(self._seen.get(path, ()), default=-1) + 1)


def check_store(store: Store, run_id: str | None = None) -> StoreCheck:
    """Check all runs, or one, and the file as a whole; reads every row.

    Raises `NoSuchRun` if there is no run of that id.
    """
    runs = [run for run in store.stored_runs() if run_id in (None, run.id)]
    if run_id is not None and not runs:
        raise NoSuchRun(f"there is no run {run_id!r} in {store.url}")
    return StoreCheck(tuple(store.integrity_faults()), tuple(check_run(store, run) for run in runs))


def check_run(store: Store, run: StoredRun) -> RunCheck:
    """Check all rows of one run, also while it is being written."""
    while True:
        sieve = RunSieve(run)
        last = run.last_seq if run.state == "running" else None
        for _ in sieve.whole(store.stored_events(run.id, last)):
            pass
        found = sieve.result()
        if not found.faults:
            return found
        now = _stored(store, run.id)
        if now == run:
            return found
        run = now  # a driver took it over meanwhile


def copy_run(source: Store, run_id: str, target: Store) -> RunCheck:
    """Copy a run to another store, byte for byte, and check it there.

    Raises `RunBusy` while it is driven, `RunExists` if the target has a run of its id, and
    `StoreDamaged` if it is not whole; then nothing is copied.
    """
    if source.driven(run_id):
        raise RunBusy(f"run {run_id} is being driven: copy it when it has ended")
    run = _stored(source, run_id)
    found = check_run(source, run)
    if found.faults:
        raise StoreDamaged(f"run {run_id} in {source.url} is damaged: {named(found.faults)}")
    target.add_copy(run, source.stored_events(run_id))
    copied = check_run(target, _stored(target, run_id))
    if copied != found:
        target.remove(run_id)
        raise StoreDamaged(
            f"the copy of {run_id} in {target.url} is not what was copied, and was removed"
        )
    return copied


def _stored(store: Store, run_id: str) -> StoredRun:
    for run in store.stored_runs():
        if run.id == run_id:
            return run
    raise NoSuchRun(f"there is no run {run_id!r} in {store.url}")
