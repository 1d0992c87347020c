"""What a manifest has of a job's options: those that came later only if they are said.

So runs of a version that has no such option go on, and have the same manifest.
"""

from collections.abc import Iterable
from typing import Any


def without_unsaid(facts: dict[str, Any], later: Iterable[str]) -> dict[str, Any]:
    """The facts without the `later` options that are None, False or empty; 0 is said."""
    unsaid = {name for name in later if _is_unsaid(facts[name])}
    return {name: value for name, value in facts.items() if name not in unsaid}


def _is_unsaid(value: object) -> bool:
    return value is None or value is False or value in ((), [], {}, "")
