"""Reads the fields of a `[lanes.NAME]` table; each fault is a ValueError with its place."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeGuard
from urllib.parse import urlsplit

from abreast.models.batch.terms import FALLBACKS, BatchTerms
from abreast.models.port import EFFORTS
from abreast.models.price import FlatPrice

HTTP_KINDS: Final = ("openai", "openai-responses", "anthropic", "gemini")
STRUCTURED: Final = ("json_schema", "tool", "json_object", "none")
"""The ways in which a lane can be asked for a value by a schema."""
NO_PROXY: Final = "none"
ENV: Final = "env:"
"""Before the name of an environment variable that holds a value."""
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
"""A part of an address from the environment: `${NAME}`, or `${NAME:-default}`."""
# Each request writes these itself.
_OWN_FIELDS: Final = ("model", "messages", "contents", "stream")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET_HEADER: Final = re.compile(
    r"authorization|cookie|credential|password|secret|token|(^|[-_])key$", re.IGNORECASE
)


def read_fields(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The checked fields of a lane's table."""
    for field in given:
        _check_field(field, where)
    return {field: _READERS[field](value, f"{where}.{field}") for field, value in given.items()}


def _width(given: object, where: str) -> int:
    """A lane's width: a whole number of at least 1."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ValueError(f"{where} must be a whole number of at least 1, not {given!r}")
    return given


def _check_field(field: str, where: str) -> None:
    if field in ("api_key", "key"):
        raise ValueError(
            f"{where}.{field}: a key doesn't belong in this file; name a variable (api_key_env), "
            "a file (api_key_file) or a command (api_key_command) that gives it"
        )
    _check_known(field, _READERS, f"{where}: there is no setting")


def _check_known(word: str, known: Mapping[str, object] | tuple[str, ...], what: str) -> None:
    if word not in known:
        close = get_close_matches(word, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise ValueError(f"{what} {word!r}; {hint}")


def _reader(what: str, is_valid: Callable[[object], bool]) -> Callable[[object, str], Any]:
    def read(given: object, where: str) -> object:
        if not is_valid(given):
            raise ValueError(f"{where} must be {what}, not {given!r}")
        return given

    return read


_text: Final = _reader("a text", lambda given: isinstance(given, str) and bool(given))


def _url(given: object, where: str) -> str:
    text: str = _text(given, where)
    # A variable may hold the scheme and the host, as AZURE_OPENAI_ENDPOINT does.
    sample = VARIABLE.sub("x", f"http://{text}" if VARIABLE.match(text) else text)
    _check_address(text, sample, where)
    return text


def _check_address(text: str, sample: str, where: str) -> None:
    try:
        parts = urlsplit(sample)
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc:
        raise ValueError(f"{where}: a user or a password doesn't belong in an address")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{where} must begin with http:// or https:// and a host, not {text!r}")


def _proxy(given: object, where: str) -> str:
    text: str = _text(given, where)
    if text == NO_PROXY or _is_variable(text, where):
        return text
    try:
        _check_address(text, text, where)
    except ValueError as error:
        raise ValueError(f"{error}; {ENV}NAME takes it from a variable") from None
    return text


def _is_variable(text: str, where: str) -> bool:
    """Whether a text is `env:NAME`; raises ValueError if the name is none."""
    if not text.startswith(ENV):
        return False
    if not _VARIABLE_NAME.fullmatch(text.removeprefix(ENV)):
        raise ValueError(f"{where} must name a variable, as in {ENV}MY_VARIABLE")
    return True


def _headers(given: object, where: str) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError(f'{where} must be a table, such as {{X-Team = "blue"}}')
    for name, value in given.items():
        place = f"{where}.{name}"
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{where}: {name!r} can't be the name of a header")
        if not isinstance(value, str) or not value:
            raise ValueError(f"{place} must be a text, such as blue or {ENV}MY_VARIABLE")
        if _is_variable(value, place):
            continue
        if _SECRET_HEADER.search(name):
            raise ValueError(
                f"{place}: a secret doesn't belong in this file; name a variable that holds it, "
                f"as in {ENV}MY_VARIABLE"
            )
        if not (value.isascii() and value.isprintable() and value.strip() == value):
            raise ValueError(f"{place} must be ASCII on one line, without spaces around it")
    return dict(given)


def _extra(given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} must be a table of fields, such as {{top_p = 0.9}}")
    for name in _OWN_FIELDS:
        if name in given:
            raise ValueError(f"{where}.{name}: each request writes this field itself; remove it")
    if given.get("n", 1) != 1:
        raise ValueError(
            f"{where}.n: one reply is read of each request, and all are paid; remove it"
        )
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError(f"{where} has a value that JSON doesn't have, such as a date") from None
    return dict(given)


def _drop(given: object, where: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise ValueError(f'{where} must be a list of names, such as ["temperature"], not {given!r}')
    for name in _OWN_FIELDS:
        if name in given:
            raise ValueError(f"{where}: {name} can't be left out of a request")
    return tuple(given)


def _structured(given: object, where: str) -> str:
    text: str = _text(given, where)
    _check_known(text, STRUCTURED, f"{where}: there is no way")
    return text


def _positive(given: object, where: str) -> float:
    if not _is_finite(given) or given <= 0:
        raise ValueError(f"{where} must be a positive number, not {given!r}")
    return float(given)


def _seconds(given: object, where: str) -> float:
    if not _is_finite(given) or given < 0:
        raise ValueError(f"{where} must be a number of seconds of at least 0, not {given!r}")
    return float(given)


def _is_finite(given: object) -> TypeGuard[float]:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return False
    return abs(given) <= sys.float_info.max  # not for an infinity, NaN or a longer integer


_RATES: Final = ("input", "output", "cached_input", "cache_write")


def _price(given: object, where: str) -> FlatPrice:
    if not isinstance(given, Mapping) or not {"input", "output"} <= set(given):
        raise ValueError(
            f"{where} must be {{input = ..., output = ...}}, US dollars per million tokens, "
            f"not {given!r}"
        )
    for side, amount in given.items():
        _check_known(side, _RATES, f"{where}: there is no rate")
        if not _is_finite(amount) or amount < 0:
            raise ValueError(f"{where}.{side} must be a number of at least 0, not {amount!r}")
    return FlatPrice(**{side: float(amount) for side, amount in given.items()})


_BATCH_FIELDS: Final = (
    "size",
    "age",
    "poll",
    "longest_poll",
    "settle",
    "tokens",
    "fallback",
    "wait",
)


def _batch(given: object, where: str) -> BatchTerms:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} must be a table, such as {{size = 1000, age = 60}}")
    terms: dict[str, Any] = {}
    for name, value in given.items():
        _check_known(name, _BATCH_FIELDS, f"{where}: there is no setting")
        place = f"{where}.{name}"
        if name == "fallback":
            _check_known(str(value), FALLBACKS, f"{place}: there is no")
            terms[name] = value
        elif name in ("size", "tokens"):
            terms[name] = _width(value, place)
        else:
            terms[name] = (_positive if "poll" in name else _seconds)(value, place)
    return BatchTerms(**terms)


_READERS: Final[Mapping[str, Callable[[object, str], object]]] = {
    "kind": _reader(f"one of {', '.join(HTTP_KINDS)}", lambda given: given in HTTP_KINDS),
    "base_url": _url,
    "api_key_env": _text,
    "api_key_file": _text,
    "api_key_command": _text,
    "headers": _headers,
    "extra": _extra,
    "drop": _drop,
    "structured": _structured,
    "proxy": _proxy,
    "ca_file": _text,
    "width": _width,
    "adaptive": _reader("true or false", lambda given: isinstance(given, bool)),
    "shared": _reader("true or false", lambda given: isinstance(given, bool)),
    "budget": _text,
    "rpm": _positive,
    "tpm": _positive,
    "price": _price,
    "batch": _batch,
    "mode": _reader("direct or batch", lambda given: given in ("direct", "batch")),
    "timeout": _positive,
    "first_byte": _positive,
    "outage": _seconds,
    "max_tokens": _text,
    "reasoning": _reader(f"one of {', '.join(EFFORTS)}", lambda given: given in EFFORTS),
}
