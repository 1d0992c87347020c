"""Leases: a driver renews the leases of its runs, and loses them if it is gone for too long."""

import logging
import threading
from collections.abc import Callable
from uuid import uuid4

from abreast.core.errors import StoreError
from abreast.core.frozen import record

_logger = logging.getLogger(__name__)


@record(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease lasts without a renewal, and how often it is renewed, in seconds."""

    lasts: float = 15.0
    renewed: float = 3.0


LEASE_TIMES = LeaseTimes()
CLOSE_TIMEOUT = 1.0  # seconds to wait for a renewal in progress


class Leases:
    """The leases that one store holds; a thread renews them for as long as there are any."""

    def __init__(self, renew: Callable[[list[str]], None], times: LeaseTimes) -> None:
        """`renew` is called with the tokens of all leases, in the thread."""
        self.times = times
        self._renew = renew
        self._held: dict[str, tuple[int, str]] = {}  # the run's id -> its number and token
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._held)

    @staticmethod
    def new_token() -> str:
        """A token that no other driver has."""
        return uuid4().hex

    def add(self, run_id: str, number: int, token: str) -> None:
        """Renew the lease with this token from now on."""
        with self._guard:
            self._held[run_id] = (number, token)
            if self._thread is None:
                # A daemon, so that a server that hangs can't keep the process from ending.
                self._thread = threading.Thread(
                    target=self._keep_renewing, name="abreast-leases", daemon=True
                )
                self._thread.start()

    def number(self, run_id: str) -> int | None:
        """The number of a run whose lease is held."""
        held = self._held.get(run_id)
        return held[0] if held else None

    def drop(self, run_id: str) -> str | None:
        """Renew a run's lease no more; returns its token, or None if it was not held."""
        with self._guard:
            held = self._held.pop(run_id, None)
        return held[1] if held else None

    def close(self) -> list[str]:
        """Stop renewing; returns the tokens of the leases that were held."""
        self._closing.set()
        with self._guard:
            tokens = [token for _, token in self._held.values()]
            self._held.clear()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT)
        return tokens

    def _keep_renewing(self) -> None:
        while not self._closing.wait(self.times.renewed):
            with self._guard:
                tokens = [token for _, token in self._held.values()]
            if not tokens:
                continue
            try:
                self._renew(tokens)
            except StoreError as error:
                # A commit reports what is wrong, or that another driver has the run by now.
                _logger.info("leases were not renewed: %s", error)
