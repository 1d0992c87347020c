"""How many calls a provider takes at once: found by trying, where nobody says it."""

from __future__ import annotations

from math import inf

_PATIENCE = 100  # calls at the limit before one more is tried
_MOST_PATIENCE = 1600
_EAGER = 8  # calls, once one more than before was let in


class Search:
    """A limit that grows while it is reached and nobody complains; never below 1, nor above the user's `cap`."""

    def __init__(self, start: int = 4, cap: int | None = None) -> None:
        """The first call goes alone; once it got through, there is room for `start`."""
        self.limit = 1
        self._start = start
        self._cap = cap
        self._ceiling: int | None = None  # in flight when one more was too many
        self._epoch = 0
        self._good = 0
        self._patience = _PATIENCE
        self._full_at = -inf

    def has_room(self, flying: int, now: float) -> bool:
        """Whether one more may go."""
        if flying < (self.limit if self._cap is None else min(self.limit, self._cap)):
            return True
        self._full_at = now
        return False

    def accept(self, sent: float, *, ended: bool) -> None:
        """A call that was sent then was let in; it counts if there was no room for another since."""
        if self._full_at < sent:
            return
        if self._ceiling is None:
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

    def reject(self, serial: int, last: int, flying: int) -> bool:
        """A call was one too many beside `flying` others; whether that is news."""
        if serial <= self._epoch:
            return False
        self._epoch = last
        again = self._ceiling is not None and abs(flying - self._ceiling) <= 1
        self.limit = self._ceiling = max(1, flying)
        self._good = 0
        self._patience = min(_MOST_PATIENCE, 2 * self._patience) if again else _PATIENCE
        return True
