"""Turns names that a user, a file or a model chose into safe file names."""

import hashlib
import re
import unicodedata
from typing import Final

# The longest file name that is made, in bytes of UTF-8. File systems allow 255, and a suffix may
# follow.
MAX_BYTES: Final = 200

_KEPT_BYTES: Final = 120  # of a name that has to be changed; its digest follows
# Path separators, here or on Windows, and characters that Windows refuses.
_SEPARATORS: Final = frozenset('/\\:*?"<>|')
_BAD_FIRST: Final = frozenset(".- ")  # a hidden file, an option, or lost when it is read back
_BAD_LAST: Final = frozenset(". ")  # Windows drops them
_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE | re.DOTALL
)
_DIGEST_SUFFIX: Final = re.compile(r"~[0-9a-f]{16}\Z")


def file_name(name: str) -> str:
    """The name of a file or folder for `name`: `name` itself if it is safe, else derived from it.

    The result is one path component: never empty, no separators, no control characters, no leading
    dot or dash, no device of Windows, at most `MAX_BYTES` long. Distinct names have distinct
    results: one that had to be changed ends with a digest of the whole name, and one that happens
    to look like that is changed as well.

    >>> file_name("study-1")
    'study-1'
    >>> file_name("../../pwned-1")
    '_._.._pwned-1~b6bc5d32e44de372'
    """
    return name if _is_safe(name) else _derive(name)


def _is_safe(name: str) -> bool:
    return (
        bool(name)
        and not any(_is_replaced(char) for char in name)
        and name[0] not in _BAD_FIRST
        and name[-1] not in _BAD_LAST
        and not _DEVICE.fullmatch(name)
        and not _DIGEST_SUFFIX.search(name)
        and len(name.encode()) <= MAX_BYTES
        # A file system may treat two spellings of one text as the same file.
        and unicodedata.is_normalized("NFC", name)
    )


def _is_replaced(char: str) -> bool:
    """Whether it is a separator or not visible.

    Control and format characters, line breaks, surrogates and unassigned ones are not visible.
    """
    return char in _SEPARATORS or (not char.isprintable() and char != " ")


def _derive(name: str) -> str:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    clean = "".join(
        "_" if _is_replaced(char) else char for char in unicodedata.normalize("NFC", name)
    )
    short = clean.encode()[:_KEPT_BYTES].decode(errors="ignore")
    if not short or short[0] in _BAD_FIRST:
        short = f"_{short[1:]}"
    if _DEVICE.fullmatch(short):
        short = f"_{short}"
    return f"{short}~{digest}"
