"""The errors of worktrees.

AbreastError
|-- WorktreesUnavailable  not one slot could be made; nothing is left of the attempt
|-- WorktreesLeft         a slot could not be removed; it stays in the ownership log
|-- SlotClosed            the slot's pool has been closed
`-- OutsideRepository     the path leads out of the repository or the slot (also a ValueError)
"""

from abreast.core.errors import AbreastError


class WorktreesUnavailable(AbreastError, retryable=False):
    """Not one slot could be made; the message says why, and nothing is left on the disk."""


class WorktreesLeft(AbreastError, retryable=False):
    """Some slots could not be removed.

    The message names them. They stay in the ownership log, and the next pool tries again.
    """


class SlotClosed(AbreastError, retryable=False):
    """The pool that the slot belongs to has been closed: there is nothing to write to."""


class OutsideRepository(AbreastError, ValueError, retryable=False):
    """A path that leads out of the repository, by its name or by a symbolic link."""


class Interrupted(AbreastError):
    """Blocking work was asked to stop; the code that asked raises the final error."""
