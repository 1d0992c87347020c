"""JSON by orjson, which writes it in a tenth of the time, where it means what `json` would write.

Both functions return None where `json` has to write the value, or to say what is wrong with it.
"""

from typing import Final

import orjson

_STRICT: Final = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_SORTED: Final = _STRICT | orjson.OPT_SORT_KEYS


def same_json(value: object, *, sort_keys: bool = False) -> bytes | None:
    """The very text that `json` would write, compact and as UTF-8, of a value without floats.

    >>> same_json({"b": "é", "a": [1, None]}, sort_keys=True).decode()
    '{"a":[1,null],"b":"é"}'
    """
    try:
        return orjson.dumps(value, option=_SORTED if sort_keys else _STRICT)
    except TypeError:  # a lone surrogate, an int of more than 64 bits, a type that it refuses
        return None


def equal_json(value: object) -> bytes | None:
    """Compact JSON as UTF-8 that is read as the same value; of a float it may be another text.

    >>> equal_json({"usd": 0.25})
    b'{"usd":0.25}'
    """
    try:
        text = orjson.dumps(value, option=_STRICT)
    except TypeError:
        return None
    return None if b"null" in text else text  # it writes so for a NaN, which `json` refuses
