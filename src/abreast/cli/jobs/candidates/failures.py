"""Errors that end a run of candidates for good: `abreast resume` would only fail again, so the fix is said instead."""

from __future__ import annotations

from typing import Final

from abreast.cli.errors import FAILED, USAGE, one_line, tell
from abreast.cli.jobs.early_exit import CutShort
from abreast.core.errors import AbreastError
from abreast.jobs.candidates.behaviour.baseline import BaselineFailed
from abreast.jobs.candidates.job import TreeChanged
from abreast.jobs.candidates.source.origins import SourceMissing
from abreast.jobs.candidates.timing.timed_process import TimedProcessFailed

INCURABLE: Final = (BaselineFailed, TreeChanged, SourceMissing, TimedProcessFailed)
"""The tests, the tree or the source of candidates must change first, and then it is another run."""


def stopped_for_good(error: AbreastError) -> CutShort:
    """What to say of one of these, without a hint to resume.

    Pytest's own lines are printed above it.
    """
    for line in error.said if isinstance(error, BaselineFailed) else ():
        tell(f"pytest: {one_line(line)}")
    usage = (
        error.usage
        if isinstance(error, BaselineFailed)
        else not isinstance(error, TimedProcessFailed)
    )
    fix = "" if isinstance(error, TreeChanged) else "; mend that and start a new run"
    return CutShort(f"{one_line(str(error))}{fix}", USAGE if usage else FAILED, resumable=False)
