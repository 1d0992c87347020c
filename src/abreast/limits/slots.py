"""A limit with a number of places; each piece of work holds one, several, or all of them."""

from abreast.core.outcome import Usage
from abreast.core.window import whole
from abreast.limits.limit import WHENEVER, Need, WaitingLine


class Slots:
    """At most `count` held at once.

        lanes={"openai": Slots(8)}
        run.map(measure, candidates, width=4, hold={"machine": "all"})  # every slot: runs alone

    An item that only waits for work beneath it gives its slots back meanwhile.

    Args:
        count: how many places; a ValueError unless it is a whole number of at least 1.
    """

    lent = True
    charged = False

    __slots__ = ("count", "line", "peak", "taken")

    def __init__(self, count: int) -> None:
        self.count = whole("Slots", count)
        self.taken = 0
        self.line = WaitingLine()
        self.peak = 0

    def __repr__(self) -> str:
        return f"<Slots {self.taken}/{self.count} taken>"

    def resize(self, count: int) -> None:
        """Change the number of places from now on.

        Those held beyond it are not revoked: new holders wait until they are given back.
        """
        self.count = whole("Slots", count)

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - the port's signature
        """None if the weight fits beside what is taken.

        A weight above the count counts as all of it.
        """
        return None if self.taken + self._weight(need) <= self.count else WHENEVER

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002 - the port's signature
        """Take the places and return how many.

        The number is kept with the holder, so that a resize in between can't make `taken` wrong.
        """
        weight = self._weight(need)
        self.taken += weight
        self.peak = max(self.peak, self.taken)
        return weight

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Give back what `take` returned."""
        if isinstance(handed, int):
            self.taken -= handed

    def _weight(self, need: Need) -> int:
        # A weight above the count would wait for ever; to run alone is the nearest possible.
        weight = need.weight
        if weight == 1:
            return 1
        return self.count if weight == "all" else min(weight, self.count)
