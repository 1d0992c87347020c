"""Keeps a driver's share of a lane up to date: a thread that exchanges reports for grants.

It reports at once when a call waits or a permit is free again, at most every `MIN_INTERVAL`
seconds, and otherwise as a sign of life. Closed, it gives everything back.
"""

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Final, Protocol

from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.errors import StoreCorrupt, StoreError
from abreast.limits.shared.exchange import exchange, leave
from abreast.limits.shared.ledger import Grant, Report, ledger_text, read_ledger
from abreast.limits.shared.share import LaneShare

MIN_INTERVAL: Final = 0.03  # seconds between two reports
HEARTBEAT: Final = 1.5  # seconds between reports of a holder that has nothing to tell

_log = logging.getLogger("abreast")


class Ledgers(Protocol):
    """What keeps the ledgers: a store."""

    def change_ledger(self, name: str, change: Callable[[str | None, float], str]) -> None:
        """Replace the text under a name by `change(text, now)`, in one transaction.

        `now` is the time of the store, in seconds since 1970. `change` may be called again if the
        transaction has to be repeated.
        """


class LaneExchanger:
    """Exchanges the reports of one share with a ledger, in a thread that runs while it is used."""

    def __init__(self, share: LaneShare, ledgers: Ledgers, clock: Clock = SYSTEM_CLOCK) -> None:
        """Reports are sent from the first `wake` of the share on."""
        self.share = share
        self._ledgers = ledgers
        self._clock = clock
        self._holder = uuid.uuid4().hex
        self._number = 0
        self._unsent: Report | None = None  # a report whose exchange has failed
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        share.wake = self.wake

    def wake(self) -> None:
        """Report soon."""
        if self._wanted.is_set():
            return
        self._wanted.set()
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(
                    target=self._run, name=f"abreast-lane-{self.share.name}", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Give everything back and stop; waits until it is done."""
        self._stopping.set()
        self._wanted.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def exchange_once(self) -> None:
        """Send one report and accept the grant; raises `StoreError`, after which it is repeated."""
        report = self._next_report()
        grants: list[Grant] = []

        def change(text: str | None, now: float) -> str:
            ledger, grant = exchange(read_ledger(text), self.share.terms, report, now)
            grants.append(grant)
            return ledger_text(ledger)

        asked_at = self._clock.now()
        self._ledgers.change_ledger(self.share.name, change)
        self._unsent = None
        self.share.accept(grants[-1], asked_at)

    def leave(self) -> None:
        """End the lease: everything goes back to the ledger."""
        if self._unsent is not None:  # the ledger may have it already
            self.exchange_once()
        report = self._next_report()
        self._ledgers.change_ledger(
            self.share.name,
            lambda text, now: ledger_text(leave(read_ledger(text), report, now)),
        )
        self._unsent = None

    def _next_report(self) -> Report:
        if self._unsent is None:
            self._number += 1
            self._unsent = self.share.report(self._holder, self._number)
        return self._unsent

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.clear()
            try:
                self.exchange_once()
            except StoreCorrupt as error:
                self.share.park(str(error))
            except StoreError as error:
                _log.warning("lane %s: %s", self.share.name, error)
            self._stopping.wait(MIN_INTERVAL)
            self._wanted.wait(HEARTBEAT)
        try:
            self.leave()
        except StoreError as error:  # the lease ends by itself
            _log.warning("lane %s: %s", self.share.name, error)
