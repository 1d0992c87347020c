"""The headers of a storm about its limits: Retry-After and rate-limit headers, true or false."""

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from math import ceil

from abreast.testing.storm.limits.limits import LimitLevel
from abreast.testing.storm.settings import Settings

_LONG_FACTOR, _SHORT_FACTOR = 4.0, 0.25


Levels = Mapping[str, LimitLevel]


class HeaderWriter:
    """Writes levels and waits as headers.

    It keeps the levels of some time ago, for headers that come late.
    """

    def __init__(self, start: float, wall: float) -> None:
        self._start = start
        self._wall = wall
        self._past: deque[tuple[float, Levels]] = deque()

    def retry_after(
        self, now: float, wait: float | None, mode: str | float, scale: float
    ) -> str | None:
        """The value of Retry-After for a known wait, or None for no header."""
        if not isinstance(mode, str):
            return _seconds(mode * scale, scale)
        if wait is None or mode == "absent":
            return None
        if mode == "date":
            return http_date(self._wall + now - self._start + wait)
        return _seconds(wait * {"long": _LONG_FACTOR, "short": _SHORT_FACTOR}.get(mode, 1.0), scale)

    def headers(self, now: float, lane: str, levels: Levels, settings: Settings) -> dict[str, str]:
        """The headers of a lane of this kind."""
        if settings.headers == "late":
            levels = self._late(now, levels, settings.lag * settings.scale)
        elif settings.headers == "lying":
            claimed = {name: level.limit * settings.lie for name, level in levels.items()}
            levels = {name: LimitLevel(limit, limit, 0.0) for name, limit in claimed.items()}
        if lane == "anthropic":
            return _anthropic_headers(levels, self._wall + now - self._start, settings.scale)
        return _openai_headers(levels) if lane == "openai" else {}

    def _late(self, now: float, levels: Levels, lag: float) -> Levels:
        """The newest levels that are at least `lag` old; in the beginning, the oldest ones."""
        past = self._past
        past.append((now, levels))
        while len(past) > 1 and past[1][0] <= now - lag:
            past.popleft()
        return past[0][1]


def _openai_headers(levels: Levels) -> dict[str, str]:
    tokens = levels.get("tpm") or levels.get("input_tpm") or levels.get("output_tpm")
    headers: dict[str, str] = {}
    for name, level in (("requests", levels.get("rpm")), ("tokens", tokens)):
        if level is not None:
            headers |= {
                f"x-ratelimit-limit-{name}": str(round(level.limit)),
                f"x-ratelimit-remaining-{name}": _whole(level.left),
                f"x-ratelimit-reset-{name}": duration(level.reset),
            }
    return headers


def _anthropic_headers(levels: Levels, wall: float, scale: float) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, key in _ANTHROPIC_NAMES:
        if (level := levels.get(key)) is not None:
            reset = rfc3339(wall + level.reset, whole=scale == 1)
            headers |= {
                f"anthropic-ratelimit-{name}-limit": str(round(level.limit)),
                f"anthropic-ratelimit-{name}-remaining": _whole(level.left),
                f"anthropic-ratelimit-{name}-reset": reset,
            }
    return headers


_ANTHROPIC_NAMES = (
    ("requests", "rpm"),
    ("tokens", "tpm"),
    ("input-tokens", "input_tpm"),
    ("output-tokens", "output_tpm"),
)


def _whole(left: float) -> str:
    return str(int(left + 1e-6))  # a request that is short only by a rounding error is admitted


def _seconds(wait: float, scale: float) -> str:
    """Whole seconds, as servers send them; thousandths if a minute is shorter.

    The result is never less than the wait.
    """
    return str(ceil(wait - 1e-9)) if scale == 1 else f"{ceil(wait * 1000 - 1e-6) / 1000:.3f}"


def duration(seconds: float) -> str:
    """A duration as in `6m0s`, `1.5s` or `20ms`.

    >>> duration(360), duration(1.5), duration(0.02), duration(0)
    ('6m0s', '1.5s', '20ms', '0s')
    """
    thousandths = ceil(seconds * 1000 - 1e-6)
    if 0 < thousandths < 1000:  # noqa: PLR2004 - less than a second
        return f"{thousandths}ms"
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"


def rfc3339(wall: float, *, whole: bool) -> str:
    """A time of day as in `2026-11-15T04:59:41Z`, rounded up to the second if `whole`."""
    moment = datetime.fromtimestamp(ceil(wall) if whole else wall, UTC)
    return moment.isoformat(timespec="seconds" if whole else "milliseconds").replace("+00:00", "Z")


def http_date(wall: float) -> str:
    """A time of day as HTTP writes it, rounded up to the second."""
    return format_datetime(datetime.fromtimestamp(ceil(wall), UTC), usegmt=True)
