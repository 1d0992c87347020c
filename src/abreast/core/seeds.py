"""Randomness that can be repeated: every number is a digest of the run's seed and a path."""

from __future__ import annotations

import hashlib
import secrets

_BITS = 63  # fits a signed 64-bit column and every provider's seed field
_MANTISSA = 53  # of a float: one bit more, and the largest fraction would round up to 1


def draw_seed() -> int:
    """A fresh seed for a run that was given none."""
    return secrets.randbits(_BITS)


def derive_seed(seed: int, path: str) -> int:
    """The seed of what happens at `path`: the same in every process, different for every path.

    >>> derive_seed(7, "run/map/0000") == derive_seed(7, "run/map/0000")
    True
    """
    # A key may be a file's name, and those that are no UTF-8 come with surrogates.
    text = f"{seed}\0{path}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _BITS)


def derive_fraction(seed: int, path: str) -> float:
    """A number in [0, 1) for `path`, for jitter that repeats."""
    return (derive_seed(seed, path) >> (_BITS - _MANTISSA)) / (1 << _MANTISSA)
