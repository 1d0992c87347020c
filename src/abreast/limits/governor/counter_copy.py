"""A copy of the counter that a server keeps of one rate: what it would admit now.

Servers count in three ways: a bucket that fills evenly, a minute that slides, and fixed minutes.
The copy counts every call when it is sent; headers and rejections say what was really left.
"""

from math import inf

from abreast.limits.governor.sent_calls import SentCalls, replay

_TOLERANCE = 1e-9
_STEP = 1e-5  # of a minute: the least time after which it is asked again


class CounterCopy:
    """What is left of a rate, as a server of this kind would count it.

    A bucket has a `rate` per second and a `capacity`. A minute has an `amount`; it slides unless
    `sent.boundary` says when a fixed one ends.
    """

    def __init__(self, minute: float, jitter: float) -> None:
        """Calls arrive up to `jitter` seconds earlier or later than they were sent."""
        self.minute = minute
        self.jitter = jitter
        self.is_bucket = True
        self.rate = 0.0
        self.speed = 0.0  # at which calls are sent: the rate, or more to find out
        self.capacity = inf
        self.amount = inf
        self.sent = SentCalls(minute)
        self._level = inf
        self._level_at = 0.0
        # The last call after which the level was known, when, and that level.
        self.anchor_serial = 0
        self._anchor_at: float | None = None
        self._anchor_level = 0.0

    @property
    def is_fixed(self) -> bool:
        """Whether the minutes are fixed."""
        return not self.is_bucket and self.sent.boundary is not None

    def next_chance(self, cost: float, reserve: float, now: float) -> float:
        """When so much would be admitted with that reserve left; at most now if it is already."""
        if not self.is_bucket:
            return self._next_in_window(cost, reserve, now)
        self._fill(now)
        if self._level == inf:
            return now
        # A full bucket is left alone for a moment: calls do not arrive as evenly as they are sent.
        missing = min(cost + reserve + self.rate * self.jitter, self._most_level) - self._level
        if missing <= _TOLERANCE * max(1.0, cost):
            return now
        return now + max(missing / self.speed, _STEP * self.minute) if self.speed else inf

    def _next_in_window(self, cost: float, reserve: float, now: float) -> float:
        self.sent.forget(now - self.jitter)
        missing = self.sent.used + min(cost + reserve, self.amount) - self.amount
        if missing <= _TOLERANCE * max(1.0, cost):
            return now
        for entry in self.sent:
            missing -= entry.cost
            if missing <= _TOLERANCE * max(1.0, cost):
                return max(now, self.sent.leaves_at(entry.at) + self.jitter) + _STEP * self.minute
        return now + self.minute / 60

    @property
    def _most_level(self) -> float:
        return self.capacity + self.rate * self.jitter

    def _fill(self, now: float) -> None:
        if now > self._level_at:
            if self._level < inf:
                self._level = min(
                    self._most_level, self._level + self.speed * (now - self._level_at)
                )
            self._level_at = now

    def add(self, serial: int, cost: float, now: float) -> None:
        """Count a call that is sent."""
        self._fill(now)
        self.sent.forget(now - self.jitter)
        self.sent.add(serial, cost, now)
        self._level = min(self._level, self.capacity) - cost

    def settle(self, serial: int, cost: float) -> None:
        """Count what a call has really taken."""
        more = self.sent.settle(serial, cost)
        if serial > self.anchor_serial:
            self._level -= more

    def left_after(self, serial: int, at: float) -> float:
        """What was left, by this count, after a call that was sent then."""
        if not self.is_bucket:
            return self.amount - self.sent.used_until(serial, at)
        if self._anchor_at is None:
            return inf
        before = (each for each in self.sent.after(self.anchor_serial) if each.serial <= serial)
        bucket = (self.rate, self.capacity)
        return replay(self._anchor_level, self._anchor_at, before, bucket, until=at)

    def count_minutes(self, boundary: float | None = None) -> None:
        """Count minutes from now on; each allows the most that was accepted in one of them."""
        self.is_bucket = False
        self.sent.boundary = boundary
        self.amount = self.sent.most_in_a_minute()

    def empty(self, serial: int, at: float, left: float = 0.0) -> None:
        """Correct the count: that call was rejected, so no more than that was left.

        One rejection takes no more than half of a minute's amount: it may have been sent in another
        minute than was thought.
        """
        least = 0.5 * self.amount
        self.anchor(serial, at, left)
        if not self.is_bucket:
            self.amount = max(self.amount, least)

    def anchor(self, serial: int, at: float, left: float) -> None:
        """Correct the count: so much was left after that call."""
        if not self.is_bucket:
            self.amount = left + self.sent.used_until(serial, at)
        self.anchor_bucket(serial, at, left)

    def anchor_bucket(self, serial: int, at: float, left: float) -> None:
        """Correct the level of a bucket."""
        self.anchor_serial, self._anchor_at, self._anchor_level = serial, at, left
        after = self.sent.after(serial)
        self._level = replay(left, at, after, (self.rate, self.capacity))
        self._level_at = after[-1].at if after else at
