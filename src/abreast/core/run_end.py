"""How a run that came to its end is told from one that can go on: by its state and its reason."""

from __future__ import annotations

from typing import Final

NONE_DONE: Final = "no item succeeded"
"""How the reason of a failed run begins that came to its end, with failures only."""
STOPPED_AT: Final = "it stopped at its first failure"
"""How the reason of a halted run begins that was asked to stop there, and did."""
_REASONS: Final = {"failed": NONE_DONE, "halted": STOPPED_AT}


def is_over(state: str, reason: str) -> bool:
    """Whether there is nothing to go on with: at most failed items are left, to be run again.

    The reason tells it because stores of every version have one; a state of its own would be
    unknown to older ones.

    >>> is_over("failed", "no item succeeded: 3 failed"), is_over("failed", "OSError: no such file")
    (True, False)
    """
    return state == "done" or (state in _REASONS and reason.startswith(_REASONS[state]))
