"""What can go wrong with plans.

AbreastError
|-- PlanInvalid       a plan can't be made of what was given  (also a ValueError)
|-- SubplanFailed     the work of a subplan failed; what it wrote is in `details`
|   `-- EditRefused   a model's reply can't be written: it is none, or breaks a rule
|-- PlanFailed        some subplans are not done
|-- MergeBlocked      a merge has conflicts, refusals, requests or faults, and can't be applied
|-- SourceChanged     the source tree is no longer what was merged into
|-- ApplyInterrupted  an apply was interrupted, and not taken back yet
`-- ApplyRunning      an apply or an undo is under way in the same tree
"""

from __future__ import annotations

from abreast.core.errors import AbreastError


class PlanInvalid(AbreastError, ValueError):
    """A plan can't be made of what was given; the message says what is wrong with it."""

    retryable = False


class SubplanFailed(AbreastError):
    """The work of a subplan failed; what it wrote, and the snapshots before and after it, are in `details`."""

    def __init__(self, message: str, details: dict[str, object] | None = None) -> None:
        """Keep what it wrote."""
        super().__init__(message)
        self.details = details or {}


class EditRefused(SubplanFailed):
    """A model's reply can't be written into the files of its subplan; the message says what is wrong with it."""


class PlanFailed(AbreastError):
    """Some subplans are not done."""


class MergeBlocked(AbreastError):
    """A merge has conflicts, refusals, requests or faults, and can't be applied; the message has a line for each."""

    retryable = False


class SourceChanged(AbreastError):
    """The source tree is no longer what was merged into; the message names the path. Merge again."""

    retryable = False


class ApplyInterrupted(AbreastError):
    """An apply was interrupted and not taken back yet; the message says where it is. Call `recover`."""

    retryable = False


class ApplyRunning(AbreastError):
    """An apply or an undo is under way in the same tree; the message names it. Try again when it has ended."""
