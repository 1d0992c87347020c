"""Uses of a study's recorded rows: report, new scores, export, comparison."""

import csv
import io
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from abreast.cli.commands.export import pyarrow_modules, target
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, os_error_text, refusing, tell
from abreast.cli.jobs.matrix.driver import MatrixDriver, recorded_file, resume_study
from abreast.cli.jobs.matrix.page import report_path, write_page
from abreast.cli.jobs.matrix.verdict import VerdictOptions
from abreast.cli.jobs.request import new_request
from abreast.cli.stores import StoreChoice, find_run
from abreast.cli.terminal.outcome_text import json_line
from abreast.cli.terminal.tables import say, say_json
from abreast.jobs.matrix.design.cells import CurrentCells
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.jobs.matrix.recorded_study import KIND, StudyFile, design_of, newest_study
from abreast.jobs.matrix.rows import flat_rows
from abreast.store.port import RunRow, Store
from abreast.system.paths import short_path


def study_run(store: Store, wanted: str) -> RunRow:
    """The run of a study; raises `UsageError` if it is of another kind."""
    row = find_run(store, wanted)
    if row.kind != KIND:
        raise UsageError(f"{row.id} is no study, but a {row.kind}")
    return row


def write_report(
    wanted: str,
    out: str | None,
    choice: StoreChoice,
    verdict: VerdictOptions,
    *,
    every: bool,
    as_json: bool,
) -> int:
    """Write a report, and print its path; return the exit code, by the verdict if one is wanted."""
    with choice.existing(reads=True) as store:
        row = study_run(store, wanted)
        if next(rows_of(store, row), None) is None:
            raise UsageError(f"{row.id} has no rows yet")
        code = verdict.check(store, row, every=every)
        if verdict and out is None:
            return code
        path = Path(out) if out else report_path(row, choice)
        try:
            count = write_page(store, row, path, every=every)
        except OSError as error:
            raise UsageError(f"{path} can't be written: {os_error_text(error)}", 1) from None
        except ImportError as error:
            raise UsageError(str(error)) from None
    if as_json:
        say_json({"run": row.id, "rows": count, "report": str(path)})
    else:
        say(short_path(path))
    return code


def rescore(file: str, text: str, given: Mapping[str, Any]) -> int:
    """Score the recorded replies by the scores that the file has now; return the exit code."""
    request = new_request(Config.load(), KIND, given)
    with request.choice.existing() as store:
        directory = str(Path(file).resolve().parent)
        name = MatrixDriver(StudyFile(file, text, directory), request).study.name
        row = newest_study(store, name)
        if row is None:
            raise UsageError(
                f"there is no run of {name!r} to score; run it first: abreast matrix run {file}"
            )
        source = replace(recorded_file(store, row), text=text, file=file, directory=directory)
        driver = MatrixDriver(source, request, report=not given["no_report"], offline=True)
        return resume_study(driver, request, store, row)


# --- export and comparison -----------------------------------------------------------------------


def export_rows(
    wanted: str, form: str, out: str | None, choice: StoreChoice, *, every: bool
) -> int:
    """Write one row for each cell of the study's file; return the exit code.

    With `every`, cells that are no longer in the file are written too.
    """
    if form == "parquet" and out is None:
        raise UsageError("Parquet is not for reading on a terminal; name a file with --out FILE")
    with choice.existing(reads=True) as store:
        row = study_run(store, wanted)
        current = CurrentCells(None if every else design_of(store, row))
        rows = filter(current.passes, rows_of(store, row))
        with target(out) as file:
            if form == "jsonl":
                count = sum(1 for one in rows if file.write(f"{json_line(one.plain())}\n".encode()))
            else:
                flat = flat_rows(rows)
                count = len(flat)
                file.write(_csv(flat) if form == "csv" else _parquet(flat))
    if current.said is not None:
        tell(f"{current.said}, and left out; --all has them too")
    if out is not None:
        tell(f"{count} rows of {row.id} are in {out}")
    return 0


def _csv(rows: list[dict[str, Any]]) -> bytes:
    with closing(io.StringIO(newline="")) as text:
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode("utf-8", "replace")


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    pa, parquet = pyarrow_modules()
    table = pa.Table.from_pylist(rows)
    with closing(io.BytesIO()) as file:
        parquet.write_table(table, file)
        return file.getvalue()


def compare_runs(first: str, second: str, choice: StoreChoice, *, as_json: bool) -> int:
    """Print what differs between two runs, cell by cell; return the exit code."""
    from abreast.jobs.matrix.report.changes import compare
    from abreast.jobs.matrix.report.markdown import changes_markdown

    with choice.existing(reads=True) as store:
        runs = [study_run(store, wanted) for wanted in (first, second)]
        rows = [
            list(filter(CurrentCells(design_of(store, row)).passes, rows_of(store, row)))
            for row in runs
        ]
    ids = [row.id for row in runs]
    with refusing("", ImportError):
        found = compare(*rows)
    if as_json:
        say_json({"first": ids[0], "second": ids[1], "changes": _as_json(found)})
    else:
        say(changes_markdown(found, *ids).rstrip("\n"))
    return 0


def _as_json(found: Any) -> Any:  # noqa: ANN401 - frozen records within each other
    if hasattr(found, "__dataclass_fields__"):
        return {name: _as_json(getattr(found, name)) for name in found.__dataclass_fields__}
    if isinstance(found, (list, tuple)) and not hasattr(found, "_fields"):
        return [_as_json(one) for one in found]
    if hasattr(found, "_asdict"):
        return {name: _as_json(value) for name, value in found._asdict().items()}
    return found
