"""The calls that a server counts: when each was sent, and how much of a rate it takes."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import floor

_REMEMBERED_MINUTES = 3
_REMEMBERED_CALLS = 600  # at least


@dataclass(slots=True)
class SentCall:
    """A call that was sent: when, how much of the rate it takes, and whether it still counts.

    What it takes is an estimate until it is settled.
    """

    serial: int
    at: float
    cost: float
    counts: bool = True
    is_settled: bool = False


class SentCalls:
    """Calls in the order in which they were sent; each counts for a minute.

    Once `boundary` is set, minutes are fixed: a call counts until the next of them begins, and one
    of them begins at `boundary`. Calls are remembered for some time after that, since answers come
    later than the server counts.
    """

    def __init__(self, minute: float) -> None:
        self._minute = minute
        self._entries: deque[SentCall] = deque()  # those that count
        self._past: deque[SentCall] = deque()
        self._by_serial: dict[int, SentCall] = {}
        self._boundary: float | None = None
        self.used = 0.0  # what was taken in the minute
        self.spent = 0.0  # what was taken since the beginning
        self.has_forgotten = False

    def __iter__(self) -> Iterator[SentCall]:
        """Those that count, the oldest first."""
        return iter(self._entries)

    def remembered(self) -> Iterator[SentCall]:
        """Those that count and those of before, the oldest first."""
        return chain(self._past, self._entries)

    @property
    def oldest(self) -> float | None:
        """When the oldest that counts was sent."""
        return self._entries[0].at if self._entries else None

    @property
    def boundary(self) -> float | None:
        """When a fixed minute begins; None if minutes slide."""
        return self._boundary

    @boundary.setter
    def boundary(self, boundary: float | None) -> None:
        """Count in another way: calls that no longer counted may count again, and the reverse."""
        if boundary == self._boundary:
            return
        self._boundary = boundary
        calls = [*self._past, *self._entries]
        now = calls[-1].at if calls else 0.0
        for entry in calls:
            entry.counts = self.leaves_at(entry.at) > now
        self._past = deque(entry for entry in calls if not entry.counts)
        self._entries = deque(entry for entry in calls if entry.counts)
        self.used = sum(entry.cost for entry in self._entries)

    def leaves_at(self, at: float) -> float:
        """When a call that was sent then no longer counts."""
        return leaves_at(self._boundary, self._minute, at)

    def add(self, serial: int, cost: float, now: float) -> None:
        """Record a call that was sent."""
        entry = SentCall(serial, now, cost)
        self._entries.append(entry)
        self._by_serial[serial] = entry
        self.used += cost
        self.spent += cost

    def settle(self, serial: int, cost: float) -> float:
        """Record what a call really took; return how much more that is than was assumed."""
        entry = self._by_serial.get(serial)
        if entry is None:
            return 0.0
        more = cost - entry.cost
        entry.cost, entry.is_settled = cost, True
        if entry.counts:
            self.used += more
        self.spent += more
        return more

    def cost_of(self, serial: int) -> float:
        """What a call takes; 0 if it was sent long ago."""
        entry = self._by_serial.get(serial)
        return 0.0 if entry is None else entry.cost

    def forget(self, now: float) -> None:
        """Stop counting the calls whose minute is over, and drop those of long ago."""
        entries, past = self._entries, self._past
        while entries and self.leaves_at(entries[0].at) <= now:
            entry = entries.popleft()
            entry.counts = False
            self.used -= entry.cost
            past.append(entry)
        while (
            len(past) > _REMEMBERED_CALLS and past[0].at + _REMEMBERED_MINUTES * self._minute <= now
        ):
            self._by_serial.pop(past.popleft().serial, None)
            self.has_forgotten = True

    def after(self, serial: int) -> list[SentCall]:
        """The calls after that one.

        The search goes backwards: they are as many as are in flight, while a minute has thousands.
        """
        later: list[SentCall] = []
        for entry in chain(reversed(self._entries), reversed(self._past)):
            if entry.serial <= serial:
                break
            later.append(entry)
        later.reverse()
        return later

    def latest(self, serial: int) -> Iterator[SentCall]:
        """The calls up to that one, the latest first."""
        for entry in chain(reversed(self._entries), reversed(self._past)):
            if entry.serial <= serial:
                yield entry

    def last_before(self, at: float) -> SentCall | None:
        """The last call that was sent by that time."""
        for entry in chain(reversed(self._entries), reversed(self._past)):
            if entry.at <= at:
                return entry
        return None

    def times_since(self, at: float) -> list[float]:
        """When the calls after that time were sent, but for the first of all calls."""
        times: list[float] = []
        for entry in chain(reversed(self._entries), reversed(self._past)):
            if entry.at <= at or entry.serial <= 1:
                break
            times.append(entry.at)
        times.reverse()
        return times

    def used_until(self, serial: int, at: float) -> float:
        """What counted at that time, of the calls up to that one."""
        used = self.used
        for entry in reversed(self._entries):
            if entry.serial <= serial:
                break
            used -= entry.cost
        for entry in self._entries:
            if self.leaves_at(entry.at) > at or entry.serial > serial:
                break
            used -= entry.cost
        for entry in reversed(self._past):
            if self.leaves_at(entry.at) <= at:
                break
            if entry.serial <= serial:
                used += entry.cost
        return used

    def most_in_a_minute(self) -> float:
        """The most that counted at one time, of the calls that are remembered."""
        counted: deque[SentCall] = deque()
        used = most = 0.0
        for entry in self.remembered():
            while counted and self.leaves_at(counted[0].at) <= entry.at:
                used -= counted.popleft().cost
            counted.append(entry)
            used += entry.cost
            most = max(most, used)
        return most

    def spent_until(self, serial: int) -> float:
        """What was taken since the beginning, by the calls up to that one."""
        return self.spent - sum(each.cost for each in self.after(serial))


def leaves_at(boundary: float | None, minute: float, at: float) -> float:
    """When a call that was sent then no longer counts."""
    if boundary is None:
        return at + minute
    return boundary + (floor((at - boundary) / minute) + 1) * minute


def replay(
    level: float,
    at: float,
    entries: Iterable[SentCall],
    bucket: tuple[float, float],
    until: float | None = None,
) -> float:
    """The level of a bucket (its rate and its capacity) after calls that were sent since `at`.

    The result is for the time `until`, if that is later than the last call.
    """
    rate, capacity = bucket
    for entry in entries:
        if entry.at > at:
            level = min(capacity, level + rate * (entry.at - at))
            at = entry.at
        level -= entry.cost
    return level if until is None or until <= at else min(capacity, level + rate * (until - at))
