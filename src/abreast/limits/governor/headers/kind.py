"""How a server counts, by what its headers say: a bucket, a minute that slides, fixed minutes."""

from abreast.limits.governor.counter_copy import CounterCopy
from abreast.limits.governor.headers.facts import HeaderFacts
from abreast.limits.governor.sent_calls import SentCall

_MOST_IN_BUCKET = 1.02  # of a header's limit: what is left, and what comes back until it is full
_FAR = 0.2  # of a minute: an end that is so much later is that of another minute


class HeaderKind:
    """Finds out how a server counts, and when its fixed minutes end."""

    __slots__ = ("_end", "_is_known", "_minute", "_most_left", "_second")

    def __init__(self, minute: float) -> None:
        self._minute, self._second = minute, minute / 60
        self._end: tuple[float, float] | None = None  # when a call was sent, and by its header
        self._is_known = False
        self._most_left = 0.0

    def begin_anew(self) -> None:
        """Forget how much was left: the limit has changed."""
        self._most_left = 0.0

    def find(
        self,
        header: HeaderFacts,
        call: SentCall,
        copy: CounterCopy,
        clearly: float,
        *,
        is_old: bool,
    ) -> None:
        """Use the header of a call; `clearly` is an amount that is more than chance."""
        if not copy.is_bucket and header.reset > 0:
            self._find_end(call.at, header.reset, copy, is_old=is_old)
        elif not copy.is_bucket:
            _find_beginning(header, call, copy, clearly)
        elif 0 < header.reset <= 1.1 * self._minute:
            holds = header.left + header.reset * header.limit / self._minute  # if it is a bucket
            self._most_left = max(self._most_left, header.left)
            too_much = not self._is_known and holds > _MOST_IN_BUCKET * header.limit + 0.6
            if too_much or holds < self._most_left - max(1.0, 0.05 * header.limit):
                # No bucket holds that much, or so little: it is a minute that ends then.
                copy.is_bucket, copy.amount = False, header.limit
                self._find_end(call.at, header.reset, copy, is_old=is_old)
            elif header.left > clearly and copy.sent.spent_until(call.serial) > 0.3 * header.limit:
                self._is_known = True

    def _find_end(self, sent: float, reset: float, copy: CounterCopy, *, is_old: bool) -> None:
        """Find out when a fixed minute ends: headers of calls at different times agree on it.

        A minute that slides is over a minute after the last call, whenever that was.
        """
        ends, last = sent + reset, self._end
        self._end = (sent, ends)
        is_sliding = reset > 0.97 * self._minute
        boundary = copy.sent.boundary
        if boundary is not None:
            shift = (ends - boundary) % self._minute
            # The age of an old header is known to a second.
            latest = self._minute - (self._second if is_old else 0.0)
            if self._minute / 2 < shift <= latest and not is_sliding:
                copy.sent.boundary = ends  # earlier than was thought
            elif _FAR * self._minute < shift < self._minute - self._second:
                copy.sent.boundary = None if is_sliding else ends
        elif not is_sliding or (
            last is not None
            and sent - last[0] > 2 * self._second
            and abs(ends - last[1]) < self._second
        ):
            copy.sent.boundary = ends


def _find_beginning(header: HeaderFacts, call: SentCall, copy: CounterCopy, clearly: float) -> None:
    """Find out when a fixed minute began, by what is left; a minute that slides has less."""
    more = header.left - copy.left_after(call.serial, call.at)
    if more < -clearly and copy.is_fixed:
        copy.sent.boundary = None
    elif more > clearly:
        used, began = header.limit - header.left, call.at
        for each in copy.sent.latest(call.serial):
            if used <= 0:
                break
            used, began = used - each.cost, each.at
        copy.sent.boundary = began
