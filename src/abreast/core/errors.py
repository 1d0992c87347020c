"""Every error that abreast raises itself, each named for a situation.

`abreast.errors` draws them as a tree, with those of the jobs.

All of them can be pickled, as they may be raised in another process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from abreast.core.usage import Usage


class AbreastError(Exception):
    """The root of all errors that abreast raises itself."""

    is_sentence = True  # the message is understood without the type's name in front of it
    retryable: bool | None = None  # None if it is not known whether another attempt could help

    def __init_subclass__(cls, *, retryable: bool | None = None) -> None:
        if retryable is not None:
            cls.retryable = retryable


def _message_alone(error: BaseException) -> str:
    return str(error.args[0])


class KeyReused(AbreastError, retryable=False):
    """Two items of one map, or two maps of one scope, have the same name."""


class ItemChanged(AbreastError, retryable=False):
    """On resume, the named items differ from those recorded under the same keys."""


class TimedOut(AbreastError, TimeoutError):
    """An attempt took longer than its timeout."""


class CannotStore(AbreastError, TypeError):
    """A value has no form that can be written to the store; the message names the item."""


class RecordedError(AbreastError):
    """A failure as it was read back from the store.

    It has the type's name, the message and the traceback's text. If the error had `details`, a dict
    of plain values, they were recorded too.
    """

    def __init__(
        self, kind: str, message: str, trace: str = "", details: Mapping[str, object] | None = None
    ) -> None:
        """Keep the texts and the details; `str()` gives `kind: message`."""
        super().__init__(kind, message, trace, *([details] if details else []))
        self.kind = kind
        self.message = message
        self.trace = trace
        self.details: dict[str, object] = dict(details or {})

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedError) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args[:3])


def type_name(kind: type) -> str:
    """A type's name for people: `module.Qual`, without `builtins`."""
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def command_output(error: BaseException) -> dict[str, object]:
    """What a failed command left: `exit_code`, `stdout`, `stderr`; empty for other failures.

    The command may also be that of a workflow's failed step.
    """
    details = getattr(error, "details", None)
    if not isinstance(details, dict):
        return {}
    output = details.get("output")
    found = output if isinstance(output, dict) else details
    words = ("exit_code", "stdout", "stderr")
    if not all(word in found for word in words):
        return {}
    return {word: found[word] for word in words} if found is output else details


class ItemsFailed(AbreastError):
    """Several items failed at once; the first in item order is the cause, all are in `errors`."""

    __str__ = _message_alone

    def __init__(self, message: str, errors: tuple[BaseException, ...]) -> None:
        super().__init__(message, errors)  # both, so that it can be read back from a pickle
        self.errors = errors


class OutcomeUnknown(AbreastError, retryable=False):
    """A `once` step was in flight when its driver died; it is not repeated unless asked."""


class ItemCancelled(AbreastError, retryable=False):
    """An item was started, then stopped before it ended; the message says why."""


class WouldBlock(AbreastError, retryable=False):
    """A blocking function was called inside the loop that it would wait for."""


class WorkerDied(AbreastError, retryable=True):
    """A worker process ended in the middle of an item; the item may be tried again."""


class CallFailed(AbreastError, retryable=False):
    """A model call did not give a usable reply.

    `status` is the HTTP status, if there was one. `raw` is what came instead of a reply.
    """

    retry_after: float | None = None
    """Seconds that the provider asks to wait, if it says so."""
    usage: Usage | None = None
    """What the call used although it failed, if that is known."""
    unsent: bool = False
    """Whether no connection was made, so that the provider did not get the request."""
    headers: Mapping[str, str] | None = None
    """Of a 429: the lane reads the remaining limits from them."""
    lost_bound: bool = False
    """It was not sent, as it would have to go without the `max_tokens` that a budget counts on."""
    wants_room: bool = False
    """Whether a larger `max_tokens` could help: it was used up, by thinking, before any text."""

    def __init__(self, message: str, *, status: int | None = None, raw: str = "") -> None:
        """Keep `status` and `raw`, so that they are recorded beside the failure."""
        super().__init__(message)
        self.status = status
        self.raw = raw
        self.details: dict[str, object] = {"status": status, "raw": raw} if status or raw else {}

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__


class Throttled(CallFailed, retryable=True):
    """Too many requests (429).

    It does not count as an attempt: the lane is held for `retry_after` seconds, and the call goes
    on afterwards.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        limit: str = "",
        status: int | None = 429,
        raw: str = "",
    ) -> None:
        """`limit` names what was exceeded, if the provider says so: requests, tokens, ..."""
        super().__init__(message, status=status, raw=raw)
        self.retry_after = retry_after
        self.limit = limit


class QuotaSpent(CallFailed):
    """The account's quota is used up, for a day or until it is paid for.

    Waiting a minute doesn't help.
    """


class ServerFault(CallFailed, retryable=True):
    """The provider failed (5xx); it may be tried again."""


class Unavailable(ServerFault):
    """The provider is down or overloaded (502, 503, 529).

    It does not count as an attempt: the lane is held, and the call goes on afterwards.
    """


class ConnectionLost(CallFailed, ConnectionError, retryable=True):
    """There was no connection, or it broke off before the reply was whole.

    It may be tried again.
    """


class ReplyTimeout(CallFailed, TimeoutError, retryable=True):
    """No whole reply came in time; it may be tried again."""


class BatchMissed(CallFailed):
    """Several batches ended without an answer to the call: they expired, or were cancelled."""


class ReplyBroken(CallFailed):
    """The reply can't be read: malformed, empty, of the wrong type, or too long."""


class ReplyInvalid(CallFailed):
    """The reply can be read, but does not obey the schema that was asked for."""


class Refused(CallFailed):
    """The model, or its provider's filter, declined to answer."""


class TooLong(CallFailed):
    """The request does not fit the model's context."""


class KeyRefused(CallFailed):
    """The key is wrong, or may not do this."""


class NoSuchModel(CallFailed):
    """The provider has no model of that name."""


class NotRecorded(CallFailed):
    """A replayed run did not record this request."""


class RequestRefused(CallFailed):
    """The provider says that the request is wrong."""


class BranchesFailed(AbreastError, retryable=False):
    """No branch of a sample passed, and some raised.

    The first error in (round, branch) order is the cause.
    """

    __str__ = _message_alone

    def __init__(self, message: str, attempts: tuple[object, ...] = ()) -> None:
        super().__init__(message, attempts)
        self.attempts = attempts


class CheckBroken(AbreastError, retryable=False):
    """A check raised instead of judging; what it raised is the cause."""


class Problem(NamedTuple):
    """A problem on a line of a file."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


class WorkflowInvalid(AbreastError, ValueError, retryable=False):
    """A workflow file can't be run.

    `problems` are all that were found, and `str()` has one line for each.
    """

    __str__ = _message_alone

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message, problems)
        self.problems = problems

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> WorkflowInvalid:
        """One error for all problems: each once, ordered by file and line."""
        found = tuple(sorted(set(problems)))
        return cls("\n".join(map(str, found)), found)


class PriceUnknown(AbreastError, retryable=False):
    """A cap on money can't be kept, as the model's price is unknown."""


class LaneNeedsStore(AbreastError, retryable=False):
    """A lane is shared between processes, and there is no store that its permits could be in."""


class KeysMissing(AbreastError, retryable=False):
    """Keys that are needed are not set.

    The message names all of them, and where each is looked for.
    """


class ModelUnknown(AbreastError, retryable=False):
    """No provider or model has that name; the message lists those that exist."""


class Stopped(AbreastError, retryable=False):
    """A run or map ended before its items did.

    What is recorded stays, and the run can be resumed.
    """

    drains = False
    """Whether items that are executing end by themselves and are recorded.

    If not, they are cancelled.
    """


class Halted(Stopped):
    """`run.halt` was called; the message is its reason."""


class CancelRequested(Stopped):
    """Another process asked for the run to be cancelled."""


class Paused(Stopped):
    """A person has to decide something before the work can go on.

    Nothing has failed, and nothing is recorded.
    """


class BudgetSpent(Stopped):
    """The next piece of work doesn't fit under the cap, and nothing in flight can free enough."""

    drains = True

    def __init__(self, message: str, budget: object = None) -> None:
        """`budget` is the one that is spent, if it is known.

        It is not pickled.
        """
        super().__init__(message)
        self.budget = budget

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args


class LaneParked(BudgetSpent):
    """A provider takes no more requests for now (a daily quota).

    What is recorded stays, to be resumed later.
    """


class StoreError(AbreastError):
    """The store can't do what is asked of it."""


class RunBusy(StoreError):
    """Another driver is on this run; the message names it."""


class RunExists(StoreError):
    """There is a run of that id already, and what is recorded is never overwritten."""


class DriverReplaced(StoreError):
    """Another driver has taken this run over, so this one may write nothing more."""


class NoSuchRun(StoreError):
    """The store holds no run of that name or id."""


class StoreNewer(StoreError):
    """The store was written by a later version of abreast."""


class StoreCorrupt(StoreError):
    """The file is not a store, or is damaged."""


class StoreDamaged(StoreCorrupt):
    """Rows of a run are not as they were written; the message names them."""

    run_id: str = ""
    """The run, as far as its row can be read."""


class TypeNotLoaded(StoreError):
    """A recorded value has a type that this program has not imported.

    The message names it and what to do.
    """


class StoreReadOnly(StoreError):
    """The file or its directory can't be written."""


class StoreUnreachable(StoreError):
    """There is no connection to the server of the store, or it does not answer."""


class StoreFull(StoreError):
    """There is no room left on the disk."""


class StoreLocked(StoreError):
    """Another process kept the store's file locked for too long."""


class StoreGone(StoreError):
    """The store's file was removed, or another one is in its place."""
