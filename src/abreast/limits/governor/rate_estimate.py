"""Estimates one rate of a provider, and keeps a copy of its counter: a call goes if that admits it.

What is known comes from the user, from headers as long as they prove right, and from rejections:
after each of them nothing was left, and what was accepted between two of them is the rate.
"""

from math import floor, inf, sqrt
from typing import Self

from abreast.limits.governor.counter_copy import CounterCopy
from abreast.limits.governor.headers.age import HeaderAge
from abreast.limits.governor.headers.facts import HeaderFacts
from abreast.limits.governor.headers.kind import HeaderKind
from abreast.limits.governor.headers.refill_measurement import (
    NEARLY_ALL,
    LevelMeasurement,
    RefillMeasurement,
)
from abreast.limits.governor.headers.scale import HeaderScale
from abreast.limits.governor.headers.trust import BelievedKind, HeaderTrust
from abreast.limits.governor.minute_trial import MinuteTrial
from abreast.limits.governor.rate_trial import SLOW_GROWTH, RateTrial
from abreast.limits.governor.rejection_fit import Explanation, RejectedCall
from abreast.limits.governor.rejection_record import RejectionRecord
from abreast.limits.governor.sent_calls import SentCall
from abreast.limits.governor.slow_start import SlowStart

__all__ = ["HEADER_INTERVAL", "OVERTAKING", "HeaderFacts", "RateEstimate"]

HEADER_INTERVAL = 0.1  # seconds between two headers that are read
OVERTAKING = 0.05  # seconds between the arrivals of calls that were sent together
_MEASURED_CALLS = 20  # at least so many, if what they take varies
_BUCKET_SPEED = 4  # times the rate: how fast is used what was saved up
_WINDOW_SPEED = 12  # times the rate: how fast a new minute is used
_WINDOW_RESERVE = 0.02  # of what a minute allows
_MOST_WAIT_TIMES = 4.0  # how much longer than a server says
_EXPLAINED = 3  # rejections, by which it is known how the server counts
_MORE = 2  # calls more than were possible: the rate is higher than it was
_AGREES_WITH_HEADER = 0.9  # of its limit: what is found beside it is the same
_MOST_LARGER = 4  # doublings of what a call is thought to take, that was rejected again
_FIRST_AND_LAST = 2  # of the rejections in a row: those between say no more
_CLEARLY, _CLEAR_PART = 3, 0.1  # calls, and the part of a limit, that are clearly enough


class RateEstimate:
    """One rate. Times are those of a clock; `minute` is the length of the server's minute."""

    def __init__(
        self, minute: float = 60.0, rate: float | None = None, *, even: bool = True
    ) -> None:
        """`rate`, if it is given, is the user's, per minute; then nothing is learned.

        `even` means that each call takes one, as with requests.
        """
        self.minute = minute
        self.second = minute / 60
        self._is_given = rate is not None
        self._even = even
        self.copy = CounterCopy(minute, 0.0 if self._is_given else OVERTAKING * self.second)
        self.rate: float | None = None  # per second
        self.limit: float | None = None  # per minute, by headers
        self._trust = HeaderTrust()
        self._age = HeaderAge(minute)
        self._scale = HeaderScale()
        self.hold = -inf  # no call goes before this time
        self.mean = 0.0  # of the costs of calls
        self._spaced_until = -inf
        self._slow_start: SlowStart | None = None
        self._first_sent: float | None = None
        self._last_serial = 0
        self._reserve = 0.0  # what rejections have taught to leave unused
        # Headers: where the measurement of the rate began.
        self._limit_serial = 0  # the call whose header the limit is from
        self._newest_header = 0  # the call whose header was read
        self._refill = RefillMeasurement(self.copy.jitter)
        self._levels = LevelMeasurement()
        self._kind = HeaderKind(minute)
        # Rejections: one is news only for a call sent after `_rejected_up_to`.
        self._rejected_up_to = 0
        self._rejections_in_row = 0
        self._rejected_at = -inf  # when the last rejected call was sent
        self._last_empty: tuple[float, float] | None = None  # when, and what was spent until then
        self._has_wait = False  # the last rejection asked for one
        # What was accepted before the first rejection, and in what time.
        self._first_burst = self._first_burst_seconds = 0.0
        # What an answer takes is known only afterwards.
        self._record = RejectionRecord(tolerance=0.02 if even else 0.05)
        self._needs_fit = False
        self._is_reached = False  # it makes the next call wait
        self._was_reached = False  # it has made a call wait in the last minute
        self._trial = RateTrial()
        self._quiet_since = 0.0
        self._is_sure = True  # of a minute's amount: more than one rejection tells of it
        self._minute_trial = MinuteTrial()
        # After a hold one call goes alone: when it was sent, and whether it is still to be sent.
        self._probe: float | None = None
        self._probe_pending = False
        self._probe_is_early = False  # it goes before the server's time
        self._obeys_wait = False
        self._explained = 0  # rejections that what is believed explains
        self._wait_times = 1.0  # how much longer than the server says it has proved to take
        if rate is not None:
            self._set_rate(rate / minute, max(1.0, rate / 60))
            self.copy.anchor(0, 0.0, self.copy.capacity)

    @property
    def per_minute(self) -> float | None:
        """How much is accepted per minute; None if unknown."""
        if not self.copy.is_bucket:
            return self.copy.amount
        return None if self.rate is None else self.rate * self.minute

    @property
    def trusted(self) -> bool:
        """Whether headers are believed."""
        return self._trust.is_given

    @property
    def _follows_headers(self) -> bool:
        return self.trusted and self.limit is not None

    def expect(self, rate: float) -> None:
        """Begin with a rate per minute that was accepted in an earlier run."""
        self._set_rate(rate / self.minute, max(1.0, rate / self.minute * self.second))
        self.copy.anchor(0, 0.0, self.copy.capacity)
        self._trial.expect()

    def _set_rate(self, rate: float, capacity: float | None = None) -> None:
        self.rate = self.copy.rate = self.copy.speed = rate
        if capacity is not None:
            self.copy.capacity = capacity

    # --- decisions

    def refusal(self, cost: float, now: float) -> float | None:
        """None if so much may go now, else the time when it might."""
        if now < self.hold:
            return self.hold
        if self._probe is not None and now < self._probe + self.second:
            return self._probe + self.second
        if self._even and self._slow_start is not None:
            due = self._slow_start.due(now)
            if due is not None:
                return due
        if self.rate is None and self.copy.is_bucket:
            return None
        if now < self._spaced_until:
            return self._spaced_until
        if self._needs_fit and self._record.last is not None:
            self._fit(self._record.last)
        self._probe_for_more(now)
        cost *= self._larger
        when = self.copy.next_chance(cost, self._unused(cost), now)
        self._is_reached |= when > now
        return None if when <= now else when

    @property
    def _larger(self) -> float:
        """How much larger the next call may be than thought: it was rejected again.

        What a call's answer takes is known only afterwards.
        """
        doublings = max(self._rejections_in_row - self._has_wait, 0)
        return 1.0 if self._even else 2.0 ** min(doublings, _MOST_LARGER)

    def _unused(self, cost: float) -> float:
        """What is kept in reserve; it delays calls only once."""
        if self._is_given:
            return 0.0
        usual = 0.0 if not self.copy.is_bucket else min(1.0, (self.rate or 0.0) * self.second)
        if not self._even:
            usual = 0.5 * self.mean
        copy = self.copy
        # What is not used of a minute is lost, what is left in a bucket is not.
        room = 0.2 * copy.capacity if copy.is_bucket else _WINDOW_RESERVE * copy.amount
        if self._even and not copy.is_bucket:
            room = floor(room)  # a part of a call would cost a whole one each minute
        return max(0.0, min(usual + self._reserve, room, copy.capacity - cost))

    def _probe_for_more(self, now: float) -> None:
        """Without headers, be a little faster than measured: more with each accepted call."""
        if self._is_given or self._follows_headers:
            return
        if self.copy.is_bucket:
            self._notice_more(now)
            growth = self._trial.growth
            rate, most = self.rate or 0.0, self._most
            if growth >= 1.0 and rate < most:
                self._set_rate(min(2 * rate, most))
                self._trial.begin_anew()
                self._hurry()
            else:
                self.copy.speed = max(rate, min(rate * (1.0 + growth), most))
        elif self._is_reached and not self._is_sure:
            self._is_reached = False
            self._allow(2.0 * self.copy.amount)  # one rejection is little to go by
        elif now >= self._quiet_since + self.minute:
            self._quiet_since = now
            if self._was_reached:
                self._was_reached = False
                if self._minute_trial.is_due():
                    self._minute_trial.begin(self._trial.uncertainty)
                    self._try_more()

    def _try_more(self) -> None:
        """Let more go in a minute than was accepted so far, of requests at least one."""
        least = 1.0 if self._even else self.mean
        self._allow(self._minute_trial.enlarge(self.copy.amount, least))

    @property
    def _most(self) -> float:
        """The highest rate that is tried: headers may claim too much, but not too little."""
        return inf if self.limit is None else self.limit / self.minute

    def _allow(self, amount: float) -> None:
        """Let so much go in a minute, if headers do not claim less and it is more than before."""
        self.copy.amount = max(self.copy.amount, min(amount, self._most * self.minute))

    def _notice_more(self, now: float) -> None:
        """Try faster soon if more was accepted than a bucket of the highest rate would have had."""
        if self._last_empty is not None and self._trial.highest < inf:
            since, spent = self._last_empty
            spent = self.copy.sent.spent - spent
            if spent > self._trial.highest * (now - since) + _MORE * self.mean:
                self._trial.highest = inf
                self._record.forget()
                self._hurry()

    def _hurry(self) -> None:
        """Try much faster soon: next to nothing is known of the rate.

        Before what was saved up is used, nothing is learned of it.
        """
        saved = (
            min((self.rate or 0.0) * self.minute, self._first_burst or inf) / self.mean
            if self.copy.capacity < inf and self.mean
            else 0.0
        )
        self._trial.hurry(saved)

    # --- observations

    def start(self, now: float, speed: float, doubling_time: float) -> None:
        """Let other calls follow the first, twice as fast after each `doubling_time`."""
        self._slow_start = SlowStart(now, max(speed, self.rate or 0.0), doubling_time, self.second)

    def send(self, serial: int, cost: float, now: float) -> None:
        """Record that a call is sent."""
        self.copy.add(serial, cost, now)
        self._minute_trial.send(self.copy.sent.used, now)
        self._last_serial = serial
        if self._is_reached:
            self._trial.send()
            self._is_reached = False
            self._was_reached = True
        self.mean = self.mean + 0.05 * (cost - self.mean) if self.mean else cost
        if self._first_sent is None:
            self._first_sent = now
        if self._last_empty is not None and cost > self.copy.capacity:  # nothing is left after it
            self._last_empty = (now, self.copy.sent.spent)
        most = self.per_minute
        if self._slow_start is not None:
            self._slow_start.sent(now)
        if most is not None and not self._is_given:
            times = _BUCKET_SPEED if self.copy.is_bucket else _WINDOW_SPEED
            base = max(self._spaced_until, now - self.copy.jitter)
            speed = self.copy.speed if self.copy.is_bucket else 0.0
            fastest = times * max(most / self.minute, speed, 1e-9)
            self._spaced_until = base + cost / fastest
        if self._probe_pending and now >= self.hold:
            self._probe, self._probe_pending = now, False

    def remember(self, other: Self, share: float) -> Self:
        """Take over the calls that another rate has counted, each with this share of its cost."""
        for call in other.copy.sent.remembered():
            self.copy.add(call.serial, share * call.cost, call.at)
        self._last_serial, self._first_sent = other._last_serial, other._first_sent
        self.mean = share * other.mean
        return self

    def settle(self, serial: int, cost: float) -> None:
        """Record what a call has really taken."""
        self.copy.settle(serial, cost)

    def settle_rejected(self, serial: int, cost: float) -> None:
        """Record what a rejected call would have taken: it was answered when it was sent again."""
        kind = self._trust.settle(serial, cost)
        if kind is not None:
            self.limit = None
            self.copy.is_bucket, self.copy.capacity, self.copy.sent.boundary = kind
        if not self._even and self._record.settle(serial, cost):
            self._needs_fit = not self._follows_headers

    def passed(self, sent: float) -> None:
        """Record that a call sent at that time was accepted."""
        if self._minute_trial.shows_more(sent):
            self._try_more()
        if sent > self._rejected_at:
            if self._rejections_in_row > 1:
                self._record.accept_again(sent)
                self._needs_fit = not self._follows_headers
            self._rejections_in_row = 0
        if self._probe is not None and sent >= self._probe:
            self._probe = None

    # --- headers

    def update_limit(self, limit: float, serial: int) -> None:
        """Use the limit that a header gives, unless that of a later call is known."""
        if serial < self._limit_serial:
            return
        limit /= self._scale.factor
        is_first, self._limit_serial = not self._limit_serial, serial
        if self.limit is not None and abs(limit - self.limit) <= 0.01 * self.limit:
            return
        change = limit / self.limit if self.limit else 1.0
        if not self.copy.is_bucket:
            self.copy.amount *= change
        if not self.trusted and self.rate is not None and change != 1.0:
            self._set_rate(self.rate * change)
            self._trial.scale(change)
            self._record.clear()
        self.limit = limit
        self._kind.begin_anew()
        if self.trusted:
            self._set_rate(limit / self.minute, inf)  # the next header tells the capacity
            self._levels.begin_anew()
            if not is_first:
                self._refill.begin_anew()
            if is_first:  # what was guessed after a rejection without one may be wrong
                self.copy.is_bucket, self.copy.sent.boundary = True, None

    def update_from_header(self, header: HeaderFacts, serial: int, sent: float) -> None:
        """Use what a header says, as of the time when that call came in."""
        if serial <= self._newest_header:
            return
        self._newest_header = serial
        call = self._age.call_of(header, serial, sent, self.copy)
        if (
            call is not None
            and not self._age.seconds
            and self._scale.compare(header, call, self.copy, self.mean, even=self._even)
        ):
            self._trust.give()  # what seemed wrong was too large
            self.limit = None
        raw_limit, header = header.limit, self._scaled(header)
        if (
            self._trust.looks_again(serial)
            and (self.per_minute or 0.0) >= _AGREES_WITH_HEADER * header.limit
        ):
            self._trust.give()
            self.limit = None
        self.update_limit(raw_limit, serial)
        if not self.trusted or self.limit is None:
            return
        if serial < self._limit_serial and abs(header.limit - self.limit) > 0.01 * self.limit:
            return  # it is about limits that have changed since
        if call is None:
            return
        serial, sent = call.serial, call.at
        self._learn_kind(header, serial, sent, self.copy.sent.cost_of(serial))
        if serial <= self.copy.anchor_serial:
            return  # what is left is known better; how it comes back, is not
        self._believe(header, serial, sent)

    def _scaled(self, header: HeaderFacts) -> HeaderFacts:
        factor = self._scale.factor
        return HeaderFacts(header.limit / factor, header.left / factor, header.reset)

    def _learn_kind(self, header: HeaderFacts, serial: int, sent: float, cost: float) -> None:
        """Learn how the server counts, and how much a bucket holds and how fast it fills."""
        if self.copy.is_bucket:
            self._learn_capacity(header, cost)
        call, is_old = SentCall(serial, sent, cost), self._age.seconds > 0
        self._kind.find(header, call, self.copy, self._clearly, is_old=is_old)
        if self.copy.is_bucket:
            self._measure_by_headers(header, call)

    def has_clear_room(self, serial: int, sent: float, header: HeaderFacts) -> bool:
        """Whether a header shows much more than a call needs, and the calls so far agree."""
        enough = self._clearly
        counted = self.copy.left_after(serial, sent)
        return self.trusted and enough <= header.left < header.limit and enough <= counted < inf

    def _believe(self, header: HeaderFacts, serial: int, sent: float) -> None:
        copy = self.copy
        # Headers are rounded down: a fraction that was counted here is kept.
        counted = copy.left_after(serial, sent)
        fraction = min(max(counted - header.left, 0.0), 0.999) if counted < inf else 0.0
        copy.anchor(serial, sent, header.left + fraction)
        if not copy.is_bucket:  # what is left in an old header may have been used since
            copy.amount = min(copy.amount, header.limit)

    def _learn_capacity(self, header: HeaderFacts, cost: float) -> None:
        """Learn how much a full bucket holds: what is left and what is missing, at first."""
        copy = self.copy
        full = header.left + header.reset * header.limit / self.minute
        known = copy.capacity if copy.capacity < inf else full if self._last_serial != 1 else 0.0
        # A call bigger than a bucket leaves nothing: its size says nothing of the bucket's.
        copy.capacity = max(1.0, header.left + cost if header.left >= 1 else 0.0, known)

    def _measure_by_headers(self, header: HeaderFacts, call: SentCall) -> None:
        """Measure the rate at which a bucket fills: others may use a part of it."""
        full = header.limit / self.minute
        if header.reset > 0:
            least = (1 if self._even else _MEASURED_CALLS) * self.mean
            seen = self._refill.add(call.serial, call.at, header.reset, self.copy.sent, least)
        elif self._levels.contradicts(header.left, call, self.copy, full, self._clearly):
            self.copy.is_bucket, self.copy.amount = False, header.limit
            return
        else:
            seen = self._levels.add(header.left, call, self.copy, full, self.mean)
        if seen is not None:
            self._set_rate(full if seen > NEARLY_ALL * full else max(seen, 0.02 * full))

    @property
    def _clearly(self) -> float:
        return max(_CLEARLY * self.mean, _CLEAR_PART * (self.limit or 0.0))

    # --- rejections

    def reject(
        self, call: SentCall, now: float, wait: float | None, header: HeaderFacts | None = None
    ) -> bool:
        """Record a rejection, at which nothing was left; return whether that is news.

        It is news only once for all calls that had been sent by then. No call goes for `wait`
        seconds; after that one call goes alone, as a probe.
        """
        serial, sent, cost = call.serial, call.at, call.cost
        self.settle(serial, 0.0)
        is_probe = self._probe is not None and sent >= self._probe
        if is_probe:
            self._probe = None
        if serial <= self._rejected_up_to:
            return False
        self._rejected_up_to = self._last_serial
        self._rejections_in_row += 1
        self._rejected_at = sent
        expected = self.copy.left_after(serial, sent)
        spent = self.copy.sent.spent_until(serial)
        enough = cost if self._even else 3 * max(cost, self.mean)
        header = self._of_rejection(header)
        if header is not None and self.trusted and header.left > enough:
            self._doubt(header, call)
        if self._follows_headers and expected >= cost:
            self._trust.surprise(serial)
        if not self._follows_headers and self.rate is None:
            self._guess(call, wait)
        self._has_wait = wait is not None
        # What the answer would have taken is not known.
        times = 2.0 ** min(self._rejections_in_row - 1, _MOST_LARGER)
        counted = cost if self._even else times * cost + 0.5 * self.mean
        rejected = RejectedCall(serial, sent + self.copy.jitter, counted, wait)
        self._record.add(rejected, again=self._rejections_in_row > _FIRST_AND_LAST)
        if self._follows_headers:
            self._correct(call, expected, header, wait)
        else:
            self._needs_fit = True
            if self.copy.is_bucket:
                self.copy.anchor_bucket(serial, sent, 0.0)
        if self._last_empty is None or spent > self._last_empty[1]:
            self._last_empty = (sent, spent)
        self._trial.begin_anew()
        self._quiet_since = now
        self._minute_trial.reject()
        self._hold_for(self._wait_of(wait, is_probe=is_probe), now, header)
        return True

    def _of_rejection(self, header: HeaderFacts | None) -> HeaderFacts | None:
        """What the header says of the rejected call: nothing if it is about an earlier one."""
        return None if header is None or self._age.seconds else self._scaled(header)

    def _wait_of(self, wait: float | None, *, is_probe: bool) -> float:
        """How long no call goes: as the server says, or longer if that has proved too short."""
        if wait is None:
            doublings = min(self._rejections_in_row - 1, 6)
            return min(self.minute / 4, self.second * 0.5 * 2.0**doublings)
        if is_probe and self._rejections_in_row > 1 and not self._probe_is_early:
            self._wait_times = min(2 * self._wait_times, _MOST_WAIT_TIMES)
        return max(wait, min(self._wait_times * wait, self.minute))

    def _doubt(self, header: HeaderFacts, call: SentCall) -> None:
        """Do not believe headers that say of a rejected call that there was enough left for it.

        They are old, and the limit is right; or, if nothing at all was used by them, all is wrong.
        """
        copy = self.copy
        kind = BelievedKind(copy.is_bucket, copy.capacity, copy.sent.boundary)
        self._trust.doubt(call.serial, header.left, kind)
        self._trial.doubt()
        if header.left >= 0.95 * header.limit - call.cost:
            self.rate = None
            copy.is_bucket, copy.capacity = True, inf

    def _correct(
        self, call: SentCall, expected: float, header: HeaderFacts | None, wait: float | None
    ) -> None:
        """Nothing was left though headers promised more: keep a reserve from now on."""
        copy = self.copy
        if header is not None:
            self._learn_kind(header, call.serial, call.at, 0.0)
        if copy.is_fixed and expected > 0.5 * copy.amount:  # the new minute has not begun yet
            ends = wait if wait is not None else 0.0 if header is None else header.reset
            copy.sent.boundary = call.at + ends if ends else None
            return
        if copy.is_bucket and copy.capacity == inf and header is not None and header.reset:
            self._learn_capacity(header, 0.0)
        if expected > call.cost:
            room = min(copy.capacity if copy.is_bucket else copy.amount, self.limit or inf)
            self._reserve = min(max(2 * self._reserve, self.mean), 0.1 * room)
        left = 0.0 if header is None else min(header.left, call.cost)
        if copy.anchor_serial < call.serial:
            copy.empty(call.serial, call.at, left)

    def _guess(self, call: SentCall, wait: float | None) -> None:
        """Guess how the server counts, and what it allows, after the first rejection."""
        sent, cost = call.at, call.cost
        first = sent if self._first_sent is None else self._first_sent
        used = max(self.copy.sent.used_until(call.serial, sent), cost)
        took = min(sent - first, self.minute)
        self._first_burst, self._first_burst_seconds = used, took
        least = used / (self.minute + took)
        # A wait is rounded up to whole seconds.
        by_wait = least if wait is None else cost / max(wait - self.second / 2, self.second / 2)
        fastest = used / max(took, self.second)
        self._set_rate(min(max(by_wait, least), fastest) if wait else sqrt(least * fastest))
        if wait is None or wait <= self._longest_refill(cost) + self.second:
            return
        # No bucket needs so long for a call.
        ends, oldest = sent + wait, self.copy.sent.oldest
        is_sliding = oldest is not None and abs(ends - oldest - self.minute) < 1.5 * self.second
        if wait <= self.minute + self.second:
            self.copy.count_minutes(None if is_sliding else ends)

    def _longest_refill(self, cost: float) -> float:
        """In how many seconds any bucket has room for a call: none holds more than a minute's."""
        return cost * (self.minute + self._first_burst_seconds) / max(self._first_burst, cost)

    def _fit(self, last: RejectedCall) -> None:
        """Believe the way of counting that explains the last rejections."""
        self._needs_fit = False
        rate, mean = self.rate or 1.0, max(self.mean, 1e-9)
        belief = self._record.explain(self.copy, rate, mean, shared=self.limit is not None)
        self._explained = belief.found.rejections
        if belief.is_bucket:
            self._use_bucket(belief.found, belief.capacity)
        elif belief.found.rejections:
            self._use_minutes(belief.found, belief.boundary)
        self.copy.anchor_bucket(last.serial, last.at - self.copy.jitter, 0.0)

    def _use_bucket(self, found: Explanation, capacity: float) -> None:
        self.copy.is_bucket, self.copy.sent.boundary = True, None
        before = self.rate or found.low
        rate = min(max(before, found.low), found.high)
        if found.high == inf:  # no bucket holds more than comes back in a minute
            rate = max(rate, self.copy.sent.most_in_a_minute() / (2 * self.minute))
        if found.rejections > 1 and found.high < inf:
            rate = (found.low + found.high) / 2
            calls = self._record.calls_since(found.rejections)
            self._trial.confirm(rate, before, found, calls)
        elif found.high < inf:
            self._hurry()
        self._trial.highest = found.high
        self._set_rate(rate)
        self.copy.capacity = capacity

    def _use_minutes(self, found: Explanation, boundary: float | None) -> None:
        self.copy.is_bucket, self.copy.sent.boundary = False, boundary
        amount = max(found.low, found.high / 2) if found.high < inf else found.low
        amount = min(amount, self._most * self.minute)
        # One rejection may have been sent in another minute than was thought.
        is_sure = found.rejections > 1 or self.copy.amount == inf
        self.copy.amount = amount if is_sure else max(amount, 0.5 * self.copy.amount)
        if is_sure:
            self._minute_trial.wait_longer()
        else:
            self._minute_trial.wait_least()
        self._trial.uncertainty = SLOW_GROWTH
        self._is_sure = is_sure

    def _hold_for(self, wait: float, now: float, header: HeaderFacts | None) -> None:
        """Let no call go for so long, and then one call alone.

        If the server always asks for the same wait, and what is believed explains some rejections,
        the one call goes as soon as there should be room.
        A wait of more than a minute is not that of a limit per minute: the one call goes after a
        minute at the latest, or when the headers say that all is back. If it is rejected too, the
        server's wait is obeyed from then on.
        """
        longest = (
            self.minute
            if header is None or not self.trusted or not header.reset
            else min(self.minute, header.reset + 0.1 * self.second)
        )
        is_known = self._explained >= _EXPLAINED and self._record.has_constant_wait
        if is_known and self._rejections_in_row == 1:
            there_is_room = self.copy.next_chance(self.mean, 0.0, now)
            longest = min(longest, max(there_is_room - now, 0.5 * self.second))
        if self._probe_is_early and self._rejections_in_row > 1:
            self._obeys_wait = True
        self._probe_is_early = not self._obeys_wait and wait > longest
        self.hold = max(self.hold, now + (longest if self._probe_is_early else wait))
        self._probe_pending = True
