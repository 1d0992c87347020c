"""How old headers are: a server may say what was left some seconds ago, after an earlier call.

Such a header changes when another call has become that old. So the age is the one by which headers
changed, and stayed the same, when they should have.
"""

from bisect import bisect_right
from typing import NamedTuple

from abreast.limits.governor.counter_copy import CounterCopy
from abreast.limits.governor.headers.facts import HeaderFacts
from abreast.limits.governor.sent_calls import SentCall

_OLDEST = 0.2  # of a minute: no header is older
_AGES = 100  # between no age and the oldest
_SURE = 8  # of them: ages in a range so small are the same


class _Header(NamedTuple):
    facts: HeaderFacts
    serial: int
    sent: float


class HeaderAge:
    """Finds out which call a header is about."""

    __slots__ = ("_about", "_ages", "_last", "_range", "_wrong")

    def __init__(self, minute: float) -> None:
        self._range = (0.0, 0.0)  # of the ages that agree with most headers
        self._ages = [_OLDEST * minute * number / _AGES for number in range(_AGES + 1)]
        self._wrong = [0] * len(self._ages)  # headers that contradict each age
        self._last: _Header | None = None
        self._about = 0  # the call that the last header was about

    def call_of(
        self, facts: HeaderFacts, serial: int, sent: float, copy: CounterCopy
    ) -> SentCall | None:
        """The call that the header of this call is about; None if the last header was, too."""
        before, self._last = self._last, _Header(facts, serial, sent)
        if before is not None:
            self._compare(before, self._last, copy)
        call: SentCall | None = SentCall(serial, sent, 0.0)
        if self.seconds:
            low, high = self._range
            call = copy.sent.last_before(sent - (low + high) / 2)
            if high - low > self._ages[_SURE] and (
                copy.sent.last_before(sent - low) != copy.sent.last_before(sent - high)
            ):
                return None
        if call is None or call.serial <= self._about:
            return None
        self._about = call.serial
        return call

    def _compare(self, before: _Header, header: _Header, copy: CounterCopy) -> None:
        """Count with which ages the headers should have differed and did not, or the reverse."""
        has_changed = header.facts != before.facts
        if has_changed and not any(self._wrong):
            return  # it is about its own call, as always
        if not has_changed:
            left = copy.left_after(before.serial, before.sent)
            now_left = copy.left_after(header.serial, header.sent)
            is_same = abs(now_left - left) < 0.5 * copy.sent.cost_of(header.serial)
            if is_same or not header.facts.reset:
                return
        times = copy.sent.times_since(before.sent - self._ages[-1])
        for number, age in enumerate(self._ages):
            became_old = bisect_right(times, header.sent - age) > bisect_right(
                times, before.sent - age
            )
            self._wrong[number] += became_old != has_changed
        least = min(self._wrong)
        best = [age for age, wrong in zip(self._ages, self._wrong, strict=True) if wrong == least]
        self._range = best[0], best[-1]

    @property
    def seconds(self) -> float:
        """How old headers are at least."""
        return self._range[0]
