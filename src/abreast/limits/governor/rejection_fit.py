"""Finds out by rejections how a server counts, if headers do not say so.

Each way of counting explains a rejection by limits in a certain range: the calls before it must
have had room, and the rejected call none. The way that explains most of the last rejections, one
after the other, by one and the same limit, is believed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from math import floor, inf
from typing import NamedTuple

from abreast.limits.governor.sent_calls import SentCall

_BISECTIONS = 12
_MOST_CALLS = 300  # between two rejections: the last ones are looked at one by one
_GROUP = 20  # of those before
_STEP = 1.2  # between two rates that are tried
_MOST_RATES = 30
_NEARLY = 0.9
_SURE_OF_OTHERS = 4  # rejections that are explained only if others use a part of a rate


class RejectedCall(NamedTuple):
    """A call that was rejected: when it was sent, what it would have taken, and the wait.

    `at` is the latest time at which a call was sent that may have arrived before it.
    """

    serial: int
    at: float
    cost: float
    wait: float | None


class Explanation(NamedTuple):
    """So many of the last rejections are explained by a limit that is between these.

    `waits` is how many of the waits are, too, that the server asked for.
    """

    rejections: int = 0
    low: float = 0.0
    high: float = inf
    waits: int = 0


def explain_minutes(
    calls: Sequence[SentCall],
    rejections: Sequence[RejectedCall],
    leaves_at: Callable[[float], float],
    second: float,
    tolerance: float,
) -> Explanation:
    """The amounts of a minute by which the rejections are explained.

    A call that was sent at a time counts until `leaves_at` of it.
    """
    counted: deque[SentCall] = deque()
    used = most = 0.0
    ranges: list[tuple[float, float, bool]] = []
    pending = deque(rejections)

    def explain(rejected: RejectedCall) -> None:
        nonlocal used, most
        used -= _drop(counted, leaves_at, rejected.at)
        oldest = counted[0].at if counted else rejected.at
        is_right = rejected.wait is not None and (
            abs(rejected.at + rejected.wait - leaves_at(oldest)) < second
        )
        ranges.append((most, used + rejected.cost, is_right))
        most = 0.0

    for call in calls:
        while pending and pending[0].at < call.at:
            explain(pending.popleft())
        used -= _drop(counted, leaves_at, call.at)
        if counted:  # a call that is alone is accepted even if it is bigger than the limit
            most = max(most, used + call.cost)
        counted.append(call)
        used += call.cost
    for rejected in pending:
        explain(rejected)
    is_whole = all(each.cost == 1.0 for each in rejections)
    high, low, explained, waits = inf, most, 0, 0
    for (accepted, needed, is_right), rejected in zip(
        reversed(ranges), reversed(rejections), strict=True
    ):
        if needed <= rejected.cost:
            break  # a minute that has just begun rejects nothing
        least, most = max(low, accepted), min(high, needed)
        # Of whole calls, a limit allows one less than would have been too much.
        slack = tolerance * most
        if least > most + (floor(slack) - 1 if is_whole else slack):
            break
        low, high = least, most
        explained, waits = explained + 1, waits + is_right
    return Explanation(explained, low, high, waits)


def _drop(counted: deque[SentCall], leaves_at: Callable[[float], float], now: float) -> float:
    dropped = 0.0
    while counted and leaves_at(counted[0].at) <= now:
        dropped += counted.popleft().cost
    return dropped


class Span(NamedTuple):
    """The calls since a time, and the rejection that followed; None if none has yet.

    The bucket was empty at first, but for the rest that was too little for a call; or full. If
    there are very many calls, those that came `earlier` are counted together.
    """

    since: float
    calls: Sequence[SentCall]
    rejected: RejectedCall | None
    rest: float
    earlier: Sequence[SentCall] = ()


def spans_of(calls: Sequence[SentCall], rejections: Sequence[RejectedCall]) -> list[Span]:
    """The calls between rejections; before the first of them the bucket may have been full."""
    between: list[list[SentCall]] = [[] for _ in range(len(rejections) + 1)]
    index = 0
    for call in calls:
        while index < len(rejections) and rejections[index].at < call.at:
            index += 1
        between[index].append(call)
    spans = [
        Span(
            before.at,
            part[-_MOST_CALLS:],
            rejected,
            before.cost,
            _together(part[:-_MOST_CALLS], _GROUP),
        )
        for before, part, rejected in zip(
            rejections, between[1:], [*rejections[1:], None], strict=True
        )
    ]
    first = between[0][-_MOST_CALLS:]
    since = first[0].at if first else rejections[0].at
    return [Span(since, first, rejections[0], inf), *spans]


def _together(calls: Sequence[SentCall], most: int) -> list[SentCall]:
    """Calls in groups of so many, each as one that was sent when its first one was."""
    groups = [calls[at : at + most] for at in range(0, len(calls), most)]
    return [
        SentCall(group[0].serial, group[0].at, sum(each.cost for each in group)) for group in groups
    ]


def explain_bucket(
    spans: Sequence[Span],
    capacity: float,
    *,
    minute: float,
    jitter: float,
    tolerance: float,
    shared: bool = False,
) -> Explanation:
    """The rates of a bucket of that capacity by which the last rejections are explained.

    Of a bucket that is `shared`, any part may be used by others.
    """
    high, explained, used = inf, 0, list[Span]()
    # No bucket holds more than comes back in a minute.
    lowest = 0.0 if shared else _NEARLY * capacity / minute
    for span in reversed(spans):
        most = min(_highest_rate(each, capacity, jitter) for each in _spans_from(span, used))
        rate = min(high, most)
        if rate < lowest or not all(
            _has_room(each, rate * (1 + tolerance), capacity, jitter) for each in [*used, span]
        ):
            break
        high, explained = rate, explained + (span.rejected is not None)
        used.append(span)
    if shared and explained < _SURE_OF_OTHERS:
        return explain_bucket(spans, capacity, minute=minute, jitter=jitter, tolerance=tolerance)
    if not used or high == inf:
        return Explanation(explained, lowest, high)
    low, top = lowest, high
    for _ in range(_BISECTIONS):
        rate = (low + top) / 2
        if all(_has_room(each, rate, capacity, jitter) for each in used):
            top = rate
        else:
            low = rate
    waits = sum(
        each.rejected is not None
        and each.rejected.wait is not None
        and each.rejected.wait < each.rejected.cost / top + minute / 60
        for each in used
    )
    return Explanation(explained, top, high, waits)


def _spans_from(span: Span, later: Sequence[Span]) -> list[Span]:
    """That span, and the one from its beginning to the last rejection."""
    calls, last = list(span.calls), span.rejected
    for each in reversed(later):
        if each.rejected is not None:
            calls, last = [*calls, *each.earlier, *each.calls], each.rejected
    return [span, Span(span.since, calls, last, span.rest, span.earlier)]


def _has_room(span: Span, rate: float, capacity: float, jitter: float) -> bool:
    """Whether a bucket with that rate had room for all these calls, as they may have arrived."""
    holds = capacity + rate * jitter
    level, at = min(span.rest, holds), span.since - jitter
    for group in span.earlier:  # the calls of the group before have been accepted by then
        level = min(holds, level + rate * (group.at - at))
        if level < 0.0:
            return False
        level, at = level - group.cost, group.at
    for call in span.calls:  # without `min`, which takes half of the time of a fit
        level += rate * (call.at - at)
        if level >= holds:
            level = holds
        elif level < call.cost:
            return False
        level, at = level - call.cost, call.at
    return True


def _highest_rate(span: Span, capacity: float, jitter: float) -> float:
    """The highest rate at which there was no room for the rejected call."""
    if span.rejected is None or span.rest == inf:
        return inf
    now, needed, highest, used = span.rejected.at, min(span.rejected.cost, capacity), 0.0, 0.0
    for call in chain(reversed(span.calls), reversed(span.earlier)):  # if full before this call
        used += call.cost
        took = max(now - call.at - jitter, jitter)
        highest = max(highest, (used + needed - capacity) / took)
    return max(highest, (used + needed) / max(now - span.since - jitter, jitter))


def buckets(first: Span, minute: float) -> list[tuple[float, float]]:
    """Rates and capacities of buckets that would have accepted the first calls, and no more."""
    used = sum(call.cost for call in first.calls)
    most = max(call.cost for call in first.calls)
    end = first.since if first.rejected is None else first.rejected.at
    rate = used / (minute + end - first.since)
    found: list[tuple[float, float]] = []
    for _ in range(_MOST_RATES):
        capacity = _capacity(first, rate)
        found.append((rate, capacity))
        if capacity <= most:
            break
        rate *= _STEP
    return found


def _capacity(span: Span, rate: float) -> float:
    """What a bucket of that rate must hold to have room for all these calls."""
    missing = most = 0.0
    at = span.since
    for call in span.calls:
        missing = max(0.0, missing - rate * (call.at - at)) + call.cost
        most, at = max(most, missing), call.at
    return most
