"""What a person is told when it can't be done: one sentence, the place, the fix.

And the exit code that says so.
"""

from __future__ import annotations

import sys
import traceback
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
    ModelUnknown,
    NoSuchRun,
    PriceUnknown,
    RunBusy,
    RunExists,
    StoreCorrupt,
    StoreFull,
    StoreLocked,
    StoreNewer,
    StoreReadOnly,
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
"""As a program that died of SIGPIPE, which is what `| head` does to others."""


class UsageError(Exception):
    """What was asked for can't be done; the message is the sentence that a person reads."""

    is_sentence = True

    def __init__(self, sentence: str, code: int = USAGE) -> None:
        """Keep the sentence and the exit code."""
        super().__init__(sentence)
        self.code = code


_OTHER_STORE: Final = "use another with --store FILE"
_MEANINGS: Final[tuple[tuple[type[AbreastError], int, str], ...]] = (
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
    (StoreNewer, USAGE, f"update abreast, or {_OTHER_STORE}"),
    (StoreCorrupt, USAGE, f"put back a copy of it, or {_OTHER_STORE}"),
    (TypeNotLoaded, USAGE, ""),
    (StoreReadOnly, USAGE, f"see to its permissions, or {_OTHER_STORE}"),
    (StoreFull, FAILED, f"make room, or {_OTHER_STORE}"),
    (StoreLocked, FAILED, f"end that process, or {_OTHER_STORE}"),
)


def explain(error: AbreastError) -> tuple[str, int]:
    """The sentence for an error of abreast's own, with its fix, and the exit code."""
    for kind, code, fix in _MEANINGS:
        if isinstance(error, kind):
            return f"{one_line(str(error))}; {fix}" if fix else one_line(str(error)), code
    return one_line(str(error)) or type(error).__name__, FAILED


def tell(sentence: str) -> None:
    """Say something to the person, on stderr.

    If nobody listens there, that is no reason to stop.
    """
    try:
        sys.stderr.write(f"abreast: {visible(sentence)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def tell_unexpected(error: BaseException, *, verbose: bool) -> None:
    """Own up to a fault of ours: one line, and the traceback for those who asked for more."""
    hint = "" if verbose else " (-v shows where); please report it"
    tell(f"internal error: {type(error).__name__}: {one_line(str(error))}{hint}")
    if verbose:
        sys.stderr.write(visible("".join(traceback.format_exception(error))))


def one_line(text: str) -> str:
    """The text on one line, with nothing in it that could move a terminal's cursor."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def system_words(error: OSError) -> str:
    """What the system says went wrong, without its number."""
    return (error.strerror or str(error) or type(error).__name__).lower()
