"""The result of a study: its rows, its means, its report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final

from abreast.core.outcome import NO_USAGE, Usage
from abreast.jobs.matrix.recorded_study import write_report
from abreast.jobs.matrix.rows import Row, flat_rows
from abreast.jobs.matrix.scoring.arms import (
    Arm,
    block_means,
    by_arm,
    intended,
    is_unknown,
    mean,
    score_names,
)

_MAX_ARMS: Final = 50  # in the table of a notebook


@dataclass(frozen=True, slots=True, repr=False)
class StudyResult:
    """A study that has run: `abreast.matrix` returns it.

        result.done, result.failed, result.scores["local/smollm2", "plain"]["exact"]
        frame = pandas.DataFrame(result.rows())
        result.report("report.html")

    A notebook shows it as a table.
    """

    name: str
    """The study's name."""
    run_id: str
    """The run in its store, for `abreast show` and `abreast matrix report`."""
    cells: int
    """Cells that were chosen and could run here."""
    done: int
    """Cells that have a reply."""
    failed: int
    """Cells that failed."""
    usage: Usage = NO_USAGE
    """What all calls of the run have used so far, also those of judges and of earlier drivers."""
    fresh: int = 0
    """Cells whose reply came from a model now; those of the others were recorded before."""
    unavailable: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The pairs of model and strategy that could not run, and why."""
    _rows: tuple[Row, ...] = ()
    _facts: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"<StudyResult {self.run_id}: {self.done} of {self.cells} cells done{failed}>"

    @property
    def score_errors(self) -> dict[str, int]:
        """In how many cells a score could not be given, by its name."""
        names = sorted({name for row in self._rows for name in row.score_errors})
        return {name: sum(name in row.score_errors for row in self._rows) for name in names}

    @property
    def scores(self) -> dict[tuple[str, str], dict[str, float | None]]:
        """The mean of each score, by labels of model and strategy.

        It is that of the report: over inputs, each averaged over its repeats, a failed cell as 0.
        None if cells were done, and none of them could be given the score.
        """
        return dict(arm_means(self._rows).items())

    def rows(self) -> list[dict[str, Any]]:
        """One mapping for each cell, all with the same keys, as `matrix export` has them.

        pandas.DataFrame(result.rows())
        """
        return flat_rows(self._rows)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report, as Markdown if the path ends with .md, else as one page of HTML.

        Returns its path. Raises ImportError if the extra `report` is not installed.
        """
        target = Path(path)
        write_report(list(self._rows), self._facts, target)
        return target

    def _repr_html_(self) -> str:
        """A small table for notebooks: the arms with their cells and means."""
        means, arms = self.scores, by_arm(self._rows)
        names = score_names(self._rows)
        head = "".join(
            f"<th>{escape(one)}</th>" for one in ("model", "strategy", "done", "failed", *names)
        )
        shown = [_line(arm, rows, means[arm], names) for arm, rows in arms.items()][:_MAX_ARMS]
        more = f"<p>and {len(arms) - _MAX_ARMS} more arms</p>" if len(arms) > _MAX_ARMS else ""
        title = f"{self.run_id}: {self.done} of {self.cells} cells done"
        return (
            f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(shown)}</tbody></table>{more}"
        )


def arm_means(rows: Sequence[Row]) -> dict[Arm, dict[str, float | None]]:
    """The mean of each score by arm, as `StudyResult.scores` has it."""
    names = score_names(rows)
    return {arm: _means(cells, names) for arm, cells in by_arm(rows).items()}


def _means(rows: list[Row], names: list[str]) -> dict[str, float | None]:
    return {
        name: None
        if is_unknown(rows, name)
        else mean(block_means((row.input, intended(row, name)) for row in rows).values())
        for name in names
    }


def _line(arm: Arm, rows: list[Row], means: Mapping[str, float | None], names: list[str]) -> str:
    failed = sum(row.state == "failed" for row in rows)
    values = [means[name] for name in names]
    texts = [
        *arm,
        str(len(rows) - failed),
        str(failed),
        *("" if value is None else f"{value:.3f}" for value in values),
    ]
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>"
