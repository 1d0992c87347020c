"""Estimates one rate of a provider: how much of it is left, and how fast it comes back.

Servers count in three ways: a bucket that fills evenly, a fixed minute, a sliding minute. What is
left is predicted as for a bucket. If that predicts too much, nothing is expected to come back
before a minute is over, which is right for the other two.

What is known comes from the user, from headers as long as they prove right, and from rejections:
after each of them nothing was left, and what was accepted between two of them is the rate.
"""

from math import exp2, inf
from typing import NamedTuple

from abreast.limits.governor.sent_calls import SentCall, SentCalls, replay
from abreast.limits.governor.slow_start import SlowStart

_TOLERANCE = 1e-9
_FADE_HALF_LIFE = 10.0  # seconds of a minute of 60, after which an observation counts half
_NEARLY_ALL = 0.93  # of a header's limit: an estimate above it means that no one else uses the rate
_SAFETY_FACTOR = 0.99
_FAST_PROBING = 1.1
_PROBING_FACTOR = 1.003  # without headers, a little more than the measured rate is tried
_PROBE_CALLS = 2  # the one that was rejected, and one beside it
_MAX_DOUBTS = 3  # rejections that headers did not predict, until they are no longer trusted
_LARGE_SAMPLE = 50  # calls
_REFILL_TEST_CALLS = 6  # calls that should have come back, before it is tested whether they did
_SMALL_SAMPLE = 3  # calls
HEADER_INTERVAL = 0.1  # seconds between two headers that are read
_WEAK_MEASUREMENT = 3  # calls; fewer say little about a rate
_BURST_SECONDS = 0.1  # without headers, what comes back in this time may be sent at once


class HeaderFacts(NamedTuple):
    """What a header says of a rate: per minute, what is left, and the seconds until all is back."""

    limit: float
    left: float
    reset: float


class RateEstimate:
    """One rate. Times are those of a clock; `minute` is the length of the server's minute."""

    def __init__(
        self, minute: float = 60.0, rate: float | None = None, *, even: bool = True
    ) -> None:
        """`rate`, if it is given, is the user's, per minute; then nothing is learned.

        `even` means that each call takes one, as with requests; then calls are sent evenly spaced,
        never in a burst.
        """
        self.minute = minute
        self.second = minute / 60
        self._is_given = rate is not None
        self._even = even
        self.rate = rate / minute if rate is not None else None  # per second
        self.capacity = inf if rate is None else max(1.0, rate / 60)
        self.limit: float | None = None  # per minute, by headers
        self.trusted = True  # headers have proved right so far
        self.window: float | None = None  # per fixed or sliding minute, if the server counts so
        self.hold = -inf  # no call goes before this time
        self.mean = 0.0  # of the costs of calls
        # The level of the bucket, and the time for which it was computed.
        self._level = self.capacity
        self._level_at = 0.0
        # The last call after which the level was known, when, and that level.
        self._anchor_serial = 0
        self._anchor_time: float | None = None
        self._anchor_level = 0.0
        self._margin = 0.0
        # What was sent.
        self._sent = SentCalls(minute)
        self._last_serial = 0
        self._first_sent: float | None = None
        self._slow_start: SlowStart | None = None
        self._doubling_time = self.second
        # Rejections: one is news only for a call sent after `_rejected_up_to`.
        self._rejected_up_to = 0
        self._rejections_in_row = 0
        self._passed = 0  # calls sent since nothing was left, and not rejected
        self._last_empty: tuple[float, float] | None = None  # when, and what was spent until then
        self._quiet_since = 0.0
        # After a hold one call goes alone: when it was sent, and whether it is still to be sent.
        self._probe: float | None = None
        self._probe_pending = False
        self._probe_is_early = False  # it goes before the server's time
        self._obeys_wait = False
        self._resumed_at = -inf
        # Measurements of the rate: errors of the predictions, and the calls of the measurement.
        self._error = self._error_seconds = 0.0
        self._sample = 0.0
        self._doubts = 0
        # Whether the rate comes back bit by bit, and when that test began: time, left, spent.
        self._refills_evenly: bool | None = None
        self._refill_test: tuple[float, float, float] | None = None
        # The first rejection in a row: used in the minute before it, and the rate expected then.
        self._used_when_full: float | None = None
        self._expected_rate = 0.0
        # The highest windows that headers imply, of this half of a minute and of the one before.
        self._window_peak = self._previous_window_peak = 0.0
        self._window_peak_since = -inf
        self._quiet_minutes = 0  # in a row without a rejection, if there is a window

    @property
    def per_minute(self) -> float | None:
        """How much is accepted per minute; None if unknown."""
        if self.window is not None:
            return self.window
        return None if self.rate is None else self.rate * self.minute

    def expect(self, rate: float) -> None:
        """Begin with a rate per minute that was accepted in an earlier run."""
        self.rate = rate / self.minute
        self.capacity = self._level = max(1.0, self.rate * self.second)

    # --- decisions

    def refusal(self, cost: float, now: float) -> float | None:
        """None if so much may go now, else the time when it might."""
        if now < self.hold:
            return self.hold
        if self._probe is not None and now < self._probe + self.second:
            return self._probe + self.second
        if (
            self._slow_start is not None
            and self._even
            and (due := self._slow_start.due(now)) is not None
        ):
            return due
        if self.window is not None:
            return self._refusal_in_window(cost, now)
        if self.rate is None:
            return None
        self._refill(now)
        missing = min(cost + self._slack(), self.capacity) - self._level
        return (
            None
            if missing <= _TOLERANCE
            else now + max(missing / self._speed(), 1e-7 * self.minute)
        )

    def _slack(self) -> float:
        """What is kept in reserve for the uncertainty; it delays calls only once."""
        usual = min(1.0, (self.rate or 0.0) * 0.3 * self.second) if self._even else 0.3 * self.mean
        return usual + self._margin

    def _speed(self) -> float:
        rate = self.rate or 0.0
        if self._is_given or (self.limit is not None and self.trusted):
            return rate
        return rate * self._probing_factor

    @property
    def _probing_factor(self) -> float:
        """How much faster than measured: more with every call that was not rejected."""
        return _PROBING_FACTOR + 0.01 * (
            exp2(min(10.0, self._passed / min(_LARGE_SAMPLE, max(_SMALL_SAMPLE, self._sample))))
            - 1.0
        )

    def _refusal_in_window(self, cost: float, now: float) -> float | None:
        self._sent.forget(now)
        most = self.window or 0.0
        missing = self._sent.used + min(cost, most) - most
        if missing <= _TOLERANCE:
            return None
        if not (self.trusted and self.limit) and now >= self._quiet_since + self.minute:
            self._quiet_since = now
            self._quiet_minutes = min(self._quiet_minutes + 1, 6)
            self.window = most * (1.0 + 0.01 * 2.0**self._quiet_minutes)
            return self._refusal_in_window(cost, now)
        for entry in self._sent:
            missing -= entry.cost
            if missing <= _TOLERANCE:
                return entry.at + self.minute + 0.005 * self.second
        return now + self.second

    def _refill(self, now: float) -> None:
        if now > self._level_at:
            if self.rate is not None:
                self._level = min(
                    self.capacity, self._level + self._speed() * (now - self._level_at)
                )
            self._level_at = now

    # --- observations

    def start(self, now: float, speed: float, doubling_time: float) -> None:
        """Let other calls follow the first, twice as fast after each `doubling_time`."""
        self._slow_start = SlowStart(now, max(speed, self.rate or 0.0), doubling_time, self.second)
        self._doubling_time = doubling_time

    def send(self, serial: int, cost: float, now: float) -> None:
        """Record that a call is sent."""
        self._refill(now)
        self._sent.add(serial, cost, now)
        self._last_serial = serial
        self._level -= cost
        self._passed += 1
        self.mean = self.mean + 0.05 * (cost - self.mean) if self.mean else cost
        if self._first_sent is None:
            self._first_sent = now
        if self._slow_start is not None:
            most = self.per_minute
            self._slow_start.sent(
                now, None if most is None else most / self.minute, in_window=self.window is not None
            )
        if self._probe_pending and now >= self.hold:
            self._probe, self._probe_pending = now, False
            self._resumed_at = now

    def settle(self, serial: int, cost: float) -> None:
        """Record what a call has really taken."""
        more = self._sent.settle(serial, cost)
        if serial > self._anchor_serial:
            self._level -= more

    def passed(self, sent: float) -> None:
        """Record that a call sent at that time was accepted."""
        if self._last_empty is None or sent > self._last_empty[0]:
            self._rejections_in_row = 0
        if self._probe is not None and sent >= self._probe:
            self._probe = None

    def update_limit(self, limit: float) -> None:
        """Use the limit that a header gives."""
        if self.limit is None or abs(limit - self.limit) > 0.01 * self.limit:
            if self.window is not None and self.limit:
                self.window *= limit / self.limit
            self.limit = limit
            if self.trusted:
                self.rate, self._error, self._error_seconds = limit / self.minute, 0.0, 0.0
                self.capacity = inf

    def update_from_header(self, header: HeaderFacts, serial: int, sent: float) -> None:
        """Use what a header says, as of the time when that call came in."""
        self.update_limit(header.limit)
        # What comes soon after is nothing new, and examining all that is in flight takes time.
        if (
            not self.trusted
            or serial <= self._anchor_serial
            or (
                self._anchor_time is not None
                and sent < self._anchor_time + HEADER_INTERVAL * self.second
            )
        ):
            return
        rate = self.rate or 0.0
        self.capacity = max(
            header.left + header.reset * rate
            if header.reset <= 1.1 * self.minute
            else header.limit,
            header.left,
            1.0,
        )
        # One at a time: everything is back when one is.
        if self._even and header.left < 1 and 0 < header.reset * rate < 2:  # noqa: PLR2004 - less than two calls
            self.rate = min(header.limit / self.minute, 1.0 / header.reset)
            self.capacity = 1.0
        self._test_refill(header, serial, sent)
        if self.window is not None:
            self._raise_window(
                min(header.limit, header.left + self._sent.used_until(serial, sent)), sent
            )
        error, span = self._anchor_level_at(serial, sent, header.left, header.left + 0.999)
        fade = 0.5 ** (span / (_FADE_HALF_LIFE * self.second))
        self._error, self._error_seconds = (
            self._error * fade + error,
            self._error_seconds * fade + span,
        )
        self._correct_rate(header.limit / self.minute)

    def _raise_window(self, most: float, now: float) -> None:
        """Set the window to the highest value that headers of the last minute imply.

        Headers that come late imply too little.
        """
        if now >= self._window_peak_since + self.minute / 2:
            self._window_peak_since, self._previous_window_peak, self._window_peak = (
                now,
                self._window_peak,
                most,
            )
        self._window_peak = max(self._window_peak, most)
        self.window = max(self._window_peak, self._previous_window_peak)

    def _test_refill(self, header: HeaderFacts, serial: int, sent: float) -> None:
        """Find out whether the rate comes back bit by bit, or all at once when a minute is over."""
        if self._refills_evenly is not None:
            return
        if (
            header.reset <= 1.1 * self.minute
            and header.left + header.reset * header.limit / self.minute > 1.2 * header.limit + 2
        ):
            self._refills_evenly = False  # no bucket holds that much: it is a minute that ends then
            self.window = header.limit
            return
        spent = self._sent.spent_until(serial)
        if self._refill_test is None or header.left >= 0.8 * self.capacity - 1:
            self._refill_test = (sent, header.left, spent)
            return
        since, left, before = self._refill_test
        predicted = (self.rate or 0.0) * (sent - since)
        if (
            predicted >= _REFILL_TEST_CALLS * max(1.0, self.mean)
            and sent - since >= 5 * self.second
        ):
            self._refills_evenly = header.left - left + spent - before > 0.3 * predicted
            if not self._refills_evenly:
                self.window = header.limit

    def reject(
        self, call: SentCall, now: float, wait: float | None, header: HeaderFacts | None = None
    ) -> bool:
        """Record a rejection, at which nothing was left; return whether that is news.

        It is news only once for all calls that had been sent by then. No call goes for `wait`
        seconds; after that one call goes alone, as a probe.
        """
        serial, sent, cost = call.serial, call.at, call.cost
        self.settle(serial, 0.0)
        if self._probe is not None and sent >= self._probe:
            self._probe = None
        if serial <= self._rejected_up_to:
            return False
        self._rejected_up_to = self._last_serial
        self._rejections_in_row += 1
        # A server with so much left would not reject the call, so the header is wrong.
        if header is not None and header.left > cost and self.trusted:
            self.trusted = False
            self.rate = None if self._last_empty is None else self.rate
        if header is not None and self.trusted:
            self._test_refill(header, serial, sent)
        spent, used = self._sent.spent_until(serial), self._sent.used_until(serial, sent)
        if self.window is not None:
            self.window = max(min(self.window, used) * 0.995, cost)
        elif self.limit is not None and self.trusted and self.rate is not None:
            self._doubt_headers(*self._anchor_level_at(serial, sent, -inf, 0.0), cost)
            # Calls don't arrive as evenly as they are sent: so many more are kept in reserve.
            self._margin = min(
                max(2 * self._margin, self.mean), 0.1 * self.capacity, self.rate * self.second
            )
        else:
            self._measure_rate(sent, spent, cost)
            self._anchor_level_at(serial, sent, 0.0, 0.0)
        if not (self.trusted and self.limit):  # it is unknown whether anything else is left
            most = (self.rate or 0.0) * self.second
            self.capacity = (
                max(1.05 * cost, _BURST_SECONDS * most) if self._even else max(2 * cost, most)
            )
        self._find_window_by_use(used, sent, cost)
        self._find_window_by_wait(used, sent, wait, cost)
        self._last_empty = (sent, spent)
        self._passed = self._quiet_minutes = 0
        self._quiet_since = now
        self._slow_start = SlowStart(
            now, max(4 / self.second, 2 * (self.rate or 0.0)), self._doubling_time, self.second
        )
        if wait is None:
            wait = min(
                self.minute / 4, self.second * 0.5 * 2.0 ** min(self._rejections_in_row - 1, 6)
            )
        self._hold_for(wait, now, header)
        return True

    def _hold_for(self, wait: float, now: float, header: HeaderFacts | None) -> None:
        """Let no call go for so long, and then one call alone.

        A wait of more than a minute is not that of a limit per minute: the one call goes after a
        minute at the latest, or when the headers say that all is back. If it is rejected too, the
        server's wait is obeyed from then on.
        """
        longest = (
            self.minute
            if header is None or not self.trusted
            else min(self.minute, header.reset + 0.1 * self.second)
        )
        if self._probe_is_early and self._rejections_in_row > 1:
            self._obeys_wait = True
        self._probe_is_early = not self._obeys_wait and wait > longest
        self.hold = max(self.hold, now + (longest if self._probe_is_early else wait))
        self._probe_pending = True

    def _find_window_by_use(self, used: float, sent: float, cost: float) -> None:
        """Set the window if nothing came back though time went by.

        What was used in the minute before is then all that a minute allows.
        """
        empty = self._last_empty
        if empty is None or self._used_when_full is None or self._passed > _PROBE_CALLS:
            self._used_when_full, self._expected_rate = used, self.rate or 0.0
            return
        took = sent - empty[0]
        came_back = used > self._used_when_full + 0.5 * cost
        if (
            self.window is None
            and not came_back
            and took >= 3 * self.second
            and took * self._expected_rate > 5 * self.mean
        ):
            self.window = max(self._used_when_full, cost)

    def _find_window_by_wait(
        self, used: float, sent: float, wait: float | None, cost: float
    ) -> None:
        """Set the window if the server's wait ends when the oldest call is a minute old."""
        oldest = self._sent.oldest
        if wait is None or oldest is None or self.window is not None:
            return
        is_long = wait >= 3 * self.second and wait * (self.rate or 0.0) > 5 * self.mean
        if is_long and abs(sent + wait - oldest - self.minute) < 5 * self.second:
            self.window = max(used, cost)

    def _doubt_headers(self, error: float, span: float, cost: float) -> None:
        self._error, self._error_seconds = self._error + error, self._error_seconds + span
        # An error that a delay of one second does not explain.
        if error < -(2 + 2 * cost + (self.rate or 0.0) * self.second):
            self._doubts += 1
            self.trusted = self._doubts < _MAX_DOUBTS
        if self.limit is not None:
            self._correct_rate(self.limit / self.minute)

    def _measure_rate(self, sent: float, spent: float, cost: float) -> None:
        """Measure the rate, by what was accepted since nothing was left the last time."""
        if self._last_empty is not None and sent > self._last_empty[0]:
            took, used = sent - self._last_empty[0], spent - self._last_empty[1]
            since = max(
                self._resumed_at,
                sent - 10 * self.second
                if self._probing_factor > _FAST_PROBING
                else self._resumed_at,
            )
            if sent - since >= 3 * self.second and since > sent - self.minute:
                took, used = sent - since, self._sent.taken_between(since, sent)
            self._combine(max(used, 0.5 * cost) / took, used / max(self.mean, cost))
        elif self._last_empty is None and (self.rate is None or self.limit is None):
            first_sent = sent if self._first_sent is None else self._first_sent
            self.rate = max(spent, cost) / max(sent - first_sent, self.second)

    def _combine(self, seen: float, calls: float) -> None:
        """Combine a measurement over so many calls with the earlier ones, by their weight."""
        rate = self.rate or seen
        if calls < _WEAK_MEASUREMENT:  # most of the time was a hold, perhaps longer than necessary
            seen = max(seen, 0.6 * rate)
        if 4 * calls < self._sample:  # an outlier, or a change that the next one will confirm
            self.rate = 0.97 * rate
            self._sample /= 2
        elif abs(seen - rate) > 0.15 * rate or not self._sample:
            self.rate, self._sample = seen, calls
        else:
            self.rate = rate + (seen - rate) * calls / (calls + self._sample)
            self._sample = min(_LARGE_SAMPLE, self._sample + calls)

    def _correct_rate(self, full: float) -> None:
        if self._error_seconds > 3 * self.second and abs(self._error) > 2 * max(1.0, self.mean):
            seen = (self.rate or full) + self._error / self._error_seconds
            self.rate = (
                full if seen > _NEARLY_ALL * full else max(_SAFETY_FACTOR * seen, 0.02 * full)
            )
            self._error = self._error_seconds = 0.0

    def _anchor_level_at(
        self, serial: int, when: float, low: float, high: float
    ) -> tuple[float, float]:
        """Anchor the prediction: between `low` and `high` was left after that call.

        Returns the error of the prediction, and over how many seconds it arose.
        """
        rate = self.rate or 0.0
        start = self._anchor_time
        level, known = self._anchor_level, start is not None
        recent = self._sent.after(self._anchor_serial)
        if start is not None:
            before = (each for each in recent if each.serial <= serial)
            level = replay(level, start, before, (rate, self.capacity), until=when)
        new = min(max(level, low), high) if known else max(low, 0.0)
        error, span = (new - level, when - start) if start is not None else (0.0, 0.0)
        capped = known and level >= 0.98 * self.capacity
        self._anchor_serial, self._anchor_time, self._anchor_level = serial, when, new
        after = [each for each in recent if each.serial > serial]
        self._level = replay(new, when, after, (rate, self.capacity))
        self._level_at = after[-1].at if after else when
        return (0.0, 0.0) if capped else (error, max(0.0, span))
