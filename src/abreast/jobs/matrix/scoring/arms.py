"""Arms, which a matrix compares, and the two ways to read a cell's score.

By intention-to-treat a failed cell counts as 0; valid-only leaves it out.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from abreast.jobs.matrix.rows import Row

T = TypeVar("T")
K = TypeVar("K", str, "Arm")

Reading: TypeAlias = Callable[[Row, str], "float | None"]
"""Returns the value of a row for a score; `None` if the row is left out."""


class Arm(NamedTuple):
    """A model with a strategy."""

    model: str
    strategy: str

    def __str__(self) -> str:
        return f"{self.model} · {self.strategy}"


def arms(rows: Iterable[Row]) -> list[Arm]:
    """Every pair of model and strategy that has a cell, sorted."""
    return sorted({Arm(row.model, row.strategy) for row in rows if not row.control})


def score_names(rows: Iterable[Row]) -> list[str]:
    """Every score that some row has, or failed to get, sorted."""
    return sorted({name for row in rows for name in (*row.scores, *row.score_errors)})


def intended(row: Row, score: str) -> float | None:
    """The value of a row for a score, with failures as 0."""
    return valid(row, score) or 0.0


def valid(row: Row, score: str) -> float | None:
    """The value of a row for a score, if it was done and scored."""
    value = row.scores.get(score) if row.state == "done" else None
    return float(value) if value is not None and math.isfinite(value) else None


def is_unknown(cells: Sequence[Row], score: str) -> bool:
    """Whether cells were done, and this score could be given to none of them."""
    return any(row.state == "done" for row in cells) and all(
        valid(row, score) is None for row in cells
    )


def block_means(values: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Each input's average over its repeats, of those that have a value; inputs sorted."""
    blocks = grouped((given, value) for given, value in values if value is not None)
    return {given: mean(found) for given, found in blocks}


def mean(values: Collection[float]) -> float:
    """The mean of at least one number; the same for any order of the numbers."""
    return math.fsum(values) / len(values)


def plain(rows: Iterable[Row]) -> list[Row]:
    """The rows without the controls."""
    return [row for row in rows if not row.control]


def finished(rows: Iterable[Row]) -> list[Row]:
    """The rows that were done, without the controls."""
    return [row for row in rows if not row.control and row.state == "done"]


def by_arm(rows: Iterable[Row]) -> dict[Arm, list[Row]]:
    """The rows of each arm, arms sorted."""
    return dict(grouped((Arm(row.model, row.strategy), row) for row in plain(rows)))


def grouped(pairs: Iterable[tuple[K, T]]) -> list[tuple[K, list[T]]]:
    """The values of each name, names sorted."""
    found: dict[K, list[T]] = defaultdict(list)
    for name, value in pairs:
        found[name].append(value)
    return sorted(found.items())
