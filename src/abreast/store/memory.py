"""The store in memory: the same contract as on disk, for tests and for short-lived runs."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from abreast.core.errors import StoreError
from abreast.core.events import Event
from abreast.store.atomic_file import write_atomically
from abreast.store.memory_run import MemoryRun, check_text, columns_of, outcome_of, row_of
from abreast.store.os_errors import as_store_error
from abreast.store.port import (
    PRUNED,
    ControlRequest,
    Driver,
    JsonValue,
    Recorded,
    Replies,
    RunRow,
    RunState,
)
from abreast.store.rows import (
    already,
    busy,
    driver_text,
    event_row,
    facts_of,
    facts_text,
    is_beneath,
    no_such_run,
    replaced,
)


class MemoryStore:
    """Runs in memory, lost with the object.

    Any thread may use it; `close` only stops driving its runs. Everything is stored as text and
    tuples, so objects that a caller changes later don't change the store.
    """

    def __init__(self) -> None:
        """Start with no runs."""
        self.url = "memory:"
        self._lock = threading.RLock()
        self._names: dict[str, int] = {}
        self._runs: dict[str, MemoryRun] = {}
        self._driven: set[str] = set()
        self._requests: dict[int, tuple[str, str, str, float]] = {}
        self._last_request = 0
        self._replies: dict[str, tuple[str, str, float]] = {}

    def __repr__(self) -> str:
        """Show how many runs it holds and drives."""
        return f"<MemoryStore of {len(self._runs)} runs, driving {len(self._driven)}>"

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
        """Create a run, driven by `driver`; its id is `run_id`, or `name-N` if None."""
        check_text(name, kind, run_id or "")
        with self._lock:
            if run_id in self._runs:
                raise already(run_id)
            count = self._names.get(name, 0)
            while run_id is None or run_id in self._runs:
                count += 1
                run_id = f"{name}-{count}"
            columns = {
                "id": run_id,
                "name": name,
                "kind": kind,
                "state": "running",
                "seed": seed,
                "epoch": 1,
                "created": driver.since,
                "ended": None,
                "last_seq": 0,
                "driver": driver_text(driver),
                "reason": "",
                "tags": facts_text(list(tags)),
                "spent": "{}",
                "manifest": facts_text(manifest),
            }
            self._names[name] = count
            self._runs[run_id] = MemoryRun(columns, driver.since)
            self._driven.add(run_id)
            return self.get(run_id)

    def take_over(self, run_id: str, driver: Driver) -> RunRow:
        """Become the driver of an existing run: its epoch goes up by one.

        Raises `RunBusy` if it has another driver.
        """
        with self._lock:
            columns = self._free(run_id).columns
            columns["epoch"] += 1
            columns |= {
                "driver": driver_text(driver),
                "state": "running",
                "reason": "",
                "ended": None,
            }
            self._driven.add(run_id)
            return self.get(run_id)

    def driven(self, run_id: str) -> bool:
        """Whether the run is driven now."""
        with self._lock:
            self.get(run_id)
            return run_id in self._driven

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        """Write events, all or none. `DriverReplaced` if the epoch is no longer the run's."""
        rows = [columns_of(event) for event in events]
        text = facts_text(spent)
        with self._lock:
            kept = self._mine(run_id, epoch)
            seqs = {row[0] for row in rows}
            if len(seqs) < len(rows) or not seqs.isdisjoint(kept.events):
                raise StoreError(
                    "memory: has an event of that number already: "
                    "what is recorded is never written over"
                )
            kept.add(rows)
            kept.columns["spent"] = text
            if events:
                kept.columns["last_seq"] = max(kept.columns["last_seq"], events[-1].seq)
                kept.beat = max(kept.beat, events[-1].wall)

    def sync(self) -> None:
        """Does nothing: there is no disk."""

    def end(self, run_id: str, epoch: int, state: RunState, reason: str, at: float) -> None:
        """Record how the run ended, and stop driving it."""
        with self._lock:
            self._mine(run_id, epoch).columns |= {
                "state": state,
                "reason": reason,
                "ended": at,
                "driver": None,
            }
            self._driven.discard(run_id)

    def let_go(self, run_id: str) -> None:
        """Stop driving the run without recording anything (as a crash would)."""
        with self._lock:
            self._driven.discard(run_id)

    def newest(self, name: str) -> RunRow | None:
        """The newest run with that name."""
        return next(iter(self.runs(name=name, limit=1)), None)

    def get(self, run_id: str) -> RunRow:
        """The run with that id; `NoSuchRun` names some that exist."""
        with self._lock:
            return row_of(self._kept(run_id))

    def runs(
        self,
        *,
        name: str | None = None,
        state: str | None = None,
        tag: str | None = None,
        limit: int = 100,
    ) -> list[RunRow]:
        """Runs, newest first."""
        with self._lock:
            rows = [row_of(kept) for kept in reversed(self._runs.values())]
        return [
            row
            for row in rows
            if name in (None, row.name)
            and state in (None, row.state)
            and (tag is None or tag in row.tags)
        ][:limit]

    def recorded(self, run_id: str, paths: Collection[str]) -> dict[str, Recorded]:
        """The recorded outcomes of exactly these paths."""
        with self._lock:
            kept = self._kept(run_id)
            return {
                path: outcome_of(kept.events[kept.settled[path]])
                for path in paths
                if path in kept.settled
            }

    def outcomes(
        self, run_id: str, *, prefix: str = "", after: int = 0, limit: int = 1000
    ) -> list[Recorded]:
        """The newest outcome of each path beneath `prefix`, in order of `seq`, after that `seq`."""
        with self._lock:
            settled = self._kept(run_id).settled
            newest = [
                row for row in self._kept(run_id).after(after) if settled.get(row[2]) == row[0]
            ]
        return [outcome_of(row) for row in newest if is_beneath(row[2], prefix)][:limit]

    def count_states(self, run_id: str, most: int) -> dict[str, int]:
        """How many items are in each state, counting at most `most` of the newest outcomes."""
        return dict(
            Counter(str(found.data.get("state", "")) for found in self.outcomes(run_id, limit=most))
        )

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
        with self._lock:
            rows = list(self._kept(run_id).after(after))
        wanted = [
            row for row in rows if (not kinds or row[1] in kinds) and is_beneath(row[2], prefix)
        ]
        return [event_row(row) for row in wanted[:limit]]

    def ask(self, run_id: str, kind: str, data: Mapping[str, JsonValue], at: float) -> int:
        """Store a request for the run's driver; returns its id."""
        with self._lock:
            self._kept(run_id)
            self._last_request += 1
            self._requests[self._last_request] = (run_id, kind, facts_text(data), at)
            return self._last_request

    def asked(self, run_id: str) -> list[ControlRequest]:
        """Requests not yet carried out, oldest first."""
        with self._lock:
            self._kept(run_id)
            mine = [
                (number, request)
                for number, request in self._requests.items()
                if request[0] == run_id
            ]
        return [
            ControlRequest(number, run_id, kind, facts_of(data), at)
            for number, (_, kind, data, at) in mine
        ]

    def answer(self, request_id: int, at: float) -> None:  # noqa: ARG002 - by the Store port
        """Mark a request as carried out."""
        with self._lock:
            self._requests.pop(request_id, None)

    def find_reply(self, key: str) -> str | None:
        """The cached reply with that key, if there is one."""
        with self._lock:
            found = self._replies.get(key)
        return found[1] if found else None

    def keep_reply(self, key: str, model: str, body: str, at: float) -> None:
        """Cache a model's reply under a key."""
        with self._lock:
            self._replies[key] = (model, body, at)

    def replies(self) -> list[Replies]:
        """Statistics of the cached replies, by model."""
        with self._lock:
            kept = sorted(self._replies.values())
        found = []
        for model, group in groupby(kept, key=itemgetter(0)):
            mine = list(group)
            times = [at for _, _, at in mine]
            found.append(
                Replies(
                    model, len(mine), sum(len(body) for _, body, _ in mine), min(times), max(times)
                )
            )
        return found

    def forget_replies(self, before: float, model: str | None = None) -> int:
        """Delete replies cached before that time, of one model or of all; returns how many."""
        with self._lock:
            gone = [
                key
                for key, (of, _, at) in self._replies.items()
                if at < before and model in (None, of)
            ]
            for key in gone:
                del self._replies[key]
        return len(gone)

    def remove(self, run_id: str) -> None:
        """Delete a run and all its records. `RunBusy` while it is driven."""
        with self._lock:
            self._free(run_id)
            del self._runs[run_id]
            self._requests = {
                number: request
                for number, request in self._requests.items()
                if request[0] != run_id
            }

    def prune(self, before: float, states: Collection[RunState] = PRUNED) -> list[str]:
        """Remove the runs in these states that ended before that time and aren't driven.

        Returns their ids, oldest first.
        """
        with self._lock:
            old = [
                run_id
                for run_id, kept in self._runs.items()
                if kept.columns["state"] in states
                and run_id not in self._driven
                and (kept.beat if kept.columns["ended"] is None else kept.columns["ended"]) < before
            ]
            for run_id in old:
                self.remove(run_id)
        return old

    def backup(self, path: str) -> None:
        """Write a copy of the whole store to `path`, as JSON, which `MemoryStore.load` reads."""
        with self._lock:
            whole = json.dumps(
                {
                    "names": self._names,
                    "asked": self._last_request,
                    "requests": list(self._requests.items()),
                    "runs": [
                        (kept.columns, kept.beat, list(kept.after(0)))
                        for kept in self._runs.values()
                    ],
                }
            )
        with write_atomically(Path(path)) as part:
            part.write_text(whole, "utf-8")

    @classmethod
    def load(cls, path: str) -> MemoryStore:
        """A store with the contents of a `backup`; its runs are not driven."""
        with as_store_error(path):
            whole = json.loads(Path(path).read_text("utf-8"))
        store = cls()
        store._names, store._last_request = whole["names"], whole["asked"]
        store._requests = {number: tuple(request) for number, request in whole["requests"]}
        for columns, beat, rows in whole["runs"]:
            kept = store._runs[columns["id"]] = MemoryRun(columns, beat)
            kept.add([tuple(row) for row in rows])
        return store

    def vacuum(self) -> None:
        """Does nothing: memory is freed as runs are removed."""

    def close(self) -> None:
        """Stop driving all runs; a second call does nothing."""
        with self._lock:
            self._driven.clear()

    def _kept(self, run_id: str) -> MemoryRun:
        kept = self._runs.get(run_id)
        if kept is None:
            raise no_such_run(run_id, reversed(self._runs))
        return kept

    def _free(self, run_id: str) -> MemoryRun:
        kept = self._kept(run_id)
        if run_id in self._driven:
            raise busy(row_of(kept))
        return kept

    def _mine(self, run_id: str, epoch: int) -> MemoryRun:
        kept = self._kept(run_id)
        if kept.columns["epoch"] != epoch:
            raise replaced(row_of(kept), epoch)
        return kept
