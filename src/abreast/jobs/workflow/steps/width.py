"""Bounds of concurrency: how many items of a fan-out, and steps of a run, may run at once."""

from typing import Any, Final, cast

WIDEST: Final = 10_000
"""The largest width of a fan-out; a larger number counts as this one."""

RUN_WIDTH: Final = 64
"""Actions of one run in work at once, in all its lists and fan-outs together.

More if a fan-out of the file asks for more.
"""


def as_width(given: object) -> int:
    """Return `int(given)`, between 1 and 10,000. Never raises: what `int` refuses counts as 1.

    So `4`, `"4"`, `" 4 "`, `4.0`, `4.9` are 4 and `True` is 1; None, "abc", "4.0", 0, -1, infinity,
    nan, lists and mappings are 1; 10**100 is 10,000.

    >>> as_width("4"), as_width(4.0), as_width(None), as_width(-1)
    (4, 4, 1, 1)
    """
    try:
        return min(max(1, int(cast("Any", given))), WIDEST)
    except Exception:  # noqa: BLE001 - an object's __int__ may raise anything
        return 1
