"""Retries: whether a failed attempt is tried again, and after how many seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from abreast.core.frozen import record
from abreast.core.seeds import derive_fraction
from abreast.core.window import whole

Kind: TypeAlias = Literal["retryable", "fatal", "unknown"]

_BUG_TYPES = (
    TypeError,
    AttributeError,
    NameError,
    SyntaxError,
    AssertionError,
    NotImplementedError,
    ImportError,
    KeyError,
    IndexError,
    ZeroDivisionError,
    RecursionError,
    SystemExit,
)
_TRANSIENT_TYPES = (
    TimeoutError,
    ConnectionError,
    InterruptedError,
    BlockingIOError,
    BrokenPipeError,
)


def classify(error: BaseException) -> Kind:
    """Whether trying again can help: by the error's attribute `retryable`, else by its type.

    Types of errors that are bugs, such as TypeError, are fatal.
    """
    retryable = getattr(error, "retryable", None)
    if retryable is not None:
        return "retryable" if retryable else "fatal"
    if isinstance(error, _TRANSIENT_TYPES):
        return "retryable"
    return "fatal" if isinstance(error, _BUG_TYPES) else "unknown"


@record(frozen=True, slots=True)
class Retry:
    """Up to `retries` further attempts, each after an exponential backoff with full jitter.

    `retryable` and unknown errors are tried again, fatal ones never. After an error that carries
    `retry_after` seconds, the wait is at least that long. The jitter is derived from the run's
    seed, so a repeated run waits the same times.

        run.map(fetch, urls, width=8, retry=Retry(5, base=1.0, cap=30.0))
    """

    retries: int = 3
    """How many further attempts."""
    base: float = 0.5
    """Seconds: the first wait is at most this long, and each next one at most twice as long."""
    cap: float = 60.0
    """Seconds: the longest wait."""
    classify: Callable[[BaseException], Kind] = classify
    """Whether an error is `"retryable"`, `"fatal"` or `"unknown"`; by default by its type."""
    fixed: float | None = None
    """Seconds before each further attempt, in place of the backoff."""

    def __post_init__(self) -> None:
        whole("retries", self.retries, least=0)
        if not 0 <= self.base <= self.cap:
            raise ValueError(
                f"a backoff needs 0 <= base <= cap, not base={self.base!r}, cap={self.cap!r}"
            )
        if self.fixed is not None and not 0 <= self.fixed < math.inf:
            raise ValueError(
                f"a fixed delay is a number of seconds of at least 0, not {self.fixed!r}"
            )

    @classmethod
    def of(cls, given: int | Retry | None) -> Retry | None:
        """`retry=` in its one form: None, a number of retries, or a Retry."""
        if given is None or isinstance(given, Retry):
            return given
        retries = whole("retry", given, least=0)
        return cls(retries) if retries else None

    def delay(self, error: BaseException, attempt: int, seed: int, path: str) -> float | None:
        """Seconds until the next attempt after number `attempt` (from 1) failed.

        None for no further one.
        """
        if attempt > self.retries or self.classify(error) == "fatal":
            return None
        if self.fixed is not None:
            backoff = self.fixed
        else:
            ceiling = min(self.cap, self.base * 2.0 ** min(attempt - 1, 63))
            backoff = ceiling * derive_fraction(seed, f"{path}#{attempt}")
        after = getattr(error, "retry_after", None)
        return (
            max(backoff, float(after))
            if isinstance(after, (int, float)) and math.isfinite(after)
            else backoff
        )
