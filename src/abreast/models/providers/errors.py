"""What a provider's error means: status, headers and body go in, one typed error comes out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, NamedTuple

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import (
    CallFailed,
    KeyRefused,
    NoSuchModel,
    QuotaSpent,
    Refused,
    ReplyTimeout,
    RequestRefused,
    ServerFault,
    Throttled,
    TooLong,
)

RAW = 65_536
"""So many characters of what came instead of a reply are kept."""
_SAID = 200  # characters of a provider's message that go into a sentence
_MINUTE = 60.0
_TOO_MANY = 429

Headers = Mapping[str, str]
Clean = Callable[[str], str]
"""Takes secrets out of a text."""


def fault_of(
    name: str, status: int, headers: Headers, body: bytes, *, clean: Clean = str
) -> CallFailed:
    """The error that an answer with this status means.

    `name` is the model's, `clean` takes secrets out of texts.

    A 429 is Throttled, or QuotaSpent where waiting for a minute doesn't help; 5xx is a ServerFault. Both have
    `retry_after` where the provider told it.
    """
    raw = raw_of(body, clean)
    complaint = _complaint(raw)
    if status == _TOO_MANY and (wait := _throttled(name, headers, complaint, raw)) is not None:
        return wait
    kind, what = _kind(status, complaint.words)
    said = f": {complaint.message}" if complaint.message else ""
    error = kind(f"{name} {what} ({status}){said}", status=status, raw=raw)
    if kind in (ServerFault, QuotaSpent):
        after = retry_after(headers)
        if after is not None:
            vars(error)["retry_after"] = after  # most have none, so it is no field of theirs
    return error


def fault_in(name: str, document: Mapping[str, Any], *, clean: Clean = str) -> CallFailed | None:
    """The error inside a reply that began well, as streams and some gateways have it.

    None if there is none.
    """
    error = document.get("error")
    if not error:
        return None
    return fault_of(name, _status_in(error), {}, json.dumps(document).encode(), clean=clean)


def raw_of(body: bytes, clean: Clean) -> str:
    """The first part of a body as text.

    Cleaned before it is cut, or half a secret might be left at the end.
    """
    return clean(body[: RAW + 4096].decode(errors="replace"))[:RAW]


def one_line(text: str) -> str:
    r"""A text on one line, shortened.

    >>> one_line("a\n  b")
    'a b'
    """
    line = " ".join(
        text.encode(errors="replace").decode().split()
    )  # half a surrogate pair could not be stored
    return line if len(line) <= _SAID else line[: _SAID - 1].rstrip() + "…"


# --- what a body says


class _Complaint(NamedTuple):
    message: str
    words: str  # all of it that tells one situation from another, in lower case
    details: list[Any]


def _complaint(raw: str) -> _Complaint:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        text = one_line(re.sub(r"<[^>]*>", " ", raw))
        return _Complaint(text, text.lower(), [])
    while isinstance(document, list) and document:
        document = document[0]
    outer = document if isinstance(document, dict) else {"message": document}
    inner = outer.get("error")
    error = inner if isinstance(inner, dict) else outer
    message = next((error[key] for key in ("message", "detail", "error") if error.get(key)), "")
    text = message if isinstance(message, str) else json.dumps(message)
    details = error.get("details")
    listed = details if isinstance(details, list) else []
    marks = [str(error.get(key, "")) for key in ("type", "code", "status")]
    words = " ".join(
        [*marks, text, json.dumps(listed), json.dumps(error.get("innererror", ""))]
    ).lower()
    return _Complaint(one_line(text), words, listed)


def _status_in(error: object) -> int:
    if not isinstance(error, dict):
        return 500
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:  # noqa: PLR2004 - HTTP's errors
        return code
    return _STATUS.get(str(error.get("type")), _STATUS.get(str(code), 500))


_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "content_filter": 400,
    "timeout_error": 504,
    "overloaded_error": 529,
}


# --- which error it is

_UNPAID = re.compile(
    r"insufficient[_ ](quota|balance|credit|fund)|billing_|credit balance|exceeded your.{0,20}budget"
)
_DAY = re.compile(r"per[ _-]?(day|month)|\b(daily|monthly)\b|of the day\b|\b(rpd|tpd)\b")
_CONTEXT = re.compile(
    r"context[_ ](length|window|size|limit)|maximum context|\bcontext\b.*\btokens\b|exceed_context"
    r"|prompt is too long|input (token count|is too long)|request_too_large|too many tokens|string_above_max_length"
)
_OVERSIZE = re.compile(r"request (is )?too large")
_FILTER = re.compile(
    r"content[_ ](filter|policy|management)|responsibleai|safety system|usage polic|flagged"
)
_KEY = re.compile(
    r"api[_ ]key[_ ](not valid|invalid|expired)|invalid[_ ]api[_ ]key|incorrect api key"
)
_MODEL = re.compile(
    r"model_not_found|(invalid|unknown|no such) model|\bmodel\b.{0,80}(not exist|not found|not supported)"
)


def _kind(status: int, words: str) -> tuple[type[CallFailed], str]:
    if status >= 500:  # noqa: PLR2004 - a server's error
        return ServerFault, "failed at its provider"
    if status == 402 or _UNPAID.search(words):  # noqa: PLR2004 - payment required
        return QuotaSpent, "has no quota left"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    for pattern, kind, what in _BY_WORDS:
        if pattern.search(words):
            return kind, what
    if status < 400:  # noqa: PLR2004 - not an error, but no reply
        return RequestRefused, "sent the request elsewhere: is the address right?"
    return RequestRefused, "was sent a request that its provider does not accept"


_NO_KEY = (KeyRefused, "refused the key")
_NO_MODEL = (NoSuchModel, "is not there")
_NO_ROOM = (TooLong, "was sent more than fits")
_BY_STATUS: dict[int, tuple[type[CallFailed], str]] = {
    401: _NO_KEY,
    403: _NO_KEY,
    404: _NO_MODEL,
    408: (ReplyTimeout, "took too long for its provider"),
    413: _NO_ROOM,
    429: (Throttled, "is throttled"),
}
_BY_WORDS: tuple[tuple[re.Pattern[str], type[CallFailed], str], ...] = (
    (_KEY, *_NO_KEY),
    (_CONTEXT, *_NO_ROOM),
    (_FILTER, Refused, "was not allowed to answer"),
    (_MODEL, *_NO_MODEL),
)


# --- too many requests


def _throttled(name: str, headers: Headers, complaint: _Complaint, raw: str) -> CallFailed | None:
    """Throttled; QuotaSpent or TooLong where a minute's wait would not help.

    None for what is unpaid.
    """
    words = complaint.words
    said = f": {complaint.message}" if complaint.message else ""
    if _UNPAID.search(words):
        return None
    if _OVERSIZE.search(words):  # more tokens than a minute has: it would be throttled for ever
        return TooLong(
            f"{name} was sent more than its limit of tokens allows ({_TOO_MANY}){said}",
            status=429,
            raw=raw,
        )
    told = retry_after(headers)
    wait = told if told is not None else _wait_in(complaint)
    if _DAY.search(words) and (wait is None or wait > _MINUTE or "perday" in words):
        spent = QuotaSpent(
            f"{name} has no quota left for now ({_TOO_MANY}){said}", status=429, raw=raw
        )
        vars(spent).update({} if wait is None else {"retry_after": wait})
        return spent
    if wait is None:
        wait = _until_reset(headers)
    limit = _limit(words, headers)
    about = f", limit of {limit}" if limit else ""
    error = Throttled(
        f"{name} is throttled ({_TOO_MANY}{about}){said}", retry_after=wait, limit=limit, raw=raw
    )
    vars(error)["headers"] = dict(headers)  # the lane reads there what is left of each limit
    return error


def _limit(words: str, headers: Headers) -> str:
    if "concurren" in words:
        return "concurrency"
    for limit, pattern in _LIMITS.items():
        if pattern.search(words):
            return limit
    empty = {kind for kind, left, _ in _levels(headers) if left == "0"}
    if len(empty) == 1:
        return "tokens" if "tokens" in empty.pop() else "requests"
    return ""


_LIMITS = {
    "tokens": re.compile(
        r"^tokens\b|tokens[ _-]?(per|usage)|token limit|\btpm\b|tokensper|limit of (\w+ )?tokens"
    ),
    "requests": re.compile(
        r"^requests\b|requests[ _-]?per|\brpm\b|requests rate|limit of requests"
    ),
}


# --- how long to wait


def retry_after(headers: Headers) -> float | None:
    """The seconds that `retry-after-ms` or `Retry-After` tell, as a number or a date.

    None for none.
    """
    thousandths = _number(headers.get("retry-after-ms"))
    if thousandths is not None:
        return thousandths / 1000
    told = headers.get("retry-after")
    return None if told is None else seconds_of(told)


def _wait_in(complaint: _Complaint) -> float | None:
    """The wait that a body tells: Gemini's RetryInfo, or a sentence as OpenAI writes it."""
    for detail in complaint.details:
        if isinstance(detail, dict) and isinstance(delay := detail.get("retryDelay"), str):
            return seconds_of(delay)
    found = re.search(r"try again in ([\d.]+\s?[a-z]+(?:[\d.]+[a-z]+)*)", complaint.words)
    return seconds_of(re.sub(r"\s?(s)ec(ond)?s?$", r"\1", found[1])) if found else None


def _until_reset(headers: Headers) -> float | None:
    waits = [seconds_of(reset) for _, left, reset in _levels(headers) if left == "0" and reset]
    return max((wait for wait in waits if wait is not None), default=None)


def _levels(headers: Headers) -> list[tuple[str, str, str]]:
    """Of each limit in the headers: its name, how much is left, and when it is whole again."""
    levels = []
    for kind in ("requests", "tokens", "input-tokens", "output-tokens"):
        for left, reset in (
            (f"x-ratelimit-remaining-{kind}", f"x-ratelimit-reset-{kind}"),
            _anthropic(kind),
        ):
            if left in headers:
                levels.append((kind, headers[left].strip(), headers.get(reset, "")))
    return levels


def _anthropic(kind: str) -> tuple[str, str]:
    return f"anthropic-ratelimit-{kind}-remaining", f"anthropic-ratelimit-{kind}-reset"


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds_of(told: str, wall: float | None = None) -> float | None:
    """Seconds from now, however they are told: a number, a stretch of time, or a moment.

    Never less than 0.

    >>> seconds_of("1.5"), seconds_of("6m0s"), seconds_of("20ms"), seconds_of("soon")
    (1.5, 360.0, 0.02, None)
    """
    told = told.strip()
    if (number := _number(told)) is not None:
        return number
    parts = _PART.findall(told)
    if parts and "".join(amount + unit for amount, unit in parts) == told:
        return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
    moment = _moment(told)
    return (
        None
        if moment is None
        else max(0.0, moment - (SYSTEM_CLOCK.wall() if wall is None else wall))
    )


def _number(told: str | None) -> float | None:
    try:
        number = float(told or "")
    except ValueError:
        return None
    return max(0.0, number) if isfinite(number) else None


def _moment(told: str) -> float | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(told)
        except ValueError:
            continue
        if moment.tzinfo is not None:
            return moment.timestamp()
    return None
