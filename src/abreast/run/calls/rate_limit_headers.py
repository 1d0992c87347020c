"""What the headers of a reply say of a provider's limits, in one form for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

from abreast.limits.governor.governor import Dimension, Hit, Tellings
from abreast.limits.governor.rate_estimate import HeaderFacts
from abreast.models.providers.errors import seconds_of

_OPENAI: Final[tuple[Dimension, ...]] = ("requests", "tokens")
_ANTHROPIC: Final[Mapping[Dimension, str]] = {
    "requests": "requests",
    "tokens": "tokens",
    "input": "input-tokens",
    "output": "output-tokens",
}
_NAMES: Final[list[tuple[Dimension, str, str, str]]] = [
    (
        name,
        f"x-ratelimit-limit-{name}",
        f"x-ratelimit-remaining-{name}",
        f"x-ratelimit-reset-{name}",
    )
    for name in _OPENAI
] + [
    (
        name,
        f"anthropic-ratelimit-{word}-limit",
        f"anthropic-ratelimit-{word}-remaining",
        f"anthropic-ratelimit-{word}-reset",
    )
    for name, word in _ANTHROPIC.items()
]
_NOTHING: Final[Tellings] = {}


def told_by(headers: Mapping[str, str] | None) -> Tellings:
    """What is said of each rate; what can't be read is not there.

    >>> told_by({"x-ratelimit-limit-requests": "600", "x-ratelimit-remaining-requests": "599",
    ...          "x-ratelimit-reset-requests": "100ms"})
    {'requests': Told(limit=600.0, left=599.0, reset=0.1)}
    """
    if not headers:
        return _NOTHING
    told: dict[Dimension, HeaderFacts] = {}
    for name, limit, left, reset in _NAMES:
        if (
            limit in headers
            and (found := _told(headers[limit], headers.get(left), headers.get(reset))) is not None
        ):
            told[name] = found
    return told


def _told(limit: str, left: str | None, reset: str | None) -> HeaderFacts | None:
    try:
        told = HeaderFacts(float(limit), float(left or ""), _reset(reset) if reset else 0.0)
    except ValueError:
        return None
    return told if told.limit > 0 and isfinite(told.limit) and isfinite(told.left) else None


def _reset(told: str) -> float:
    """The seconds. A moment in whole seconds was rounded up, by up to one: who believed it would expect too much."""
    seconds = seconds_of(told) or 0.0
    return max(0.0, seconds - 1.0) if "T" in told and "." not in told else seconds


def hit_by(limit: str, told: Tellings) -> Hit:
    """Which gate a 429 was about.

    Where input and output are counted apart, the one that has less left.
    """
    if limit == "concurrency":
        return "concurrency"
    if limit != "tokens":
        return "requests"
    if "tokens" not in told:
        parts: list[Dimension] = [name for name in ("input", "output") if name in told]
        if parts:
            return min(parts, key=lambda name: told[name].left / told[name].limit)
    return "tokens"
