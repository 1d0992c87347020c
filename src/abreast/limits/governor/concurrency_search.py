"""Finds by trial how many calls a provider accepts at once, if it does not say so."""

from math import inf

_CALLS_BEFORE_TRIAL = 180  # accepted calls at the limit, before one more is tried
_CALLS_BEFORE_TRIAL_OF_FALLEN = 30  # if more were accepted before
_FALLEN_INTERVAL_GROWTH = 2
_CALLS_BEFORE_TRIAL_OF_GUESS = 5  # after a cut to fewer than were rejected
_TRIAL_INTERVAL_GROWTH = 3  # how much rarer trials become with each that fails
_MAX_CALLS_BEFORE_TRIAL = 540
_CALLS_OF_TRIAL = 4  # accepted beside one more, before still more are tried
_RENEWED_GROWTH = 8  # an eighth more at once, after one more was accepted
_ABOUT_THE_SAME = 0.17  # relative difference of two numbers in flight at which calls were rejected
_CLEARLY_FEWER = 0.75  # some of the calls in flight may have ended at the server


class ConcurrencySearch:
    """A limit that grows while it is reached and no call is rejected.

    It is never below 1, nor above the user's `cap`.
    """

    def __init__(self, start: int = 4, cap: int | None = None, known: int | None = None) -> None:
        """The first call goes alone; once it was accepted, the limit is `start`.

        `known` is a number that was accepted in an earlier run.
        """
        self.limit = known or 1
        self._start = start
        self._cap = cap
        self._peak = 0
        self._ceiling: int | None = None  # calls in flight when one more was rejected
        self._last_ceiling: int | None = None  # also while more are tried
        self._rejected_up_to = 0
        self._rejections_in_row = 0
        self._accepted_at_limit = 0
        self._accepted_beyond = 0  # beside more than were rejected
        self._step = 1  # by which the limit grows next, after one more was accepted
        self._calls_before_trial = _CALLS_BEFORE_TRIAL
        self._limit_reached_at = -inf
        self._fallen_from = 0  # what was accepted before the provider took fewer
        self._rejections_alone = 0  # rejections in a row while no other call was in flight
        self.hold = -inf

    @property
    def proven(self) -> int | None:
        """How many were in flight without a rejection; None if unknown."""
        return min(self.limit, self._peak) or None

    def has_room(self, flying: int, now: float) -> bool:
        """Whether one more call may go."""
        if flying < (self.limit if self._cap is None else min(self.limit, self._cap)):
            return True
        self._limit_reached_at = now
        return False

    def try_one_more(self) -> bool:
        """Raise the limit by one, if no rejection was about it; all calls in flight were accepted.

        Returns whether that was done.
        """
        if self._last_ceiling is not None or (self._cap is not None and self.limit >= self._cap):
            return False
        self.limit = max(self.limit + 1, self._start)
        return True

    def sent(self, flying: int) -> None:
        """Record how many calls are in flight now."""
        self._peak = max(self._peak, flying)

    def accept(self, serial: int, sent: float, beside: int, *, ended: bool) -> None:
        """Record that a call sent at that time, beside so many others, was accepted.

        It counts only if the limit has been reached since.
        """
        self._rejections_alone = 0
        if serial <= self._rejected_up_to:
            return
        self._rejections_in_row = 0
        if self._limit_reached_at < sent:
            return
        if self._last_ceiling is None:
            if self._cap is None or self.limit < self._cap:
                self.limit = max(self.limit + (1 if ended else 2), self._start)
            return
        if beside >= self.limit - 1 and self.limit > self._last_ceiling:
            self._accepted_beyond += 1
            if self._accepted_beyond < _CALLS_OF_TRIAL:
                return
            self._accepted_beyond = 0
            self._ceiling, self._last_ceiling = None, self.limit
            self.limit = min(self.limit + self._step, self._cap or self.limit + self._step)
            self._step = min(2 * self._step, max(1, self.limit // _RENEWED_GROWTH))
        if self._ceiling is None:
            return
        self._accepted_at_limit += 1
        if self._accepted_at_limit >= self._calls_before_trial:
            self._accepted_at_limit = 0
            self.limit = self._ceiling + 1
            self._step = 1

    def accepts(self, flying: int, serial: int) -> bool:
        """Whether a call beside so many others has been accepted since a rejection cut the limit.

        Calls that had been sent by then say nothing.
        """
        return (
            self._ceiling is not None
            and serial > self._rejected_up_to
            and flying < _CLEARLY_FEWER * self._ceiling
        )

    def forgive(self) -> None:
        """Forget the last rejection: it was not about the number in flight."""
        self._ceiling = self._last_ceiling = None

    def reject(
        self,
        serial: int,
        last: int,
        flying: int,
        pause: tuple[float, float | None, float],
        *,
        left: int | None = None,
    ) -> bool:
        """Record that a call was rejected beside `flying` others; return whether that is news.

        `left` are in flight now, if that is another number. `pause` is the time, the wait that the
        server asks for, and the length of a second. If no other call of ours was in flight, other
        clients use the capacity: no call of ours will end and make room, so the next one is held
        back for a time.
        """
        if not flying:
            now, wait, second = pause
            self.hold = now + (
                second * min(15.0, 0.5 * 2.0**self._rejections_alone) if wait is None else wait
            )
            self._rejections_alone = min(self._rejections_alone + 1, 10)
        if serial <= self._rejected_up_to:
            # Calls that were sent before the first rejection was known. They may have arrived in
            # another order: what is left when the last of them is rejected was accepted.
            self._cut(min(self.limit, flying if left is None else left))
            return False
        self._rejected_up_to = last
        before, self._accepted_at_limit, self._accepted_beyond = self._last_ceiling, 0, 0
        if before is not None and self.limit > before:
            flying = max(flying, before)  # only what was tried is too much
            if before >= self._fallen_from:
                self._fallen_from = 0
        else:
            self._fallen_from = max(self._fallen_from, before or 0)
            if self._rejections_in_row:  # far fewer are accepted than before
                flying -= min(flying // 2, 2 ** min(self._rejections_in_row, 10) - 1)
        self._cut(flying)
        has_fallen = self._fallen_from > self.limit
        if self._rejections_in_row:
            self._calls_before_trial = _CALLS_BEFORE_TRIAL_OF_GUESS
        elif before is not None and abs(flying - before) <= int(_ABOUT_THE_SAME * before):
            growth = _FALLEN_INTERVAL_GROWTH if has_fallen else _TRIAL_INTERVAL_GROWTH
            self._calls_before_trial = min(
                _MAX_CALLS_BEFORE_TRIAL, growth * self._calls_before_trial
            )
        else:
            self._calls_before_trial = (
                _CALLS_BEFORE_TRIAL_OF_FALLEN if has_fallen else _CALLS_BEFORE_TRIAL
            )
        self._rejections_in_row += 1
        return True

    def _cut(self, flying: int) -> None:
        self.limit = self._ceiling = self._last_ceiling = max(1, flying)
