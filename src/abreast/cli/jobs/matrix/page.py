"""Writes the report of a study to a file, and says where reports are."""

from pathlib import Path

from abreast.cli.stores import FOLDER, StoreChoice
from abreast.jobs.matrix.recorded_study import report_content
from abreast.jobs.matrix.recorded_study import write_report as write_rows
from abreast.store.port import RunRow, Store
from abreast.system.file_names import file_name
from abreast.system.paths import make_ignored_folder


def report_path(row: RunRow, choice: StoreChoice) -> Path:
    """The default file of a report: in `reports`, beside the store."""
    folder = Path(FOLDER) if choice.path is None else choice.path.parent
    return folder / "reports" / f"{file_name(row.id)}.html"


def write_page(store: Store, row: RunRow, path: Path, *, every: bool = False) -> int:
    """Write a report, as Markdown if the path ends with .md, else as HTML; return its row count.

    With `every`, it includes cells that are no longer in the study's file. Raises `NeedsReport` if
    packages are missing.
    """
    rows, facts = report_content(store, row, every=every)
    if path.parent.parent == Path(FOLDER):  # if the store is a file, it has made its folder
        make_ignored_folder(Path(FOLDER))
    write_rows(rows, facts, path)
    return len(rows)
