"""Readers of amounts such as `30s`, `10min`, `64MiB`, `500req`.

Each raises a ValueError whose message is one sentence.
"""

import math
import re
from typing import Final

from abreast.core.window import whole
from abreast.limits.budget import Budget

_SECONDS: Final = {
    "ms": 0.001,
    "": 1.0,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_BYTES: Final = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1000,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mb": 1000**2,
    "mib": 1 << 20,
    "g": 1 << 30,
    "gb": 1000**3,
    "gib": 1 << 30,
}
_AMOUNT: Final = re.compile(
    r"\s*(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?P<unit>[A-Za-z]*)\s*"
)


def duration(given: object) -> float:
    """Seconds, from `30s`, `10min`, `1.5h`, `30d` or a plain number of seconds."""
    return _amount(given, _SECONDS, "a time such as 500ms, 30s, 10min, 1.5h or 30d")


def size(given: object) -> int:
    """Bytes, from `64MiB`, `16M`, `500k` or a plain number of bytes."""
    return int(_amount(given, _BYTES, "a size such as 500k, 16M or 64MiB"))


def number(given: object, *, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(given, str):
        digits = given.strip()
        given = int(digits) if re.fullmatch(r"[+-]?[0-9]{1,18}", digits) else given
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"must be a whole number, not {quoted(given)}")
    return whole("it", given, least)


def seed(given: object) -> int:
    """Any whole number."""
    return number(given, least=-(10**18))


def budget(given: object) -> str:
    """The text of a budget, checked: `500req`, `2Mtok`, `20usd`, `10min`, several by comma."""
    if not isinstance(given, str):
        raise ValueError(f"must be a text such as '500req,10min', not {quoted(given)}")
    try:
        Budget.parse(given)
    except OverflowError:
        raise ValueError(f"{quoted(given)} is more than can be counted") from None
    return given


def quoted(given: object) -> str:
    """A value as it is quoted in a message: on one line, at most 60 characters."""
    text = repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - as the docstring says


def _amount(given: object, units: dict[str, float] | dict[str, int], what: str) -> float:
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise ValueError(f"must be {what}, not {quoted(given)}")
    match = _AMOUNT.fullmatch(str(given))
    factor = units.get(match["unit"].lower()) if match else None
    amount = float(match["number"]) * factor if match and factor is not None else math.nan
    if not math.isfinite(amount) or amount <= 0:
        raise ValueError(f"must be {what}, not {quoted(given)}")
    return amount
