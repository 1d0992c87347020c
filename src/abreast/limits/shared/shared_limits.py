"""The limits of a lane that several processes keep together, as a program gives them."""

from abreast.core.window import whole
from abreast.limits.limit import is_positive
from abreast.limits.shared.ledger import read_terms


class SharedLimits:
    """Limits that all drivers keep together whose runs are in the same store.

        lanes = {"render": SharedLimits(12, rpm=600, budget="500req/day")}
        async with abreast.open_run("frames", store="runs.db", lanes=lanes) as run:
            async for outcome in run.map(render, frames, width=50, lane="render"): ...

    Each item holds a slot, and counts as a request; model calls beneath it on that lane count their
    tokens and their cost. A driver that dies returns its permits after some seconds. Without a
    store, the run is refused with `LaneNeedsStore`.
    """

    __slots__ = ("terms",)

    def __init__(
        self,
        slots: int,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        budget: str | None = None,
    ) -> None:
        """Keep nothing yet; ValueError if a number is wrong.

        Args:
            slots: how many at once, of all drivers.
            rpm: requests a minute, of all drivers.
            tpm: tokens a minute, of all drivers.
            budget: such as `"20usd/day"`, `"500req"` in all; per hour, day or month.
        """
        rates = {"requests": rpm, "tokens": tpm}
        for word, rate in (("rpm", rpm), ("tpm", tpm)):
            if rate is not None and not is_positive(rate):
                raise ValueError(f"{word} is a number above 0, not {rate!r}")
        given = {name: float(rate) for name, rate in rates.items() if rate is not None}
        self.terms = read_terms(whole("slots", slots), given, budget)

    def __repr__(self) -> str:
        return f"<SharedLimits {self.terms}>"
