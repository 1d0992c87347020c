"""A governor as a limit: calls wait for it at the gate, and their results are reported to it."""

from abreast.core.outcome import Usage
from abreast.limits.governor.governor import (
    CallPermit,
    Costs,
    Governor,
    Hit,
    LimitHeaders,
    WidthChange,
)
from abreast.limits.limit import Need, WaitingLine


class GovernorLimit:
    """Lets calls through as a governor decides.

    Each call that it let through must be reported as `answered` or `rejected` before it is given
    back. A call given back without a report counts as accepted by the server and failed, or, if it
    used no request, as never sent.
    """

    lent = False
    charged = True

    __slots__ = ("governor", "line")

    def __init__(self, governor: Governor) -> None:
        self.governor = governor
        self.line = WaitingLine()

    def __repr__(self) -> str:
        return f"<Governed {self.governor!r}>"

    def refusal(self, need: Need, now: float) -> float | None:
        """None if a call may go now, else the time when it might."""
        return self.governor.refusal(_costs(need), now)

    def take(self, need: Need, now: float) -> object:
        """Record that a call is sent and return its permit."""
        return self.governor.send(_costs(need), now)

    def answered(
        self, permit: CallPermit, now: float, used: Usage, told: LimitHeaders
    ) -> list[WidthChange]:
        """Report an answer: what the call used, and what its headers said.

        Returns what the governor has changed since the last report.
        """
        total, output = used.input_tokens + used.output_tokens, used.output_tokens
        if used.estimate and not total:
            self.governor.answered(permit, now, {}, told)
        else:
            costs: Costs = {"tokens": total, "input": used.input_tokens, "output": output}
            self.governor.answered(permit, now, costs, told)
        return self.governor.changes("header" if told else "room")

    def rejected(
        self, permit: CallPermit, now: float, hit: Hit, wait: float | None, told: LimitHeaders
    ) -> list[WidthChange] | None:
        """Report a rejection: which limit was hit, and the wait if the server gave one.

        None if the governor knew already.
        """
        news = self.governor.rejected(permit, now, hit, wait, told)
        changes = self.governor.changes("429")
        return changes if news else None

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Report a call that was neither answered nor rejected."""
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
