"""Finds the counter that explains what a server has admitted and rejected, without its headers.

Three kinds are tried: a bucket, for which the rate is searched, a minute that slides, and fixed
minutes. A kind explains the calls if all that were rejected would have needed more of it than all
that were admitted. Rejections are explained from as long ago as possible: older ones may be of a
limit that has changed since.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import floor, inf, sqrt
from typing import Literal, NamedTuple

from abreast.limits.governor.sent_calls import SentCall

Kind = Literal["bucket", "sliding", "fixed"]

_LEAST_REJECTIONS = 2
_MOST_CALLS = 500  # that are looked back at, unless there is one rejection in more
_PHASES = 6  # of fixed minutes that are tried
_LEAST_CALLS = 2  # that a minute has: with fewer, nothing tells it from a bucket
_OLD_KIND = 0.5  # rejections: by so many more another kind must explain
_EXCESS_WEIGHT = 0.5  # rejections that count less if the bounds overlap by all of the slack
_ZOOMS, _RATES = 3, 16  # the search for a bucket's rate: so many rates, so often
_REFINEMENTS = 8
_TOLERANCE = 0.1  # calls: differences of less are noise
_MOST_CHANGE = 8  # times: no limit is thought to change by more at once
_LEAST_USED = 0.02  # of a rejected call: what must have been used of a bucket before it
_ARRIVAL = 0.05  # seconds: calls sent within them may arrive in another order
_BIG_CALL = 4  # times the mean: one that may have been admitted though it did not fit


class NeedBounds(NamedTuple):
    """The most that an admitted call needed, and the least that a rejected one would have."""

    admitted: float
    rejected: float

    @property
    def excess(self) -> float:
        """By how much admitted calls needed more than rejected ones: below 0 if they are apart."""
        return self.admitted - self.rejected if self.admitted < inf else inf


class CounterFit(NamedTuple):
    """A counter that explains so many rejections.

    `rate` is per second, and may be wrong by the share `doubt`; `bounds` are those of what a bucket
    holds or a minute has, and `boundary` is when a fixed minute begins.
    """

    kind: Kind
    bounds: NeedBounds
    rate: float
    boundary: float | None = None
    explains: int = 0
    doubt: float = 0.0


class Assumed(NamedTuple):
    """What was assumed before: the kind, a bucket's rate and capacity, and the mean of the costs.

    `slack` is how much bounds may overlap.
    """

    kind: Kind
    rate: float
    capacity: float
    mean: float
    slack: float


def fit_counter(
    calls: Sequence[SentCall],
    minute: float,
    assumed: Assumed,
    boundaries: Iterable[float] = (),
    *,
    is_whole: bool = True,
    most_rejections: int = 6,
) -> CounterFit | None:
    """The counter that explains the last rejection and as many before it as possible.

    `boundaries` are times at which a fixed minute may begin, beside those at which calls were
    admitted again. None if not even the last two rejections are explained.
    """
    # Of what was used before the first of these calls nothing is known.
    known_from = -inf if is_whole else calls[0].at + minute
    rejections = [
        index for index, call in enumerate(calls) if call.refused and call.at >= known_from
    ][-most_rejections:]
    if len(rejections) < _LEAST_REJECTIONS:
        return None
    calls = calls[: rejections[-1] + 1]
    phases = [*boundaries, *_readmissions(calls)[-_PHASES:]]
    needs = {each: _needs_in_minute(calls, minute, assumed.mean, each) for each in (None, *phases)}
    most = max(need for need, _ in needs[None])
    starts = rejections[:-1]
    if is_whole and len(rejections) < most_rejections:
        starts = [0, *starts]
    found: dict[Kind, CounterFit] = {}
    for first in [each for each in starts if each >= len(calls) - _MOST_CALLS] or starts[-1:]:
        span = calls[first:]
        slack = assumed.slack + _sent_together(span)
        is_full = not span[0].refused
        # That nothing was used at first is one more fact.
        explains = sum(1 for call in span if call.refused) + is_full
        # Two rejections are explained by any boundary between them.
        windows = needs if explains - is_full > _LEAST_REJECTIONS else (None,)
        fits = [_fit_minute(needs[each][first:], minute, each) for each in windows]
        least = max(most / _MOST_CHANGE, _LEAST_CALLS * assumed.mean)
        fits = [fit for fit in fits if fit.bounds.rejected > least]
        if "bucket" not in found:
            # No bucket holds more than a minute's worth: no minute admits more than two of them.
            least_rate = most / (2 * minute) / (_MOST_CHANGE if first else 1)
            # It was full at first, or it was empty, and held as much as was assumed, or more.
            for used in ((0.0, 0.0),) if is_full else ((0.0, assumed.capacity), (1.0, 0.0)):
                fits.append(_fit_bucket(span, minute, assumed, least_rate, used))
                if fits[-1].bounds.excess <= slack:
                    break
        for fit in sorted(fits, key=lambda fit: max(0.0, fit.bounds.excess)):
            if fit.kind not in found and fit.bounds.excess <= slack:
                found[fit.kind] = fit._replace(explains=explains)
    return max(
        found.values(),
        key=lambda fit: (
            fit.explains
            + (_OLD_KIND if fit.kind == assumed.kind else 0.0)
            - max(0.0, fit.bounds.excess) / assumed.slack * _EXCESS_WEIGHT
        ),
        default=None,
    )


def rate_of_bucket(calls: Sequence[SentCall], assumed: Assumed) -> float:
    """The rate at which a bucket of the assumed capacity was empty at the last of these calls.

    It is taken to have been full at first.
    """
    low, high = 0.5 * assumed.rate, assumed.rate
    empty = assumed.capacity - 0.5 * assumed.mean
    for _ in range(_REFINEMENTS):
        rate, used, at = sqrt(low * high), 0.0, calls[0].at
        for call in calls:
            used, at = max(0.0, used - rate * (call.at - at)) + call.cost, call.at
        low, high = (rate, high) if used > empty else (low, rate)
    return low


def _sent_together(calls: Sequence[SentCall]) -> float:
    """The most that was sent so shortly before a rejected call that it may have arrived later."""
    most = together = 0.0
    recent: deque[SentCall] = deque()
    for call in calls:
        while recent and recent[0].at < call.at - _ARRIVAL:
            together -= recent.popleft().cost
        if call.refused:
            most = max(most, together)
        recent.append(call)
        together += call.cost
    return most


def _readmissions(calls: Sequence[SentCall]) -> list[float]:
    """When a call was admitted after one was rejected."""
    return [call.at for before, call in pairwise(calls) if before.refused and call.cost]


def _fit_bucket(
    calls: Sequence[SentCall],
    minute: float,
    assumed: Assumed,
    low: float,
    used: tuple[float, float],
) -> CounterFit:
    """The rate that tells rejected calls from admitted ones best, and how exactly it is known.

    At first was used what comes back in so many minutes, and so much more.
    """

    def bounds(rate: float) -> NeedBounds:
        first = used[0] * minute * rate + used[1]
        found = _bounds_of_bucket(calls, first, rate, assumed.mean)
        # No bucket holds more than a minute's worth.
        too_much = not first and found.admitted > rate * minute + assumed.mean
        return NeedBounds(inf, 0.0) if too_much else found

    def excess(rate: float) -> float:
        return bounds(rate).excess

    high = max(2 * low, _MOST_CHANGE * assumed.rate)
    rates = [low * (high / low) ** (step / _RATES) for step in range(_RATES + 1)]
    near = [min(rates, key=excess)]
    for zoom in range(1, _ZOOMS):
        width = (high / low) ** (_RATES**-zoom)
        near = [near[0] * width ** (2 * step / _RATES - 1) for step in range(_RATES + 1)]
        near = [min(near, key=excess)]
    most = max(0.0, excess(near[0]) + _TOLERANCE * assumed.mean)
    explaining = [rate for rate in (*rates, near[0]) if excess(rate) <= most]
    # The lowest rates that explain the calls: higher ones will be tried soon.
    lowest = _edge(excess, most, min(explaining), low)
    highest = _edge(excess, most, min(explaining), high)
    rate = sqrt(lowest * highest)
    return CounterFit("bucket", bounds(rate), rate, doubt=max(*explaining, highest) / rate - 1.0)


def _edge(excess: Callable[[float], float], most: float, inside: float, limit: float) -> float:
    """How far one can go from `inside` towards `limit` before it is more than `most`."""
    step = (limit / inside) ** (1 / _RATES)
    outside = inside
    for _ in range(_RATES):
        outside *= step
        if excess(outside) > most:
            break
        inside = outside
    else:
        return limit
    for _ in range(_REFINEMENTS):
        between = sqrt(inside * outside)
        inside, outside = (between, outside) if excess(between) <= most else (inside, between)
    return inside


def _bounds_of_bucket(
    calls: Sequence[SentCall], used: float, rate: float, mean: float
) -> NeedBounds:
    """How much a bucket of that rate must hold, of which `used` was used at first."""
    at, big = calls[0].at, _BIG_CALL * mean
    admitted, rejected = 0.0, inf
    for call in calls:
        used -= rate * (call.at - at)
        used = max(used, 0.0)
        at = call.at
        if call.refused:
            if used < _LEAST_USED * call.refused:  # a full bucket admits any call
                return NeedBounds(inf, 0.0)
            rejected = min(rejected, used + call.refused)
        else:
            used += call.cost
            if used > admitted and call.cost < big:
                admitted = used
    return NeedBounds(admitted, rejected)


def _fit_minute(
    needs: Sequence[tuple[float, SentCall]], minute: float, boundary: float | None
) -> CounterFit:
    """What a minute has, by what calls needed of it; it slides if it has no boundary."""
    bounds = NeedBounds(
        max((need for need, call in needs if not call.refused), default=0.0),
        min((need for need, call in needs if call.refused), default=inf),
    )
    kind: Kind = "sliding" if boundary is None else "fixed"
    return CounterFit(kind, bounds, bounds.admitted / minute, boundary)


def _needs_in_minute(
    calls: Sequence[SentCall], minute: float, mean: float, boundary: float | None = None
) -> list[tuple[float, SentCall]]:
    """What a minute must have for each call."""
    counted: deque[SentCall] = deque()
    used, index = 0.0, -inf
    needs = []
    for call in calls:
        if boundary is not None:
            at = floor((call.at - boundary) / minute)
            used, index = (used if at == index else 0.0), at
        else:
            while counted and counted[0].at + minute <= call.at:
                used -= counted.popleft().cost
            counted.append(call)
        used += call.cost
        is_big = call.cost >= _BIG_CALL * mean
        needs.append((0.0 if is_big else used + call.refused, call))
    return needs
