"""A number of places; each piece of work holds one, several, or all of them."""

from __future__ import annotations

from abreast.core.outcome import Usage
from abreast.core.window import whole
from abreast.limits.limit import WHENEVER, Need
from abreast.limits.queue import WaitingLine


class Slots:
    """At most `count` held at once.

        lanes={"openai": Slots(8)}
        run.map(measure, candidates, width=4, hold={"machine": "all"})     # takes every slot: runs alone

    An item that only waits for work beneath it gives its slots back meanwhile.
    """

    lent = True
    charged = False

    __slots__ = ("count", "line", "peak", "taken")

    def __init__(self, count: int) -> None:
        """`count` places; a ValueError unless it is a whole number of at least 1."""
        self.count = whole("Slots", count)
        self.taken = 0
        self.line = WaitingLine()
        self.peak = 0

    def __repr__(self) -> str:
        """How many are taken."""
        return f"<Slots {self.taken}/{self.count} taken>"

    def resize(self, count: int) -> None:
        """Another number of places from now on.

        Those held beyond it are waited for, never revoked.
        """
        self.count = whole("Slots", count)

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - the port passes the time to all
        """None if the weight fits beside what is taken.

        A weight past the count counts as all of it.
        """
        return None if self.taken + self._weight(need) <= self.count else WHENEVER

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002
        """Take them; what is handed over is how many, so that a resize in between can't unbalance the books."""
        weight = self._weight(need)
        self.taken += weight
        self.peak = max(self.peak, self.taken)
        return weight

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002
        """Give back what `take` handed over."""
        if isinstance(handed, int):
            self.taken -= handed

    def _weight(self, need: Need) -> int:
        # Past the count it would wait for ever; alone is the nearest thing to what was asked.
        weight = need.weight
        if weight == 1:
            return 1
        return self.count if weight == "all" else min(weight, self.count)
