"""One rate of a provider: what is left of it, as far as anybody knows, and how fast it comes back.

Servers count in three ways: a bucket that fills evenly, a fixed minute, a minute that slides. What
is left is foretold as if it were a bucket; where that promises too much, nothing is taken to come
back before a minute is over, which holds for the other two.

What is known comes from the user, from headers as long as they are borne out, and from rejections:
after each, there was nothing left, and what was let in between two of them is the rate.
"""

from __future__ import annotations

from math import exp2, inf
from typing import NamedTuple

from abreast.limits.governor.sent_calls import SentCall, SentCalls, replay
from abreast.limits.governor.slow_start import SlowStart

_CERTAIN = 1e-9
_HALF = 10.0  # seconds of a minute of 60 after which what was seen counts half
_NEAR = 0.93  # of the limit in a header: who is that close to it has it for himself
_CAREFUL = 0.99
_BOLD = 1.1
_PROBING = 1.003  # a rate that nobody tells is tried a little above what was measured
_A_PROBE = 2  # calls: the one that was turned away, and one beside it
_DOUBTS = 3  # rejections that headers had not foretold, until nobody believes them
_BOLDER = 50  # calls
_FLOW = 6  # calls that should have come back, before it is asked whether they did
_SHY = 3  # calls
OFTEN = 0.1  # seconds between two headers that are looked at
_FEW = 3  # calls that say little of a rate
_RUSH = 0.1  # of a second's calls may go at once where nobody says how many


class HeaderFacts(NamedTuple):
    """What a header says of a rate: so much in a minute, so much left, all of it back in so many seconds."""

    limit: float
    left: float
    reset: float


class RateEstimate:
    """A rate. Times are a clock's; `minute` is how long its minute lasts."""

    def __init__(
        self, minute: float = 60.0, rate: float | None = None, *, even: bool = True
    ) -> None:
        """`rate`, if it is given, is so much in a minute, evenly; then nothing is learned.

        `even` says that each call takes one, as of requests; then calls go out evenly, never in a rush.
        """
        self.minute = minute
        self.tick = minute / 60
        self._is_given = rate is not None
        self.rate = rate / minute if rate is not None else None
        self.brim = inf if rate is None else max(1.0, rate / 60)
        self.limit: float | None = None
        self.trusted = True
        self.window: float | None = None
        self.hold = -inf
        self.mean = 0.0
        self._level = self.brim
        self._at = 0.0
        self._anchor = 0
        self._anchored: float | None = None
        self._base = 0.0
        self._sent = SentCalls(minute)
        self._passed = 0  # calls that were sent since there was nothing left, and not turned away
        self._even = even
        self._pulse: SlowStart | None = None
        self._beat = self.tick
        self._margin = 0.0
        self._probe: float | None = None
        self._owes_probe = False
        self._epoch = 0
        self._last = 0
        self._zero: tuple[float, float] | None = None
        self._full: float | None = None  # used in the minute before the first rejection of a row
        self._hoped = 0.0
        self._resumed = -inf
        self._row = 0
        self._began: float | None = None
        self._quiet_since = 0.0
        self._off = self._span = 0.0
        self._doubts = 0
        self._flows: bool | None = None
        self._first: tuple[float, float, float] | None = None
        self._sample = 0.0  # calls that the rate was measured by
        self._now = self._before = 0.0
        self._since = -inf
        self._calm = 0  # minutes in a row without a rejection, where a minute is all that counts
        self._early = False  # the call after the hold goes before the server's time
        self._is_strict = False

    @property
    def in_a_minute(self) -> float | None:
        """So much is let through in a minute; None while nobody knows."""
        if self.window is not None:
            return self.window
        return None if self.rate is None else self.rate * self.minute

    def expect(self, rate: float) -> None:
        """So much in a minute was let through another time: begin with that."""
        self.rate = rate / self.minute
        self.brim = self._level = max(1.0, self.rate * self.tick)

    # --- asking

    def refusal(self, cost: float, now: float) -> float | None:
        """None if so much may go now, else when it might."""
        if now < self.hold:
            return self.hold
        if self._probe is not None and now < self._probe + self.tick:
            return self._probe + self.tick
        if self._pulse is not None and self._even and (due := self._pulse.due(now)) is not None:
            return due
        if self.window is not None:
            return self._in_window(cost, now)
        if self.rate is None:
            return None
        self._fill(now)
        lacking = min(cost + self._slack(), self.brim) - self._level
        return (
            None if lacking <= _CERTAIN else now + max(lacking / self._speed(), 1e-7 * self.minute)
        )

    def _slack(self) -> float:
        """What is kept back, as nobody knows exactly; it costs no time but once."""
        usual = min(1.0, (self.rate or 0.0) * 0.3 * self.tick) if self._even else 0.3 * self.mean
        return usual + self._margin

    def _speed(self) -> float:
        rate = self.rate or 0.0
        if self._is_given or (self.limit is not None and self.trusted):
            return rate
        return rate * self._boldness

    @property
    def _boldness(self) -> float:
        """How much faster than measured: more with every call that was not turned away."""
        return _PROBING + 0.01 * (
            exp2(min(10.0, self._passed / min(_BOLDER, max(_SHY, self._sample)))) - 1.0
        )

    def _in_window(self, cost: float, now: float) -> float | None:
        self._sent.forget(now)
        most = self.window or 0.0
        lacking = self._sent.used + min(cost, most) - most
        if lacking <= _CERTAIN:
            return None
        if not (self.trusted and self.limit) and now >= self._quiet_since + self.minute:
            self._quiet_since = now
            self._calm = min(self._calm + 1, 6)
            self.window = most * (1.0 + 0.01 * 2.0**self._calm)
            return self._in_window(cost, now)
        for entry in self._sent:
            lacking -= entry.cost
            if lacking <= _CERTAIN:
                return entry.at + self.minute + 0.005 * self.tick
        return now + self.tick

    def _fill(self, now: float) -> None:
        if now > self._at:
            if self.rate is not None:
                self._level = min(self.brim, self._level + self._speed() * (now - self._at))
            self._at = now

    # --- what happens

    def start(self, now: float, speed: float, beat: float) -> None:
        """The first call has got through: others may follow, twice as fast with each beat until somebody objects."""
        self._pulse = SlowStart(now, max(speed, self.rate or 0.0), beat, self.tick)
        self._beat = beat

    def send(self, serial: int, cost: float, now: float) -> None:
        """A call goes out."""
        self._fill(now)
        self._sent.add(serial, cost, now)
        self._last = serial
        self._level -= cost
        self._passed += 1
        self.mean = self.mean + 0.05 * (cost - self.mean) if self.mean else cost
        if self._began is None:
            self._began = now
        if self._pulse is not None:
            most = self.in_a_minute
            self._pulse.sent(
                now, None if most is None else most / self.minute, in_window=self.window is not None
            )
        if self._owes_probe and now >= self.hold:
            self._probe, self._owes_probe = now, False
            self._resumed = now

    def settle(self, serial: int, cost: float) -> None:
        """What a call has really taken."""
        more = self._sent.settle(serial, cost)
        if serial > self._anchor:
            self._level -= more

    def passed(self, sent: float) -> None:
        """A call that was sent then was let in."""
        if self._zero is None or sent > self._zero[0]:
            self._row = 0
        if self._probe is not None and sent >= self._probe:
            self._probe = None

    def tell_limit(self, limit: float) -> None:
        """The limit that a header tells."""
        if self.limit is None or abs(limit - self.limit) > 0.01 * self.limit:
            if self.window is not None and self.limit:
                self.window *= limit / self.limit
            self.limit = limit
            if self.trusted:
                self.rate, self._off, self._span = limit / self.minute, 0.0, 0.0
                self.brim = inf

    def tell(self, told: HeaderFacts, serial: int, sent: float) -> None:
        """What a header says, as of when that call came in."""
        self.tell_limit(told.limit)
        if not self.trusted or serial <= self._anchor:
            return
        if self._anchored is not None and sent < self._anchored + OFTEN * self.tick:
            return  # nothing new, and looking at all that is in flight takes its time
        rate = self.rate or 0.0
        self.brim = max(
            told.left + told.reset * rate if told.reset <= 1.1 * self.minute else told.limit,
            told.left,
            1.0,
        )
        if (
            self._even and told.left < 1 and 0 < told.reset * rate < 2
        ):  # one at a time: then all is back when one is
            self.rate = min(told.limit / self.minute, 1.0 / told.reset)
            self.brim = 1.0
        self._see_flow(told, serial, sent)
        if self.window is not None:
            self._see_most(min(told.limit, told.left + self._sent.used_until(serial, sent)), sent)
        off, span = self._move(serial, sent, told.left, told.left + 0.999)
        fade = 0.5 ** (span / (_HALF * self.tick))
        self._off, self._span = self._off * fade + off, self._span * fade + span
        self._learn(told.limit / self.minute)

    def _see_most(self, most: float, now: float) -> None:
        """The window, by the highest that the headers of the last minute tell: those that come late tell too little."""
        if now >= self._since + self.minute / 2:
            self._since, self._before, self._now = now, self._now, most
        self._now = max(self._now, most)
        self.window = max(self._now, self._before)

    def _see_flow(self, told: HeaderFacts, serial: int, sent: float) -> None:
        """Whether it comes back bit by bit, or all at once when a minute is over."""
        if self._flows is not None:
            return
        if (
            told.reset <= 1.1 * self.minute
            and told.left + told.reset * told.limit / self.minute > 1.2 * told.limit + 2
        ):
            self._flows = False  # no bucket holds that much: it is a minute that ends then
            self.window = told.limit
            return
        spent = self._sent.spent_until(serial)
        if self._first is None or told.left >= 0.8 * self.brim - 1:
            self._first = (sent, told.left, spent)
            return
        since, left, before = self._first
        foretold = (self.rate or 0.0) * (sent - since)
        if foretold >= _FLOW * max(1.0, self.mean) and sent - since >= 5 * self.tick:
            self._flows = told.left - left + spent - before > 0.3 * foretold
            if not self._flows:
                self.window = told.limit

    def reject(
        self, call: SentCall, now: float, wait: float | None, told: HeaderFacts | None = None
    ) -> bool:
        """The rate was passed: nothing was left then.

        It is news only once for all that had gone out; whether it was.

        For `wait` seconds nothing goes; after that one call alone, to see.
        """
        serial, sent, cost = call.serial, call.at, call.cost
        self.settle(serial, 0.0)
        if self._probe is not None and sent >= self._probe:
            self._probe = None
        if serial <= self._epoch:
            return False
        self._epoch = self._last
        self._row += 1
        if (
            told is not None and told.left > cost and self.trusted
        ):  # who has so much left does not turn it away
            self.trusted = False
            self.rate = None if self._zero is None else self.rate
        if told is not None and self.trusted:
            self._see_flow(told, serial, sent)
        spent, used = self._sent.spent_until(serial), self._sent.used_until(serial, sent)
        if self.window is not None:
            self.window = max(min(self.window, used) * 0.995, cost)
        elif self.limit is not None and self.trusted and self.rate is not None:
            self._doubt(*self._move(serial, sent, -inf, 0.0), cost)
            # Calls don't arrive as evenly as they go out: so many more are kept back.
            self._margin = min(
                max(2 * self._margin, self.mean), 0.1 * self.brim, self.rate * self.tick
            )
        else:
            self._measure(sent, spent, cost)
            self._move(serial, sent, 0.0, 0.0)
        if not (self.trusted and self.limit):  # what else is left may be there, or not
            most = (self.rate or 0.0) * self.tick
            self.brim = max(1.05 * cost, _RUSH * most) if self._even else max(2 * cost, most)
        self._see_window(used, sent, cost)
        self._hear_of_window(used, sent, wait, cost)
        self._zero = (sent, spent)
        self._passed = self._calm = 0
        self._quiet_since = now
        self._pulse = SlowStart(
            now, max(4 / self.tick, 2 * (self.rate or 0.0)), self._beat, self.tick
        )
        if wait is None:
            wait = min(self.minute / 4, self.tick * 0.5 * 2.0 ** min(self._row - 1, 6))
        self._hold_for(wait, now, told)
        return True

    def _hold_for(self, wait: float, now: float, told: HeaderFacts | None) -> None:
        """Let nothing go for so long, and then one call alone.

        What lasts longer than a minute is no limit of a minute: that one call goes after a minute
        at the latest, or when the headers say that all is back. If it is turned away too, the
        server is taken at its word from then on.
        """
        longest = (
            self.minute
            if told is None or not self.trusted
            else min(self.minute, told.reset + 0.1 * self.tick)
        )
        if self._early and self._row > 1:
            self._is_strict = True
        self._early = not self._is_strict and wait > longest
        self.hold = max(self.hold, now + (longest if self._early else wait))
        self._owes_probe = True

    def _see_window(self, used: float, sent: float, cost: float) -> None:
        """Nothing came back though time went by: what was used in the minute before is all that there is."""
        zero = self._zero
        if zero is None or self._full is None or self._passed > _A_PROBE:
            self._full, self._hoped = used, self.rate or 0.0
            return
        took = sent - zero[0]
        came_back = used > self._full + 0.5 * cost
        if (
            self.window is None
            and not came_back
            and took >= 3 * self.tick
            and took * self._hoped > 5 * self.mean
        ):
            self.window = max(self._full, cost)

    def _hear_of_window(self, used: float, sent: float, wait: float | None, cost: float) -> None:
        """The wait that a server asks for, if it ends when the oldest call is a minute old."""
        oldest = self._sent.oldest
        if wait is None or oldest is None or self.window is not None:
            return
        is_long = wait >= 3 * self.tick and wait * (self.rate or 0.0) > 5 * self.mean
        if is_long and abs(sent + wait - oldest - self.minute) < 5 * self.tick:
            self.window = max(used, cost)

    def _doubt(self, off: float, span: float, cost: float) -> None:
        self._off, self._span = self._off + off, self._span + span
        if off < -(
            2 + 2 * cost + (self.rate or 0.0) * self.tick
        ):  # more than what a second's delay explains
            self._doubts += 1
            self.trusted = self._doubts < _DOUBTS
        if self.limit is not None:
            self._learn(self.limit / self.minute)

    def _measure(self, sent: float, spent: float, cost: float) -> None:
        """The rate, by what was let in since there was nothing left before."""
        if self._zero is not None and sent > self._zero[0]:
            took, used = sent - self._zero[0], spent - self._zero[1]
            since = max(
                self._resumed, sent - 10 * self.tick if self._boldness > _BOLD else self._resumed
            )
            if sent - since >= 3 * self.tick and since > sent - self.minute:
                took, used = sent - since, self._sent.taken_between(since, sent)
            self._weigh(max(used, 0.5 * cost) / took, used / max(self.mean, cost))
        elif self._zero is None and (self.rate is None or self.limit is None):
            began = sent if self._began is None else self._began
            self.rate = max(spent, cost) / max(sent - began, self.tick)

    def _weigh(self, seen: float, calls: float) -> None:
        """Take a measurement over so many calls for as much as it is worth beside those before it."""
        rate = self.rate or seen
        if calls < _FEW:  # mostly it was held meanwhile, perhaps for longer than there was need
            seen = max(seen, 0.6 * rate)
        if 4 * calls < self._sample:  # a slip, or a change that the next one will confirm
            self.rate = 0.97 * rate
            self._sample /= 2
        elif abs(seen - rate) > 0.15 * rate or not self._sample:
            self.rate, self._sample = seen, calls
        else:
            self.rate = rate + (seen - rate) * calls / (calls + self._sample)
            self._sample = min(_BOLDER, self._sample + calls)

    def _learn(self, full: float) -> None:
        """How far off we were, again and again, is how wrong the rate is."""
        if self._span > 3 * self.tick and abs(self._off) > 2 * max(1.0, self.mean):
            seen = (self.rate or full) + self._off / self._span
            self.rate = full if seen > _NEAR * full else max(_CAREFUL * seen, 0.02 * full)
            self._off = self._span = 0.0

    def _move(self, serial: int, when: float, low: float, high: float) -> tuple[float, float]:
        """There was between `low` and `high` left after that call.

        How far off we were, and over how many seconds.
        """
        rate = self.rate or 0.0
        start = self._anchored
        level, known = self._base, start is not None
        recent = self._sent.after(self._anchor)
        if start is not None:
            before = (each for each in recent if each.serial <= serial)
            level = replay(level, start, before, (rate, self.brim), until=when)
        new = min(max(level, low), high) if known else max(low, 0.0)
        off, span = (new - level, when - start) if start is not None else (0.0, 0.0)
        capped = known and level >= 0.98 * self.brim
        self._anchor, self._anchored, self._base = serial, when, new
        after = [each for each in recent if each.serial > serial]
        self._level = replay(new, when, after, (rate, self.brim))
        self._at = after[-1].at if after else when
        return (0.0, 0.0) if capped else (off, max(0.0, span))
