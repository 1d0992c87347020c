"""The codec of every store: values and errors as JSON text, and back.

JSON's own types are written as they are. Other values are an object with the key `~`, which names
the type: see `abreast.store.codec.stdlib_types`. That module is imported when first needed (8 ms),
because most values don't need it.
"""

import hashlib
import json
import math
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from abreast.core.errors import (
    AbreastError,
    CannotStore,
    RecordedError,
    StoreCorrupt,
    StoreError,
    type_name,
)
from abreast.store.codec.json_text import MAX_BYTES, MAX_INT_BITS, TAG, is_text, json_writer
from abreast.system.quick_json import same_json

MAX_TRACE_CHARACTERS: Final = 64 * 1024
SHORT_TEXT_CHARACTERS: Final = 600  # a text this short can't contain an int past MAX_INT_BITS
# In a JSON string the quotes would be escaped, so this is always the start of a tagged object.
_TAG_PREFIX: Final = '{"~":'
_SCALAR_TYPES: Final = frozenset({str, int, float, bool, type(None)})
_FLOATLESS_TYPES: Final = _SCALAR_TYPES - {float}
_STR_TYPE: Final = frozenset({str})
_DIGEST_INT_BOUND: Final = 1 << 63
NO_TYPES: Final[Mapping[str, type]] = {}


_to_json: Final = json_writer()
_to_sorted_json: Final = json_writer(sort_keys=True)
_raw_decode: Final = json.JSONDecoder().raw_decode


def encode(value: object, where: str) -> str:
    """The JSON text of `value`.

    Raises `CannotStore`, which names `where`, the place inside the value, and the type.

    >>> encode({"when": (1, 2)}, "the value of item 0007")
    '{"when":{"~":"tuple","v":[1,2]}}'
    """
    text = _flat_text(value, sort_keys=False)
    return _encoded_text(value, where, canonical=False) if text is None else text


def digest(value: object) -> str | None:
    """A short name for the value's content, the same for equal dicts in any order.

    None if it can't be encoded.
    """
    if type(value) is int and -_DIGEST_INT_BOUND < value < _DIGEST_INT_BOUND:
        return f"{value}"  # short enough to be its own digest
    text = _flat_text(value, sort_keys=True)
    if text is None:
        try:
            text = _encoded_text(value, "the value", canonical=True)
        except CannotStore:
            return None
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def is_scalar(value: object) -> bool:
    """Whether decoding returns exactly this value, so that a caller may skip the round trip."""
    kind = type(value)
    return kind in _SCALAR_TYPES and (kind is not float or math.isfinite(value))  # type: ignore[arg-type]


def read_back(value: object, text: str) -> object:
    """The result of decoding `text`, the encoded `value`: a new object, by a copy if possible.

    >>> read_back((1, 2), encode((1, 2), "a pair"))
    (1, 2)
    """
    if is_scalar(value):
        return value
    flat = None if _TAG_PREFIX in text else _if_flat(value)
    if flat is None:
        return decode(text)
    return dict(value) if isinstance(value, dict) else list(flat)


def decode(text: str, types: Mapping[str, type] = NO_TYPES) -> object:
    """The value that was encoded. `StoreError` if one of its types has changed.

    Only abreast's own modules are imported: a user's type that is neither imported already nor
    among `types` raises `TypeNotLoaded`.
    """
    try:
        if _TAG_PREFIX not in text:
            return _parse_json(text)
        from abreast.store.codec.stdlib_types import revive

        return json.loads(text, object_hook=lambda form: revive(form, types))
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a recorded value is damaged: {error}") from error
    except RecursionError as error:
        raise StoreError(
            "a recorded value is nested too deeply to be read from so deep a call"
        ) from error


def decode_facts(text: str) -> object:
    """The facts of an event or a run: as `decode`, but a named type stays plain data."""
    return _decode_data(text, plain=False)


def decode_plain(text: str) -> object:
    """The value in JSON's own types, for people to read: no type of the user is instantiated."""
    return _decode_data(text, plain=True)


def _decode_data(text: str, *, plain: bool) -> object:
    try:
        if _TAG_PREFIX not in text:
            return _parse_json(text)
        from abreast.store.codec.stdlib_types import flatten, revive_facts

        return json.loads(text, object_hook=flatten if plain else revive_facts)
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreCorrupt(
            f"a recorded {'value' if plain else 'fact'} is damaged: {error}"
        ) from error


def encode_error(error: BaseException) -> str:
    """The record of a failure: its type's name, message, traceback, and `details` if it has any.

    Never raises, whatever `error` does.
    """
    # An error that was read from a store and raised again keeps its recorded type.
    if type(error) is RecordedError:
        kind, message, trace = error.kind, error.message, error.trace
    else:
        kind, message, trace = (
            type_name(type(error)),
            _text_or_placeholder(str, error),
            _text_or_placeholder(lambda raised: "".join(traceback.format_exception(raised)), error),
        )
    record = {"type": kind, "message": _truncate(message), "trace": _truncate(trace)}
    text = json.dumps(record, separators=(",", ":"))
    details = _details(error)
    return text if details is None else f'{text[:-1]},"details":{details}}}'


def decode_error(text: str, read: Callable[[str], object] | None = None) -> RecordedError:
    """The recorded failure; its details are in JSON's own types unless `read` decodes them.

    Raises `StoreCorrupt` if `text` is no such record.
    """
    read = read or decode_plain
    try:
        record = json.loads(text)
        details = read(text)["details"] if "details" in record else None  # type: ignore[index]
        return RecordedError(record["type"], record["message"], record["trace"], details)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreCorrupt(f"a recorded failure is damaged: {error!r}") from error


def is_recorded(error: RecordedError, kind: type[AbreastError]) -> bool:
    """Whether a recorded failure has that type of abreast, whichever module it was in then."""
    package, _, name = error.kind.partition(".")
    return package == "abreast" and name.rpartition(".")[2] == kind.__name__


def _parse_json(text: str) -> object:
    value, end = _raw_decode(text)
    if end != len(text):
        raise ValueError(f"it goes on after its end, at character {end}")
    return value


def _flat_text(value: object, *, sort_keys: bool) -> str | None:
    """The text of a scalar, or of a list or dict of scalars; None for all other values."""
    inner = (value,) if type(value) is str else _if_flat(value)
    if inner is None:
        return None
    if _FLOATLESS_TYPES.issuperset(map(type, inner)):
        quick = same_json(value, sort_keys=sort_keys)
        if quick is not None:
            return quick.decode() if len(quick) < MAX_BYTES // 4 else None
    try:
        text = (_to_sorted_json if sort_keys else _to_json)(value)
    except ValueError:  # nan, inf, or an int of too many digits
        return None
    if len(text) < SHORT_TEXT_CHARACTERS and text.isascii():
        return text
    if any(type(each) is int and each.bit_length() > MAX_INT_BITS for each in inner):
        return None
    return text if len(text) < MAX_BYTES // 4 and is_text(text) else None


def _if_flat(value: object) -> Iterable[object] | None:
    """The scalars that `value` consists of; None if it contains anything else.

    Comparing a set of types runs in C: 0.9 us for a dict of five values, where a loop takes 3 us.
    """
    kind = type(value)
    if kind is dict:
        fields: dict[object, object] = value  # type: ignore[assignment]
        if TAG in fields or not _STR_TYPE.issuperset(map(type, fields)):
            return None
        return fields.values() if _SCALAR_TYPES.issuperset(map(type, fields.values())) else None
    if kind is list:
        members: list[object] = value  # type: ignore[assignment]
        return members if _SCALAR_TYPES.issuperset(map(type, members)) else None
    return (value,) if kind in _SCALAR_TYPES else None


def _encoded_text(value: object, where: str, *, canonical: bool) -> str:
    from abreast.store.codec.encoder import ValueRefused
    from abreast.store.codec.stdlib_types import to_form

    try:
        text = (_to_sorted_json if canonical else _to_json)(to_form(value, canonical=canonical))
    except ValueRefused as refused:
        raise CannotStore(
            f"{where} can't be stored: {refused.place or 'it'} {refused.why}"
        ) from refused.__cause__
    except RecursionError:
        raise CannotStore(
            f"{where} can't be stored: it is nested too deeply, or contains itself"
        ) from None
    except RuntimeError as error:
        raise CannotStore(
            f"{where} can't be stored: it changed while it was written ({error})"
        ) from error
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_BYTES:
        raise CannotStore(
            f"{where} can't be stored: it is {size} bytes long, "
            f"and the most is {MAX_BYTES >> 20} MiB"
        )
    return text


def _details(error: BaseException) -> str | None:
    try:
        details = getattr(error, "details", None)
        return (
            encode(details, "the details of an error")
            if type(details) is dict and details
            else None
        )
    except Exception:  # noqa: BLE001 - an error whose details can't be encoded is still recorded
        return None


def _text_or_placeholder(say: Callable[[BaseException], str], error: BaseException) -> str:
    try:
        return say(error)
    except Exception as broken:  # noqa: BLE001 - an error with a broken `__str__` is still recorded
        return f"<its text can't be had: {type_name(type(broken))}>"


def _truncate(text: str) -> str:
    """At most `MAX_TRACE_CHARACTERS`: a quarter from the beginning, the rest from the end."""
    if len(text) <= MAX_TRACE_CHARACTERS:
        return text
    gap = "\n... (cut) ...\n"
    head = MAX_TRACE_CHARACTERS // 4
    return text[:head] + gap + text[len(text) - (MAX_TRACE_CHARACTERS - head - len(gap)) :]
