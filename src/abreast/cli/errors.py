"""Error messages of the command line (one sentence: what, where, the fix) and its exit codes."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from abreast.cli.terminal.visible import visible
from abreast.core.errors import (
    AbreastError,
    BudgetSpent,
    CancelRequested,
    CannotStore,
    DriverReplaced,
    ItemChanged,
    KeyReused,
    KeysMissing,
    LaneNeedsStore,
    ModelUnknown,
    NoSuchRun,
    PriceUnknown,
    RunBusy,
    RunExists,
    StoreCorrupt,
    StoreDamaged,
    StoreFull,
    StoreLocked,
    StoreNewer,
    StoreReadOnly,
    StoreUnreachable,
    TypeNotLoaded,
)
from abreast.run.map.recorded_input import InputIncomplete

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
SPENT: Final = 3
CANCELLED: Final = 4
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""The exit code of a process killed by SIGPIPE, as other programs have it before `| head`."""


class UsageError(Exception):
    """The command can't be carried out; the message is printed to the user as it is."""

    is_sentence = True

    def __init__(self, sentence: str, code: int = USAGE) -> None:
        super().__init__(sentence)
        self.code = code


@contextmanager
def refusing(
    what: str = "", errors: type[Exception] | tuple[type[Exception], ...] = ValueError
) -> Iterator[None]:
    """Raise `UsageError` in place of these errors, with `what` and a colon before the message."""
    try:
        yield
    except errors as error:
        raise UsageError(f"{what}: {error}" if what else str(error)) from None


_OTHER_STORE: Final = "use another with --store FILE"
_EXIT_CODES_AND_FIXES: Final[tuple[tuple[type[AbreastError], int, str], ...]] = (
    (BudgetSpent, SPENT, ""),
    (CancelRequested, CANCELLED, ""),
    (NoSuchRun, USAGE, ""),
    (RunExists, USAGE, ""),
    (RunBusy, FAILED, "wait for it to end, or end it with `abreast cancel`"),
    (DriverReplaced, FAILED, ""),
    (KeyReused, USAGE, "give every item a key of its own, or leave --key out"),
    (ItemChanged, USAGE, ""),
    (InputIncomplete, USAGE, ""),
    (CannotStore, USAGE, ""),
    (KeysMissing, USAGE, ""),
    (ModelUnknown, USAGE, ""),
    (PriceUnknown, USAGE, ""),
    (LaneNeedsStore, USAGE, ""),
    (StoreNewer, USAGE, f"update abreast, or {_OTHER_STORE}"),
    (
        StoreDamaged,
        USAGE,
        "`abreast store check` lists the damage, `abreast store recover` saves the rest",
    ),
    (StoreCorrupt, USAGE, f"put back a copy of it, or {_OTHER_STORE}"),
    (StoreUnreachable, USAGE, f"see that the server runs, or {_OTHER_STORE}"),
    (TypeNotLoaded, USAGE, ""),
    (StoreReadOnly, USAGE, f"see to its permissions, or {_OTHER_STORE}"),
    (StoreFull, FAILED, f"make room, or {_OTHER_STORE}"),
    (StoreLocked, FAILED, f"end that process, or {_OTHER_STORE}"),
)


def explain(error: AbreastError) -> tuple[str, int]:
    """The sentence for one of abreast's own errors, with its fix, and the exit code."""
    for kind, code, fix in _EXIT_CODES_AND_FIXES:
        if isinstance(error, kind):
            return f"{one_line(str(error))}; {fix}" if fix else one_line(str(error)), code
    return one_line(str(error)) or type(error).__name__, FAILED


def tell(sentence: str) -> None:
    """Print a sentence on stderr; errors of writing are ignored, as the run must go on."""
    try:
        sys.stderr.write(f"abreast: {visible(sentence)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def tell_unexpected(error: BaseException, *, verbose: bool) -> None:
    """Print an internal error: one line, and with `verbose` the traceback."""
    hint = "" if verbose else " (-v shows where); please report it"
    tell(f"internal error: {type(error).__name__}: {one_line(str(error))}{hint}")
    if verbose:
        sys.stderr.write(visible("".join(traceback.format_exception(error))))


def one_line(text: str) -> str:
    """The text on one line, without characters that could move a terminal's cursor."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def os_error_text(error: OSError) -> str:
    """The operating system's message, without the error number."""
    return (error.strerror or str(error) or type(error).__name__).lower()
