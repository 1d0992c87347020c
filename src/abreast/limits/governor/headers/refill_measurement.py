"""Measures how fast a bucket fills, by the times until it is full that headers give.

A call puts the time when the bucket is full off by what it takes, divided by the rate. So the rate
is what was sent between two headers, divided by how much later the bucket will be full. The limit
and what is left are not needed: they may be false, or partly for others.
"""

from typing import NamedTuple

from abreast.limits.governor.counter_copy import CounterCopy
from abreast.limits.governor.sent_calls import SentCall, SentCalls, replay

NEARLY_ALL = 0.93  # of a header's limit: an estimate above it means that no one else uses the rate
_MEASURED_CALLS = 10  # at least so many, without a reset
_NEARLY_FULL = 0.9  # of what a bucket holds
_LITTLE = 0.2  # of what can come back to a bucket: a bucket gets more
_FEW_JITTERS, _MANY_JITTERS = 4, 50  # beside so many, that of a call's arrival is small


class _Fill(NamedTuple):
    """A header: the call that it is about, when that was sent, and the seconds until full."""

    serial: int
    sent: float
    reset: float


class RefillMeasurement:
    """What was sent, and by how much that put off the time when the bucket is full."""

    __slots__ = ("_began_full", "_jitter", "_last", "_put_off", "_spent")

    def __init__(self, jitter: float) -> None:
        """Calls arrive up to `jitter` seconds earlier or later than they were sent."""
        self._jitter = jitter
        self._last: _Fill | None = None
        self._began_full = True
        self._spent = self._put_off = 0.0

    def begin_anew(self) -> None:
        """Forget what was measured so far: the limit has changed."""
        self._last, self._began_full = None, False
        self._spent = self._put_off = 0.0

    def add(
        self, serial: int, sent: float, reset: float, calls: SentCalls, least: float
    ) -> float | None:
        """Use the reset in the header of a call; the rate per second if it is known by now.

        Before one of the calls since the last header the bucket may have been full. If it was not,
        that call seems to have been put off by less; so the highest rate is the right one.
        A measurement is over when calls have taken `least`, and their jitter is small beside it.
        """
        before, few = self._last, _FEW_JITTERS * self._jitter
        put_off = reset - before.reset + sent - before.sent if before else reset
        if reset < few or put_off < few:
            return None
        self._last = _Fill(serial, sent, reset)
        if before is None and not self._began_full:
            return None
        spent, found = 0.0, (0.0, 1.0)
        for each in reversed(calls.after(before.serial if before else 0)):
            if each.serial <= serial:
                spent += each.cost
                found = max(found, (spent, reset + sent - each.at), key=_quotient)
        if before is None:
            return _quotient(found) or None
        found = max(found, (spent, put_off), key=_quotient)
        self._spent += found[0]
        self._put_off += found[1]
        if self._put_off < _MANY_JITTERS * self._jitter or self._spent < least:
            return None
        rate = self._spent / self._put_off
        self._spent = self._put_off = 0.0
        return rate


def _quotient(found: tuple[float, float]) -> float:
    return found[0] / found[1]


class LevelMeasurement:
    """Measures how fast a bucket fills by what is left, if headers have no reset."""

    __slots__ = ("_seen", "_start")

    def __init__(self) -> None:
        self._start: tuple[float, SentCall] | None = None  # what was left after that call
        self._seen: float | None = None  # by the last measurement

    def begin_anew(self) -> None:
        """Forget what was measured so far: the limit has changed."""
        self._start = None

    def contradicts(
        self, left: float, call: SentCall, copy: CounterCopy, full: float, clearly: float
    ) -> bool:
        """Whether no bucket that fills at the rate `full` can have so much left, or so little.

        At nothing left it may have been less than nothing, after a call bigger than all it holds.
        """
        if self._start is None:
            return False
        before, start = self._start
        since = _between(copy, start, call)
        most = replay(before, start.at, since, (full, copy.capacity), call.at)
        spent = sum(each.cost for each in since)
        possible = most - before + spent
        has_little = left - before + spent < _LITTLE * possible
        return (0 < left > most + clearly) or (before > 0 and possible >= clearly and has_little)

    def add(
        self, left: float, call: SentCall, copy: CounterCopy, full: float, mean: float
    ) -> float | None:
        """Use the header of a call; the rate per second if it is known by now.

        If the bucket is full nearly always, all of the rate is ours. Others use a part of it if two
        measurements in a row say so.
        """
        before, self._start = self._start, (left, call)
        if before is None or left + 2 * mean >= _NEARLY_FULL * copy.capacity:
            return None if before is None else full
        took = call.at - before[1].at
        if took < copy.minute / 6 or took * full < _MEASURED_CALLS * mean:
            self._start = before
            return None
        spent = sum(each.cost for each in _between(copy, before[1], call))
        last, self._seen = self._seen, (left - before[0] + spent) / took
        if self._seen > NEARLY_ALL * full:
            return full
        if last is not None and last < NEARLY_ALL * full:
            return 0.99 * (self._seen + last) / 2
        return None


def _between(copy: CounterCopy, start: SentCall, call: SentCall) -> list[SentCall]:
    return [each for each in copy.sent.after(start.serial) if each.serial <= call.serial]
