"""The last rejections by one rate, and the way of counting that explains them."""

from collections.abc import Sequence
from functools import partial
from math import inf, log
from typing import NamedTuple

from abreast.limits.governor.counter_copy import CounterCopy
from abreast.limits.governor.rejection_fit import (
    Explanation,
    RejectedCall,
    Span,
    buckets,
    explain_bucket,
    explain_minutes,
    spans_of,
)
from abreast.limits.governor.sent_calls import SentCall, leaves_at

_REMEMBERED = 6  # rejections that one way of counting should explain
_NEAR = 1.5  # seconds: waits are rounded up
_RECENT = 3  # rejections, the last ones: if a belief does not explain them, limits have changed
_FEW = 3  # spans of which little is known
_CAPACITIES = (1.0, 0.5, 0.25, 2.0)  # times what a bucket was thought to hold
_MOST_SINGLE_CALLS = 1_000  # further ones are counted together, so that a fit takes milliseconds
_PARTS = 300  # of a minute, in which they are
_PREFERENCE = 0.1  # of the way of counting that is believed, if another explains as much


class CountingBelief(NamedTuple):
    """A way of counting, and the limits by which it explains rejections."""

    found: Explanation
    is_bucket: bool
    boundary: float | None = None
    capacity: float = inf


class RejectionRecord:
    """Rejections, and when calls were accepted again after several of them."""

    def __init__(self, *, tolerance: float) -> None:
        """`tolerance` is the part of a limit by which calls may be counted differently."""
        self._tolerance = tolerance
        self._rejections: list[RejectedCall] = []
        self._count = 0
        self._accepted_again: list[float] = []

    @property
    def last(self) -> RejectedCall | None:
        """The last rejection."""
        return self._rejections[-1] if self._rejections else None

    def calls_since(self, rejections: int) -> int:
        """How many calls were sent between the first and the last of so many last rejections."""
        return self._rejections[-1].serial - self._rejections[-rejections:][0].serial

    @property
    def has_constant_wait(self) -> bool:
        """Whether the server asked for the same wait, or for none, at all rejections."""
        return len({each.wait for each in self._rejections}) == 1

    def add(self, rejected: RejectedCall, *, again: bool = False) -> None:
        """Record a rejection; `again` if no call was accepted since the last but one.

        Then it takes the place of the last: it says the same, for longer.
        """
        before = self._rejections[:-1] if again else self._rejections
        self._count += len(before) == len(self._rejections)
        self._rejections = [*before, rejected][-_REMEMBERED:]

    def settle(self, serial: int, cost: float) -> bool:
        """Record what a rejected call would have taken; return whether it is remembered."""
        found = any(each.serial == serial for each in self._rejections)
        self._rejections = [
            each._replace(cost=cost) if each.serial == serial else each for each in self._rejections
        ]
        return found

    def forget(self) -> None:
        """Forget all but the last: the limit that explained them has changed."""
        self._rejections = self._rejections[-1:]

    def clear(self) -> None:
        """Forget all: the limits have changed since."""
        self._rejections = []

    def accept_again(self, at: float) -> None:
        """Record that a call was accepted after several rejections: a minute may begin then."""
        self._accepted_again = [*self._accepted_again, at][-2:]

    def explain(
        self, copy: CounterCopy, rate: float, mean: float, *, shared: bool
    ) -> CountingBelief:
        """The way of counting that explains all of the last rejections.

        If none does, it is the one that `copy` has. If several do, it is the one that explains the
        most waits, then the one that allows the most.
        """
        calls = [call for call in copy.sent.remembered() if call.cost > 0]
        known = self._known(copy, calls)
        ways = [self._bucket(copy, calls, known, (rate, mean), shared=shared)]
        parts = _gathered(calls, copy.minute / _PARTS)
        ways += [self._minutes(copy, parts, known, each) for each in self._boundaries(copy)]
        believed = next(
            each
            for each in ways
            if each.is_bucket == copy.is_bucket
            and (each.is_bucket or each.boundary == copy.sent.boundary)
        )

        def goodness(way: CountingBelief) -> tuple[int, int, bool, bool, float]:
            found = way.found
            allowed = found.low
            if found.high < inf:
                middle = (found.low + found.high) / 2
                allowed = middle if way.is_bucket else max(found.low, found.high / 2)
            preference = 1 + _PREFERENCE if way is believed else 1.0
            # The most that was accepted is less than the least that was rejected.
            is_apart = way.is_bucket or found.low < found.high
            return (
                found.rejections,
                found.waits - (way.boundary is not None),  # it begins at the end of one of them
                way is believed and found.rejections >= _RECENT and is_apart,
                # Minutes are never believed without cause.
                is_apart and not (way.is_bucket or copy.is_bucket),
                allowed * (copy.minute if way.is_bucket else 1.0) * preference,
            )

        best = max(ways, key=goodness)
        enough = max(2, min(len(known), _RECENT)) if believed.found.rejections else 1
        if best.found.rejections < enough:
            return believed
        keeps = best.found.rejections < len(known) and believed.found.rejections >= _RECENT
        return believed if keeps else best

    def _known(self, copy: CounterCopy, calls: Sequence[SentCall]) -> list[RejectedCall]:
        """The rejections of which all calls of the minute before are remembered."""
        known = self._rejections
        if copy.sent.has_forgotten:
            since = calls[0].at + copy.minute if calls else inf
            known = [each for each in known if each.at > since] or known[-1:]
        if len(known) > 1 and len({each.wait for each in known}) == 1:  # it says nothing
            known = [each._replace(wait=None) for each in known]
        return known

    def _boundaries(self, copy: CounterCopy) -> list[float | None]:
        """When fixed minutes may begin: at the end of a wait, or when a call was accepted again."""
        ends = [each.at + each.wait for each in self._rejections if each.wait]
        believed = [] if copy.sent.boundary is None else [copy.sent.boundary]
        return [None, *believed, *ends, *self._accepted_again]

    def _minutes(
        self,
        copy: CounterCopy,
        calls: Sequence[SentCall],
        known: Sequence[RejectedCall],
        boundary: float | None,
    ) -> CountingBelief:
        found = explain_minutes(
            calls,
            known,
            partial(leaves_at, boundary, copy.minute),
            _NEAR * copy.minute / 60,
            self._tolerance,
        )
        return CountingBelief(found, is_bucket=False, boundary=boundary)

    def _bucket(
        self,
        copy: CounterCopy,
        calls: Sequence[SentCall],
        known: Sequence[RejectedCall],
        believed: tuple[float, float],
        *,
        shared: bool,
    ) -> CountingBelief:
        """The best bucket; if several capacities are as good, the rate is between theirs.

        Another capacity than the one that is believed must explain all rejections.
        """
        rate, mean = believed
        spans = spans_of(calls, known)
        is_complete = not copy.sent.has_forgotten and len(known) == self._count
        found = [
            (
                explain_bucket(
                    spans,
                    capacity,
                    minute=copy.minute,
                    jitter=copy.jitter,
                    tolerance=self._tolerance,
                    shared=shared and number == 0,
                ),
                start,
                capacity,
            )
            for number, (start, capacity) in enumerate(
                _tried(copy, spans, (rate, mean), is_complete=is_complete)
            )
        ]
        most = max(each.rejections for each, _, _ in found)
        if len(spans) > _FEW and most < len(known) and found[0][0].rejections >= _RECENT:
            found = found[:1]
            most = found[0][0].rejections
        best = [each for each in found if each[0].rejections == most]
        low = min(each.low for each, _, _ in best)
        high = max(each.high for each, _, _ in best)
        waits = max(each.waits for each, _, _ in best)
        middle = (low + high) / 2 if high < inf else max(rate, low)
        capacity = min(best, key=lambda each: abs(log(each[1] / middle)))[2]
        explanation = Explanation(most, low, high, waits)
        return CountingBelief(explanation, is_bucket=True, capacity=capacity)


def _gathered(calls: Sequence[SentCall], seconds: float) -> Sequence[SentCall]:
    """The calls; if they are very many, those of so many seconds as one."""
    if len(calls) <= _MOST_SINGLE_CALLS:
        return calls
    found: list[SentCall] = []
    for call in calls:
        if found and call.at < found[-1].at + seconds:
            found[-1] = SentCall(call.serial, found[-1].at, found[-1].cost + call.cost)
        else:
            found.append(call)
    return found


def _tried(
    copy: CounterCopy,
    spans: Sequence[Span],
    believed: tuple[float, float],
    *,
    is_complete: bool,
) -> list[tuple[float, float]]:
    """Rates and capacities of buckets that may explain rejections; first the one believed."""
    rate, mean = believed
    holds = min(copy.capacity, rate * copy.minute)
    tried = [(rate, max(mean, holds * each)) for each in _CAPACITIES]
    if not copy.is_bucket and 0 < copy.amount < inf:
        tried.append((copy.amount / copy.minute, copy.amount))
    if is_complete and spans[0].calls:
        is_known = copy.capacity < inf and len(spans) > _FEW
        return [*(tried[:1] if is_known else []), *buckets(spans[0], copy.minute)]
    return tried
