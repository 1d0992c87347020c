"""Rate-limit headers: a provider's limits as its replies report them, in one common form."""

from collections.abc import Mapping
from math import isfinite
from typing import Final

from abreast.limits.governor.governor import Dimension, Hit, LimitHeaders
from abreast.limits.governor.rate_estimate import HeaderFacts
from abreast.models.providers.errors import seconds_of

_OPENAI: Final[tuple[Dimension, ...]] = ("requests", "tokens")
_ANTHROPIC: Final[Mapping[Dimension, str]] = {
    "requests": "requests",
    "tokens": "tokens",
    "input": "input-tokens",
    "output": "output-tokens",
}
_HEADER_NAMES: Final[list[tuple[Dimension, str, str, str]]] = [
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
_NO_LIMITS: Final[LimitHeaders] = {}


def limits_in_headers(headers: Mapping[str, str] | None) -> LimitHeaders:
    """The limits that the headers report, by dimension; what can't be parsed is left out.

    >>> limits_in_headers({
    ...     "x-ratelimit-limit-requests": "600",
    ...     "x-ratelimit-remaining-requests": "599",
    ...     "x-ratelimit-reset-requests": "100ms",
    ... })
    {'requests': HeaderFacts(limit=600.0, left=599.0, reset=0.1)}
    """
    if not headers:
        return _NO_LIMITS
    found: dict[Dimension, HeaderFacts] = {}
    for name, limit, left, reset in _HEADER_NAMES:
        if limit in headers:
            facts = _parse(headers[limit], headers.get(left), headers.get(reset))
            if facts is not None:
                found[name] = facts
    return found


def _parse(limit: str, left: str | None, reset: str | None) -> HeaderFacts | None:
    try:
        facts = HeaderFacts(
            float(limit), float(left or ""), _reset_seconds(reset) if reset else 0.0
        )
    except ValueError:
        return None
    return facts if facts.limit > 0 and isfinite(facts.limit) and isfinite(facts.left) else None


def _reset_seconds(text: str) -> float:
    """Seconds until the reset.

    A time in whole seconds was rounded up by up to one second. Taken literally, it would make the
    estimate of what is left too high, so a second is subtracted.
    """
    seconds = seconds_of(text) or 0.0
    return max(0.0, seconds - 1.0) if "T" in text and "." not in text else seconds


def rejected_limit(limit: str, header_limits: LimitHeaders) -> Hit:
    """The limit that a 429 was about.

    If input and output tokens are counted apart, the one of which a smaller part is left.
    """
    if limit == "concurrency":
        return "concurrency"
    if limit != "tokens":
        return "requests"
    if "tokens" not in header_limits:
        parts: list[Dimension] = [name for name in ("input", "output") if name in header_limits]
        if parts:
            return min(parts, key=lambda name: header_limits[name].left / header_limits[name].limit)
    return "tokens"
