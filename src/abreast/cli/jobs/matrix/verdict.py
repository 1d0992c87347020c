"""The options of a study for CI: what its means must be, and files for a CI server to show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from abreast.cli.errors import DONE, FAILED, UsageError, os_error_text, tell
from abreast.jobs.matrix.recorded_study import design_of, report_content
from abreast.jobs.matrix.report.verdict import Threshold, junit, read_threshold, summary, verdicts
from abreast.jobs.matrix.scoring.arms import score_names
from abreast.store.port import RunRow, Store


@dataclass(frozen=True, slots=True)
class VerdictOptions:
    """--fail-under, --junit and --summary; false if none of them is given."""

    fail_under: tuple[str, ...] = ()
    junit: str | None = None
    summary: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Those of a command's options."""
        return cls(tuple(given.get("fail_under") or ()), given.get("junit"), given.get("summary"))

    def __bool__(self) -> bool:
        return self != NO_VERDICT

    def read(self, scores: Sequence[str], strategies: Sequence[str]) -> list[Threshold]:
        """The thresholds; raises `UsageError` if one is no number, or names what isn't there.

        So does a file in a directory that isn't there: a study may take hours.
        """
        for path in filter(None, (self.junit, self.summary)):
            if not Path(path).absolute().parent.is_dir():
                raise UsageError(f"{path} can't be written: there is no such directory")
        try:
            return [read_threshold(text, scores, strategies) for text in self.fail_under]
        except ValueError as error:
            raise UsageError(f"--fail-under: {error}") from None

    def check(
        self,
        store: Store,
        row: RunRow,
        unavailable: Mapping[tuple[str, str], str] | None = None,
        *,
        every: bool = False,
    ) -> int:
        """Print which means are too small, and write the files; return the exit code."""
        if not self:
            return DONE
        rows, _ = report_content(store, row, every=every)
        design = design_of(store, row)
        strategies = {one.strategy for one in rows if not one.control}
        known = sorted(strategies.union(design.strategies if design is not None else ()))
        found = verdicts(rows, self.read(score_names(rows), known), unavailable or {})
        title = f"{row.name or row.id} ({row.id})"
        for path, text in ((self.junit, junit), (self.summary, summary)):
            if path is not None:
                _write(Path(path), text(title, rows, found))
        missed = [one for one in found if not one.passes]
        for one in missed:
            tell(str(one))
        return FAILED if missed else DONE


NO_VERDICT: Final = VerdictOptions()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path} can't be written: {os_error_text(error)}", FAILED) from None
