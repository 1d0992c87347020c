"""Turns the status, headers and body of a provider's error into one typed error."""

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
    Unavailable,
)

RAW = 65_536  # characters that are kept of a body that is no reply
_MESSAGE_CHARACTERS = 200  # of a provider's message, kept in an error's sentence
_MINUTE = 60.0  # seconds
_TOO_MANY_REQUESTS = 429

Headers = Mapping[str, str]
Clean = Callable[[str], str]  # removes secrets from a text


def fault_of(
    name: str, status: int, headers: Headers, body: bytes, *, clean: Clean = str
) -> CallFailed:
    """The error for an answer with this status.

    `name` is the model's, `clean` removes secrets from texts. A 429 is Throttled, or QuotaSpent if
    a wait of a minute doesn't help; 5xx is a ServerFault, which is Unavailable if the provider is
    down or overloaded. All of them have `retry_after` if the provider sent it.
    """
    raw = raw_of(body, clean)
    parsed = _parse_error(raw)
    if (
        status == _TOO_MANY_REQUESTS
        and (error := _throttling_error(name, headers, parsed, raw)) is not None
    ):
        return error
    kind, what = _kind(status, parsed.words)
    message = f": {parsed.message}" if parsed.message else ""
    error = kind(f"{name} {what} ({status}){message}", status=status, raw=raw)
    if issubclass(kind, ServerFault | QuotaSpent):
        error.retry_after = retry_after(headers)
    return error


def fault_in(name: str, document: Mapping[str, Any], *, clean: Clean = str) -> CallFailed | None:
    """The error inside a document with a status of success, as streams and some gateways send it.

    None if there is none.
    """
    if not (error := document.get("error")):
        return None
    return fault_of(name, _status_in(error), {}, json.dumps(document).encode(), clean=clean)


def raw_of(body: bytes, clean: Clean) -> str:
    """The first part of a body as text.

    It is cleaned before it is cut, so that no part of a secret is left at the end.
    """
    return clean(body[: RAW + 4096].decode(errors="replace"))[:RAW]


def one_line(text: str) -> str:
    r"""A text on one line, shortened.

    >>> one_line("a\n  b")
    'a b'
    """
    # A lone surrogate could not be stored, so it is replaced.
    line = " ".join(text.encode(errors="replace").decode().split())
    return (
        line if len(line) <= _MESSAGE_CHARACTERS else line[: _MESSAGE_CHARACTERS - 1].rstrip() + "…"
    )


# --- the body


class _ParsedError(NamedTuple):
    message: str
    words: str  # all text by which errors are distinguished, in lower case
    details: list[Any]


def _parse_error(raw: str) -> _ParsedError:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        text = one_line(re.sub(r"<[^>]*>", " ", raw))
        return _ParsedError(text, text.lower(), [])
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
    return _ParsedError(one_line(text), words, listed)


def _status_in(error: object) -> int:
    if not isinstance(error, dict):
        return 500
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:  # noqa: PLR2004 - the error statuses of HTTP
        return code
    return _STATUS_BY_TYPE.get(str(error.get("type")), _STATUS_BY_TYPE.get(str(code), 500))


_STATUS_BY_TYPE = {
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
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "server_is_overloaded": 503,
    "timeout_error": 504,
    "overloaded_error": 529,
}


# --- the kind of error

_UNPAID = re.compile(
    r"insufficient[_ ](quota|balance|credit|fund)|billing_|credit balance"
    r"|exceeded your.{0,20}budget"
)
_DAY = re.compile(r"per[ _-]?(day|month)|\b(daily|monthly)\b|of the day\b|\b(rpd|tpd)\b")
_CONTEXT = re.compile(
    r"context[_ ](length|window|size|limit)|maximum context|\bcontext\b.*\btokens\b|exceed_context"
    r"|prompt is too long|input (token count|is too long)|request_too_large|too many tokens"
    r"|string_above_max_length"
)
_OVERSIZE = re.compile(r"request (is )?too large")
_FILTER = re.compile(
    r"content[_ ](filter|policy|management)|responsibleai|safety system|usage polic|flagged"
)
_MEDIA = re.compile(
    r"(not|n't|only) (be )?support\w*.{0,60}\b(images?|multi-?modal|vision|pdfs?|documents?)\b"
    r"|\b(images?|image_url|multi-?modal|vision|pdfs?|documents?)\b.{0,60}"
    r"(not support|only support|unsupported|not allowed|exceeds|too (large|many))"
    r"|not a (multi-?modal|vision)|that support (image|pdf|file)|unknown variant `(image_url|file)"
    r"|(process|decode|read|open) (the |this )?(input )?(image|pdf|document)\b|for image input"
)
_KEY = re.compile(
    r"api[_ ]key[_ ](not valid|invalid|expired)|invalid[_ ]api[_ ]key|incorrect api key"
)
_MODEL = re.compile(
    r"model_not_found|(invalid|unknown|no such) model"
    r"|\bmodel\b.{0,80}(not exist|not found|not supported)"
)


_PARAMETERS = re.compile(r"requested parameters")  # no endpoint of a router takes them


def _kind(status: int, words: str) -> tuple[type[CallFailed], str]:
    if status >= 500:  # noqa: PLR2004 - a server's error
        return _DOWN if status in _OUTAGE else (ServerFault, "failed at its provider")
    if status == 402 or _UNPAID.search(words):  # noqa: PLR2004 - payment required
        return QuotaSpent, "has no quota left"
    # A gateway answers 404 if none of its models takes images, or these parameters.
    elsewhere = _PARAMETERS.search(words) or (status == 404 and _MEDIA.search(words))  # noqa: PLR2004 - HTTP
    if status in _BY_STATUS and not elsewhere:
        return _BY_STATUS[status]
    for pattern, kind, what in _BY_WORDS:
        if pattern.search(words):
            return kind, what
    if status < 400:  # noqa: PLR2004 - a redirect
        return RequestRefused, "sent the request elsewhere: is the address right?"
    return RequestRefused, "was sent a request that its provider does not accept"


# A gateway without a server, unavailable, Cloudflare's for a server that is down, and overloaded
# (Anthropic's). Not 504: there the server had the request, and was too slow for it.
_OUTAGE = {502, 503, 521, 522, 523, 529}
_DOWN = (Unavailable, "is not available")
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
    (_MEDIA, RequestRefused, "does not accept an image or a PDF file that it was sent"),
    (_MODEL, *_NO_MODEL),
)


# --- too many requests


def _throttling_error(
    name: str, headers: Headers, parsed: _ParsedError, raw: str
) -> CallFailed | None:
    """Throttled; or QuotaSpent or TooLong if a wait of a minute would not help.

    None if the account has no credit.
    """
    words = parsed.words
    message = f": {parsed.message}" if parsed.message else ""
    if _UNPAID.search(words):
        return None
    if _OVERSIZE.search(words):  # more tokens than a minute's limit: it would be throttled forever
        return TooLong(
            f"{name} was sent more than its limit of tokens allows ({_TOO_MANY_REQUESTS}){message}",
            status=429,
            raw=raw,
        )
    wait = _wait_in(parsed) if (told := retry_after(headers)) is None else told
    if _DAY.search(words) and (wait is None or wait > _MINUTE or "perday" in words):
        spent = QuotaSpent(
            f"{name} has no quota left for now ({_TOO_MANY_REQUESTS}){message}", status=429, raw=raw
        )
        spent.retry_after = wait
        return spent
    if wait is None:
        resets = [reset for _, left, reset in _remaining_limits(headers) if left == "0" and reset]
        waits = [wait for wait in map(seconds_of, resets) if wait is not None]
        wait = max(waits, default=None)
    limit = _limit(words, headers)
    about = f", limit of {limit}" if limit else ""
    error = Throttled(
        f"{name} is throttled ({_TOO_MANY_REQUESTS}{about}){message}",
        retry_after=wait,
        limit=limit,
        raw=raw,
    )
    error.headers = dict(headers)
    return error


def _limit(words: str, headers: Headers) -> str:
    if "concurren" in words:
        return "concurrency"
    if found := [limit for limit, pattern in _LIMITS.items() if pattern.search(words)]:
        return found[0]
    empty = {kind for kind, left, _ in _remaining_limits(headers) if left == "0"}
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


# --- the wait


def retry_after(headers: Headers) -> float | None:
    """The seconds in `retry-after-ms` or `Retry-After`, which has a number or a date.

    None if there is no such header.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    return None if value is None else seconds_of(value)


def _wait_in(parsed: _ParsedError) -> float | None:
    """The wait in a body: Gemini's RetryInfo, or a sentence as OpenAI writes it."""
    for detail in parsed.details:
        if isinstance(detail, dict) and isinstance(delay := detail.get("retryDelay"), str):
            return seconds_of(delay)
    found = re.search(r"try again in ([\d.]+\s?[a-z]+(?:[\d.]+[a-z]+)*)", parsed.words)
    return seconds_of(re.sub(r"\s?(s)ec(ond)?s?$", r"\1", found[1])) if found else None


def _remaining_limits(headers: Headers) -> list[tuple[str, str, str]]:
    """For each limit in the headers: its name, the rest, and the time of its reset."""
    return [
        (kind, headers[left].strip(), headers.get(left.replace("remaining", "reset"), ""))
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
        for left in (f"x-ratelimit-remaining-{kind}", f"anthropic-ratelimit-{kind}-remaining")
        if left in headers
    ]


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds_of(text: str, wall: float | None = None) -> float | None:
    """Seconds from now to a time given as a number, a duration or a date; at least 0.

    None if the text is none of these.

    >>> seconds_of("1.5"), seconds_of("6m0s"), seconds_of("20ms"), seconds_of("soon")
    (1.5, 360.0, 0.02, None)
    """
    text = text.strip()
    if (number := _number(text)) is not None:
        return number
    parts = _DURATION_PART.findall(text)
    if parts and "".join(amount + unit for amount, unit in parts) == text:
        total = sum(float(amount) * _UNITS[unit] for amount, unit in parts)
        return total if isfinite(total) else None
    moment = _moment(text)
    return (
        None
        if moment is None
        else max(0.0, moment - (SYSTEM_CLOCK.wall() if wall is None else wall))
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return max(0.0, number) if isfinite(number) else None


def _moment(text: str) -> float | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
        except (ValueError, OverflowError):
            continue
        if moment.tzinfo is not None:
            return moment.timestamp()
    return None
