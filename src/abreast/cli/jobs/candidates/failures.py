"""Failures of a run of candidates that `abreast resume` can't mend; their fix is printed."""

from typing import Final

from abreast.cli.errors import FAILED, USAGE, one_line, tell
from abreast.cli.jobs.driver import EarlyExit
from abreast.core.errors import AbreastError
from abreast.jobs.candidates.behaviour.verdict import BaselineFailed
from abreast.jobs.candidates.job import TreeChanged
from abreast.jobs.candidates.source.origins import SourceMissing
from abreast.jobs.candidates.timing.timed_process import TimedProcessFailed

PERMANENT_FAILURES: Final = (BaselineFailed, TreeChanged, SourceMissing, TimedProcessFailed)
"""The tests, the tree or the source of candidates must change first, which makes a new run."""


def permanent_exit(error: AbreastError) -> EarlyExit:
    """The early exit for one of these, without a hint to resume; prints pytest's lines first."""
    for line in error.said if isinstance(error, BaselineFailed) else ():
        tell(f"pytest: {one_line(line)}")
    usage = (
        error.usage
        if isinstance(error, BaselineFailed)
        else not isinstance(error, TimedProcessFailed)
    )
    fix = "" if isinstance(error, TreeChanged) else "; mend that and start a new run"
    return EarlyExit(f"{one_line(str(error))}{fix}", USAGE if usage else FAILED, resumable=False)
