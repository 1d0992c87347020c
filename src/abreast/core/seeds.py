"""Randomness that can be repeated: every number is a digest of the run's seed and a path."""

import hashlib
import secrets
from typing import Final

# How new runs derive seeds from paths; a run records its rule and keeps it when resumed.
SEED_RULE: Final = 2
FIRST_SEED_RULE: Final = 1  # the rule of runs that recorded none

_SEED_BITS = 63  # fits a signed 64-bit column and every provider's seed field
_MANTISSA_BITS = 53  # of a float; with one bit more, the largest fraction would round up to 1


def draw_seed() -> int:
    """A random seed for a run that was given none."""
    return secrets.randbits(_SEED_BITS)


def derive_seed(seed: int, path: str) -> int:
    """The seed of what happens at `path`: the same in every process, different for every path.

    >>> derive_seed(7, "run/map/0000") == derive_seed(7, "run/map/0000")
    True
    """
    # A key may be a file's name; bytes in it that are not UTF-8 are decoded as surrogates.
    text = f"{seed}\0{path}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _SEED_BITS)


def seeded_part(path: str, rule: int = SEED_RULE) -> str:
    """The part of a path from which its seeds are derived.

    It is what is below the run's root, so that the run's name doesn't change the seeds. By rule 1
    it was the whole path.

    >>> seeded_part("run/map/0000"), seeded_part("run/map/0000", rule=1)
    ('map/0000', 'run/map/0000')
    """
    return path if rule == FIRST_SEED_RULE else path.partition("/")[2]


def derive_fraction(seed: int, path: str) -> float:
    """A number in [0, 1) for `path`, for repeatable jitter."""
    return (derive_seed(seed, path) >> (_SEED_BITS - _MANTISSA_BITS)) / (1 << _MANTISSA_BITS)
