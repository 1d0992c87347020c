"""When a limit ends, as agents say it: "resets 3pm", "try again in 2 hours", a time of a clock."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH: Final = re.compile(r"\b(1[6-9]\d{8}|2\d{9})(\d{3})?\b")
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_IN: Final = re.compile(
    r"(?:\bin|after)\s+((?:\d+\s*(?:d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)"
    r"\b[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)
_AMOUNT: Final = re.compile(r"(\d+)\s*([dhms])", re.IGNORECASE)
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905 - shorter
_DATE: Final = re.compile(
    rf"\b({'|'.join(_MONTHS)})[a-z]*\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(\d{{4}}))?",
    re.IGNORECASE,
)
_CLOCK: Final = re.compile(
    r"\b(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap])\.?m\b"
    r"|\b(?P<hour24>[01]?\d|2[0-3]):(?P<minute24>[0-5]\d)\b",
    re.IGNORECASE,
)
_ZONE: Final = re.compile(r"\(?\b(UTC|GMT|[A-Z][A-Za-z]+/[A-Za-z_]+)\b\)?")


def seconds_until_reset(text: str, now: datetime) -> float | None:
    """Seconds from `now`, a time with a zone, to the end of a limit; None if the text has none.

    A time without a date is the next one, a time without a zone is in that of `now`.

    >>> seconds_until_reset("limit reached, resets at 3pm", datetime(2026, 5, 1, 14, tzinfo=UTC))
    3600.0
    """
    when = _moment(text, now)
    return None if when is None else max(0.0, (when - now).total_seconds())


def _moment(text: str, now: datetime) -> datetime | None:
    if found := _EPOCH.search(text):
        return datetime.fromtimestamp(int(found[1]), UTC)
    if found := _ISO.search(text):
        when = datetime.fromisoformat(found[0])
        return when if when.tzinfo else when.replace(tzinfo=now.tzinfo)
    if found := _IN.search(text):
        amounts = _AMOUNT.findall(found[1])
        seconds = sum(int(one) * _UNITS[unit.lower()] for one, unit in amounts)
        return now + timedelta(seconds=seconds)
    clock = _CLOCK.search(text)
    return None if clock is None else _on_the_clock(text, clock, now)


def _on_the_clock(text: str, clock: re.Match[str], now: datetime) -> datetime | None:
    """A time of day, of the day that the text names, or the next one."""
    here = now.astimezone(_zone(text, now))
    hour, minute = _hour_and_minute(clock)
    try:
        when = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
        day = _DATE.search(text)
        if day is None:
            return when if when > here else when + timedelta(days=1)
        year = int(day[3]) if day[3] else here.year
        when = when.replace(year, _MONTHS.index(day[1].lower()[:3]) + 1, int(day[2]))
        # In December, a limit may end in January.
        return when if day[3] or when > here else when.replace(year + 1)
    except ValueError:  # no such hour or day
        return None


def _hour_and_minute(clock: re.Match[str]) -> tuple[int, int]:
    if clock["half"] is None:
        return int(clock["hour24"]), int(clock["minute24"])
    hour = int(clock["hour"])
    if hour > 12:  # noqa: PLR2004 - hours of half a day
        hour = 24  # there is none, as `datetime` will say
        return hour, 0
    return hour % 12 + (12 if clock["half"].lower() == "p" else 0), int(clock["minute"] or 0)


def _zone(text: str, now: datetime) -> tzinfo:
    found = _ZONE.search(text)
    if found is not None:
        try:
            return ZoneInfo("UTC" if found[1] == "GMT" else found[1])
        except (ZoneInfoNotFoundError, ValueError):
            pass
    return now.tzinfo or UTC
