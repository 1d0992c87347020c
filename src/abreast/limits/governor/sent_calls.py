"""The calls of the last minute: when each was sent, and how much of a rate it takes."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class SentCall:
    """A call that was sent: when, and how much of the rate it takes."""

    serial: int
    at: float
    cost: float


class SentCalls:
    """Calls in the order in which they were sent, for a minute each."""

    def __init__(self, minute: float) -> None:
        self._minute = minute
        self._entries: deque[SentCall] = deque()
        self._by_serial: dict[int, SentCall] = {}
        self.used = 0.0  # what was taken in the last minute
        self.spent = 0.0  # what was taken since the beginning

    def __iter__(self) -> Iterator[SentCall]:
        """The oldest first."""
        return iter(self._entries)

    @property
    def oldest(self) -> float | None:
        """When the oldest was sent."""
        return self._entries[0].at if self._entries else None

    def add(self, serial: int, cost: float, now: float) -> None:
        """Record a call that was sent."""
        self.forget(now)
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
        entry.cost = cost
        self.used += more
        self.spent += more
        return more

    def forget(self, now: float) -> None:
        """Drop the calls that were sent more than a minute ago."""
        entries = self._entries
        while entries and entries[0].at + self._minute <= now:
            entry = entries.popleft()
            self.used -= entry.cost
            self._by_serial.pop(entry.serial, None)

    def after(self, serial: int) -> list[SentCall]:
        """The calls after that one.

        The search goes backwards: they are as many as are in flight, while a minute has thousands.
        """
        later: list[SentCall] = []
        for entry in reversed(self._entries):
            if entry.serial <= serial:
                break
            later.append(entry)
        later.reverse()
        return later

    def used_until(self, serial: int, at: float) -> float:
        """What was taken in the minute before `at`, by the calls up to that one."""
        used = self.used - sum(each.cost for each in self.after(serial))
        for entry in self._entries:
            if entry.at + self._minute > at:
                break
            used -= entry.cost
        return used

    def spent_until(self, serial: int) -> float:
        """What was taken since the beginning, by the calls up to that one."""
        return self.spent - sum(each.cost for each in self.after(serial))

    def taken_between(self, start: float, end: float) -> float:
        """What was taken by the calls sent in that time."""
        return sum(each.cost for each in self._entries if start <= each.at < end)


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
