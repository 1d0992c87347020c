"""Errors as the gateway tells them to clients, in words that every dialect has an equal for."""

from typing import Literal, TypeAlias

from abreast.core import errors
from abreast.core.errors import AbreastError, BudgetSpent, CallFailed, LaneParked
from abreast.core.frozen import record
from abreast.models.providers.errors import one_line

FaultKind: TypeAlias = Literal[
    "invalid", "key", "missing", "large", "refused", "wait", "quota", "server", "overloaded"
]


@record(frozen=True, slots=True)
class ApiFault:
    """An error for a client: an HTTP status, and what it is about."""

    status: int
    kind: FaultKind
    message: str
    parameter: str | None = None
    retry_after: float | None = None
    """Seconds after which a client may try again."""

    @property
    def final(self) -> bool:
        """Whether clients should not try again by themselves."""
        return self.kind not in {"wait", "server", "overloaded"}


_BY_TYPE: tuple[tuple[type[Exception], int, FaultKind], ...] = (
    # 402 is what clients do not try again: a 429 they would.
    (BudgetSpent, 402, "quota"),
    (errors.QuotaSpent, 402, "quota"),
    (errors.KeysMissing, 401, "key"),
    (errors.KeyRefused, 401, "key"),
    (errors.ModelUnknown, 404, "missing"),
    (errors.NoSuchModel, 404, "missing"),
    (errors.NoSuchRun, 404, "missing"),
    (errors.TooLong, 400, "large"),
    (errors.Refused, 400, "refused"),
    (errors.PriceUnknown, 400, "invalid"),
    (errors.NotRecorded, 400, "invalid"),
    (errors.RequestRefused, 400, "invalid"),
    (errors.Throttled, 429, "wait"),
    (errors.Unavailable, 503, "overloaded"),
    (errors.ReplyTimeout, 504, "server"),
    (CallFailed, 502, "server"),
    (errors.Stopped, 503, "overloaded"),
    (AbreastError, 500, "server"),
)


def fault_of(error: BaseException) -> ApiFault:
    """The error that a client is told for one of abreast's."""
    message = one_line_of(error)
    for kind, status, word in _BY_TYPE:
        if isinstance(error, kind):
            told = error.status if isinstance(error, CallFailed) else None
            # A reply that can't be used came with a status of success.
            known = told is not None and told >= 400 and status != 402  # noqa: PLR2004 - HTTP
            after = error.retry_after if isinstance(error, CallFailed) else None
            if isinstance(error, LaneParked):
                message = f"{message} (the provider's limit)"
            return ApiFault(told if known and told else status, word, message, retry_after=after)
    return ApiFault(500, "server", f"abreast serve failed: {type(error).__name__}: {message}")


def one_line_of(error: BaseException) -> str:
    """The message of an error, on one line."""
    return one_line(str(error)) or type(error).__name__
