"""What a header says of a rate."""

from typing import NamedTuple


class HeaderFacts(NamedTuple):
    """What a header says of a rate: per minute, what is left, and the seconds until all is back."""

    limit: float
    left: float
    reset: float
