"""The runs that pages are open on: each folded once, however many pages there are, and only what is new is read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.store.port import RunRow, Store
from abreast.views.run_view import RunView
from abreast.web.job_views import Told

_FOLDS: Final = 6  # kept; a page on another run is read from its start again
_WINDOWS: Final = 8  # pictures kept of a run that is over
_PAGE: Final = 2000  # events read at once
_QUIET: Final = 5  # looks without an event before it is asked whether anybody drives the run
GLANCE: Final = 0.25
"""Seconds of reading between two answers: a long journal is shown while it is still being read."""


class _Last(OrderedDict[tuple[float, float, int], dict[str, object]]):
    """The windows that were asked for last."""

    def __setitem__(self, asked: tuple[float, float, int], seen: dict[str, object]) -> None:
        super().__setitem__(asked, seen)
        if len(self) > _WINDOWS:
            self.popitem(last=False)


class OpenRun:
    """One run, as far as it is read."""

    def __init__(self, store: Store, row: RunRow) -> None:
        """Nothing is read yet."""
        self.row = row
        self.fold = RunView()
        self.job = Told(row.kind)
        self.lock = threading.Lock()
        self.state: str = row.state
        self.caught_up = False
        self.version = 0
        self.windows: _Last = _Last()
        self._store = store
        self._quiet = 0
        self._kinds = RunView.KINDS if row.state == "running" else RunView.ENOUGH
        self._after = 0
        self._looked = -GLANCE

    @property
    def over(self) -> bool:
        """Whether nothing more will happen unless somebody resumes the run."""
        return self.state != "running"

    @property
    def now(self) -> float:
        """The run's own time."""
        return (
            self.fold.now
            if self.over or not self.caught_up
            else self.fold.time.at(SYSTEM_CLOCK.wall())
        )

    def look(self, seconds: float = GLANCE) -> bool:
        """Take in what is new, for at most so long.

        Whether anything was. The caller holds the lock.
        """
        self._looked = SYSTEM_CLOCK.now()
        row = self._store.get(
            self.row.id
        )  # before the events: its end is not believed until all before it are read
        before = (self.version, self.state, self.caught_up)
        self._read(row, seconds)
        self.row = row
        if self.caught_up:
            self._see_driver(row)
        return before != (self.version, self.state, self.caught_up)

    def look_if_old(self) -> None:
        """The same, unless somebody has looked a moment ago: a program may ask for a part and for nothing else."""
        if not self.caught_up or SYSTEM_CLOCK.now() - self._looked > 2 * GLANCE:
            self.look()

    def _read(self, row: RunRow, seconds: float) -> None:
        if row.state == "running" and self._kinds is not RunView.KINDS:
            self._kinds = RunView.KINDS  # it was resumed
        until = SYSTEM_CLOCK.now() + seconds
        while row.last_seq > self._after:
            page = self._store.events(row.id, after=self._after, limit=_PAGE, kinds=self._kinds)
            for event in page:
                self.fold.add(event)
            self.version += bool(page)
            self.windows.clear()
            self._after = (
                page[-1].seq
                if len(page) == _PAGE
                else max(row.last_seq, page[-1].seq if page else 0)
            )
            if SYSTEM_CLOCK.now() > until:
                break
        self.caught_up = row.last_seq <= self._after

    def _see_driver(self, row: RunRow) -> None:
        """Whether a run that seems to run is driven.

        Asking takes a lock for a moment, so it is asked seldom.
        """
        if row.state != "running":
            self.state, self._quiet = row.state, 0
            return
        self._quiet += 1
        if self.state == "running" and self.version and self._quiet % _QUIET != 1:
            return
        driven = self._store.driven(row.id)
        if (
            not driven
            and self.state != "crashed"
            and self._store.get(row.id).last_seq == self._after
        ):
            self.fold.cut()
            self.version += 1
        self.state = "running" if driven else "crashed"

    @property
    def progress(self) -> float:
        """How much of the journal is read, from 0 to 1."""
        return 1.0 if self.caught_up else self._after / max(1, self.row.last_seq)


class StoreReader:
    """The books that are in use."""

    def __init__(self, store: Store) -> None:
        """Empty."""
        self.store = store
        self._books: OrderedDict[str, OpenRun] = OrderedDict()
        self._lock = threading.Lock()

    def book(self, run_id: str) -> OpenRun:
        """The book of a run, new if need be; `NoSuchRun` if there is no such run."""
        row = self.store.get(run_id)
        with self._lock:
            book = self._books.get(run_id)
            if book is None or book.row.created != row.created:
                book = self._books[run_id] = OpenRun(self.store, row)
            self._books.move_to_end(run_id)
            while len(self._books) > _FOLDS:
                self._books.popitem(last=False)
        return book
