"""File names made from names that a user, a file or a model chose: one path component, whatever the name says."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

MAX_BYTES: Final = 200
"""The longest file name that is made, in bytes of UTF-8: file systems take 255, and an ending may follow."""

_KEPT_BYTES: Final = 120  # of a name that has to be changed; its digest follows
_SEPARATORS: Final = frozenset(
    '/\\:*?"<>|'
)  # of a path, here or on Windows, and what Windows refuses
_AT_THE_FRONT: Final = frozenset(".- ")  # hidden, an option, or lost
_AT_THE_END: Final = frozenset(". ")  # Windows drops them
_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\..*)?", re.IGNORECASE | re.DOTALL
)
_MADE: Final = re.compile(r"~[0-9a-f]{16}\Z")


def file_name(name: str) -> str:
    """The name of a file or folder for `name`: the name itself if it is an ordinary one, else made from it.

    The result is one path component: never empty, no separators, no control characters, no leading
    dot or dash, no device of Windows, at most `MAX_BYTES` long. Distinct names have distinct
    results: one that had to be changed ends with a digest of the whole name, and one that happens
    to look like that is changed as well.

    >>> file_name("study-1")
    'study-1'
    >>> file_name("../../pwned-1")
    '_._.._pwned-1~b6bc5d32e44de372'
    """
    return name if _is_ordinary(name) else _made_from(name)


def _is_ordinary(name: str) -> bool:
    return (
        bool(name)
        and not any(_is_replaced(char) for char in name)
        and name[0] not in _AT_THE_FRONT
        and name[-1] not in _AT_THE_END
        and not _DEVICE.fullmatch(name)
        and not _MADE.search(name)
        and len(name.encode()) <= MAX_BYTES
        and unicodedata.is_normalized(
            "NFC", name
        )  # a file system may take two spellings of one text for the same
    )


def _is_replaced(char: str) -> bool:
    """Separators and what can't be seen: control and format characters, line breaks, surrogates, unassigned ones."""
    return char in _SEPARATORS or (not char.isprintable() and char != " ")


def _made_from(name: str) -> str:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    clean = "".join(
        "_" if _is_replaced(char) else char for char in unicodedata.normalize("NFC", name)
    )
    short = clean.encode()[:_KEPT_BYTES].decode(errors="ignore")
    if not short or short[0] in _AT_THE_FRONT:
        short = f"_{short[1:]}"
    if _DEVICE.fullmatch(short):
        short = f"_{short}"
    return f"{short}~{digest}"
