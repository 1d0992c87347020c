"""The errors of merging and applying results.

AbreastError
|-- MergeBlocked      a merge has conflicts, refusals, requests or faults, and can't be applied
|-- SourceChanged     the source tree is no longer what was merged into
|-- ApplyInterrupted  an apply was interrupted, and is not rolled back yet
`-- ApplyRunning      an apply or an undo is under way in the same tree
"""

from abreast.core.errors import AbreastError


class MergeBlocked(AbreastError, retryable=False):
    """A merge has conflicts, refusals, requests or faults, and can't be applied.

    The message has a line for each.
    """


class SourceChanged(AbreastError, retryable=False):
    """The source tree is no longer what was merged into.

    The message names the path. Merge again.
    """


class ApplyInterrupted(AbreastError, retryable=False):
    """An apply was interrupted and is not rolled back yet.

    The message says where it is. Call `recover`.
    """


class ApplyRunning(AbreastError):
    """An apply or an undo is under way in the same tree.

    The message names it. Try again when it has ended.
    """
