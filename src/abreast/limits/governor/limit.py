"""A governor as a limit: calls wait for it at the gate, and whoever makes them tells what became of each."""

from __future__ import annotations

from abreast.core.outcome import Usage
from abreast.limits.governor.governor import CallPermit, Costs, Governor, Hit, Tellings, WidthChange
from abreast.limits.limit import Need
from abreast.limits.queue import WaitingLine


class GovernorLimit:
    """Lets calls through as a governor decides.

    Each call that got through is `answered` or `rejected` before it is given back; given back
    without a word, it was let in and came to nothing, or was never sent if it used no request.
    """

    lent = False
    charged = True

    __slots__ = ("governor", "line")

    def __init__(self, governor: Governor) -> None:
        """One for a lane, in one process."""
        self.governor = governor
        self.line = WaitingLine()

    def __repr__(self) -> str:
        """What the governor thinks."""
        return f"<Governed {self.governor!r}>"

    def refusal(self, need: Need, now: float) -> float | None:
        """None if a call may go now, else when it might."""
        return self.governor.refusal(_costs(need), now)

    def take(self, need: Need, now: float) -> object:
        """A call goes out; its permit."""
        return self.governor.send(_costs(need), now)

    def answered(
        self, permit: CallPermit, now: float, used: Usage, told: Tellings
    ) -> list[WidthChange]:
        """It was answered: what it used, and what its headers told.

        What the governor has decided since.
        """
        total, said = used.input_tokens + used.output_tokens, used.output_tokens
        if used.estimate and not total:
            self.governor.answered(permit, now, {}, told)
        else:
            costs: Costs = {"tokens": total, "input": used.input_tokens, "output": said}
            self.governor.answered(permit, now, costs, told)
        return self.governor.changes("header" if told else "room")

    def rejected(
        self, permit: CallPermit, now: float, hit: Hit, wait: float | None, told: Tellings
    ) -> list[WidthChange] | None:
        """It was turned away: at what, and for how long if the server says so.

        None if that is no news.
        """
        news = self.governor.rejected(permit, now, hit, wait, told)
        changes = self.governor.changes("429")
        return changes if news else None

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's shape
        """It is over."""
        if isinstance(handed, CallPermit):
            if used is not None and not used.requests:
                self.governor.withdraw(handed)
            else:
                self.governor.failed(handed, now)


def _costs(need: Need) -> Costs:
    return {
        "requests": 1.0,
        "tokens": need.tokens,
        "input": need.tokens - need.output,
        "output": need.output,
    }
