"""How many calls a provider takes at once: found by trying, where nobody says it."""

from __future__ import annotations

from math import inf

_PATIENCE = 100  # calls at the limit before one more is tried
_MOST_PATIENCE = 1600
_EAGER = 8  # calls, once one more than before was let in


class ConcurrencySearch:
    """A limit that grows while it is reached and nobody complains.

    Never below 1, nor above the user's `cap`.
    """

    def __init__(self, start: int = 4, cap: int | None = None, known: int | None = None) -> None:
        """The first call goes alone.

        Once it got through, there is room for `start`. `known` were let in before.
        """
        self.limit = known or 1
        self._start = start
        self._cap = cap
        self._most = 0
        self._ceiling: int | None = None  # in flight when one more was too many
        self._epoch = 0
        self._good = 0
        self._patience = _PATIENCE
        self._full_at = -inf
        self._alone = 0  # times in a row that a call was one too many though no other was in flight
        self.hold = -inf

    @property
    def proven(self) -> int | None:
        """How many were in flight without a complaint; None while nobody knows."""
        most = min(self.limit, self._most)
        return most or None

    def has_room(self, flying: int, now: float) -> bool:
        """Whether one more may go."""
        if flying < (self.limit if self._cap is None else min(self.limit, self._cap)):
            return True
        self._full_at = now
        return False

    def sent(self, flying: int) -> None:
        """So many are in flight now."""
        self._most = max(self._most, flying)

    def accept(self, sent: float, *, ended: bool) -> None:
        """A call that was sent then was let in.

        It counts if there was no room for another since.
        """
        self._alone = 0
        if self._full_at < sent:
            return
        if self._ceiling is None:
            if self._cap is None or self.limit < self._cap:
                self.limit = max(self.limit + (1 if ended else 2), self._start)
            return
        self._good += 1
        if self._good >= self._patience:
            self._good = 0
            self.limit += 1
            if self.limit > self._ceiling + 1:  # it is higher than it was
                self._patience = _EAGER
                if self.limit > 1.25 * self._ceiling + 2:
                    self._ceiling = None

    def reject(
        self, serial: int, last: int, flying: int, pause: tuple[float, float | None, float]
    ) -> bool:
        """A call was one too many beside `flying` others; whether that is news.

        `pause` is the time, the wait that the server asks for, and how long a second is: who was turned away with no
        other in flight (they are somebody else's) has nothing of its own to wait for.
        """
        if not flying:
            now, wait, tick = pause
            self.hold = now + (tick * min(15.0, 0.5 * 2.0**self._alone) if wait is None else wait)
            self._alone = min(self._alone + 1, 10)
        if serial <= self._epoch:
            return False
        self._epoch = last
        again = self._ceiling is not None and abs(flying - self._ceiling) <= 1
        self.limit = self._ceiling = max(1, flying)
        self._good = 0
        self._patience = min(_MOST_PATIENCE, 2 * self._patience) if again else _PATIENCE
        return True
