"""Whether a run that ended is complete or can go on, by its state and its reason."""

from typing import Final

# How the reason begins of a failed run that reached its end with failures only.
NONE_DONE: Final = "no item succeeded"
# How the reason begins of a halted run that was asked to stop there, and did.
STOPPED_AT: Final = "it stopped at its first failure"
_REASONS: Final = {"failed": NONE_DONE, "halted": STOPPED_AT}


def is_over(state: str, reason: str) -> bool:
    """Whether nothing is left to go on with, except failed items to be run again.

    The reason decides, because stores of every version record one; a state of its own would be
    unknown to older versions.
    >>> is_over("failed", "no item succeeded: 3 failed"), is_over("failed", "OSError: no such file")
    (True, False)
    """
    return state == "done" or (state in _REASONS and reason.startswith(_REASONS[state]))
