"""The names in a study's file, and which recorded cells of its run are still in it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.spec import Study

_MAX_NAMES: Final = 5  # listed in a sentence


@dataclass(frozen=True, slots=True)
class Design:
    """The labels of models, the names of strategies and controls, input ids, and repeats."""

    models: list[str]
    strategies: list[str]
    controls: list[str]
    inputs: list[str]
    repeats: int

    @classmethod
    def of(cls, study: Study) -> Self:
        """The design of a study as its file is now, whichever part of it is chosen."""
        return cls(
            [model.label for model in study.models],
            [strategy.name for strategy in study.strategies],
            list(study.controls),
            [one.id for one in study.inputs],
            study.repeats,
        )

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self | None:
        """The design from what `plain` returned; None for a run that recorded none."""
        return cls(**facts) if facts else None

    def plain(self) -> dict[str, Any]:
        """The design in JSON's types, as a manifest holds it."""
        return asdict(self)


class CurrentCells:
    """A filter for rows: those of a design pass, the others are counted by what is missing."""

    def __init__(self, design: Design | None) -> None:
        """Filter by a design; without one, all rows pass."""
        self._design = design
        self._inputs = set(design.inputs) if design is not None else set()
        self.left_out: Counter[str] = Counter()

    def passes(self, row: Row) -> bool:
        """Whether a row is in the file as it is now."""
        lacking = None if self._design is None else self._lacking(self._design, row)
        if lacking is not None:
            self.left_out[lacking] += 1
        return lacking is None

    def _lacking(self, design: Design, row: Row) -> str | None:
        """What of a row is no longer in the file; None if all of it is."""
        if not row.control and row.model not in design.models:
            return f"model {row.model}"
        if row.strategy not in (design.controls if row.control else design.strategies):
            return f"{'control' if row.control else 'strategy'} {row.strategy}"
        if row.input not in self._inputs:
            return f"input {row.input}"
        return f"repeat {row.repeat}" if row.repeat >= design.repeats else None

    @property
    def said(self) -> str | None:
        """What was left out, as a sentence; None if nothing was."""
        if not self.left_out:
            return None
        names, count = sorted(self.left_out), sum(self.left_out.values())
        named = ", ".join(names[:_MAX_NAMES]) + (
            f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        )
        cells = "cells are" if count > 1 else "cell is"
        return f"{count:,} recorded {cells} no longer in the file ({named})"
