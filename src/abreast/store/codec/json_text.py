"""The limits of recorded JSON text: what all of the codec uses."""

from typing import Final

TAG: Final = "~"
MAX_BYTES: Final = 64 * 1024 * 1024  # the longest encoded value, in bytes of UTF-8
# The deepest nesting. A level of a value takes up to three levels of JSON, and json.loads must stay
# under the recursion limit.
MAX_DEPTH: Final = 200
# A longer int is tagged: it may have more digits than `sys.set_int_max_str_digits` allows.
MAX_INT_BITS: Final = 2100


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8; text with lone surrogates can't."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
