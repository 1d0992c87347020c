"""Formats numbers for a report, the same in its page, its tables and its Markdown."""

import json
from collections.abc import Sequence
from typing import Any, Final

from abreast.jobs.matrix.scoring.inference import MeanEstimate, Paired, Quantile

NOTHING: Final = "–"  # noqa: RUF001 - a dash, as tables have it
_SMALLEST_P: Final = 0.001  # smaller values are written as "< 0.001"


def number(value: float | None, digits: int = 3) -> str:
    """A score, or a dash."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    return NOTHING if value is None else f"{value:+.3f}"


def p_value(value: float | None) -> str:
    """A p value, never written as 0."""
    return (
        NOTHING if value is None else f"< {_SMALLEST_P}" if value < _SMALLEST_P else f"{value:.3f}"
    )


def usd(value: float | None) -> str:
    """Money: with cents from a dollar on, with four significant digits below."""
    return (
        NOTHING
        if value is None
        else f"${value:,.2f}"
        if abs(value) >= 1 or value == 0
        else f"${value:.4g}"
    )


def seconds(value: float | None) -> str:
    """A time in seconds."""
    return (
        NOTHING if value is None else f"{value:,.2f} s" if value >= 1 else f"{value * 1000:,.0f} ms"
    )


def share(part: float, whole: float) -> str:
    """A part as a percentage of the whole."""
    return f"{part / whole:.1%}" if whole else NOTHING


def interval(found: MeanEstimate | Paired) -> str:
    """The bounds, or a dash."""
    if found.low is None or found.high is None:
        return NOTHING
    written = signed if isinstance(found, Paired) else number
    return f"{written(found.low)} to {written(found.high)}"


def quantile(found: Quantile) -> str:
    """A time with its interval."""
    return f"{seconds(found.value)} ({seconds(found.low)} to {seconds(found.high)})"


def plain(value: Any) -> str:  # noqa: ANN401 - any fact or truth of a user
    """Anything as one string: text as it is, the rest as JSON."""
    text = NOTHING if value is None else value
    return (
        text
        if isinstance(text, str)
        else json.dumps(value, ensure_ascii=False, default=str, sort_keys=True)
    )


def listed(names: Sequence[str]) -> str:
    """Names joined for a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
