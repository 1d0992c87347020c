"""The report of a study as a file: where it is, and what it says of where its rows come from."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from abreast.cli.commands.show import said_of_cut_off, totals_of
from abreast.cli.stores import FOLDER, StoreChoice
from abreast.core.file_names import file_name
from abreast.jobs.matrix.design.cells import CurrentCells, Design
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.store.codec import codec
from abreast.store.port import RunRow, Store, each_event

STUDY_GIVEN: Final = "study-given"
"""What a later driver of a study was given: the file as it was then, and what was asked of it."""
_CHOSEN: Final = ("models", "strategies", "inputs", "repeats")


def report_path(row: RunRow, choice: StoreChoice) -> Path:
    """Where a report is written unless somebody says otherwise: beside the store."""
    folder = Path(FOLDER) if choice.path is None else choice.path.parent
    return folder / "reports" / f"{file_name(row.id)}.html"


def manifest_of(store: Store, row: RunRow) -> dict[str, Any]:
    """What a run was started with, as its newest driver had it."""
    found: dict[str, Any] = dict(row.manifest)
    for event in each_event(store, row.id, {STUDY_GIVEN}):
        later: Any = codec.decode(event.body or "{}")
        found |= later
    return found


def design_of(store: Store, row: RunRow) -> Design | None:
    """What the study's file held when it was run last; None of a run that kept nothing of it."""
    return Design.read(manifest_of(store, row).get("design") or {})


def write_page(store: Store, row: RunRow, path: Path, *, every: bool = False) -> int:
    """Write a report, as HTML or by its ending as Markdown; how many rows it has.

    `NeedsReport` if it can't be.

    With `every`, also of cells that are no longer in the study's file.
    """
    from abreast.jobs.matrix.report.report import markdown, write_html

    current = CurrentCells(None if every else design_of(store, row))
    rows, facts = (
        [one for one in rows_of(store, row) if current.passes(one)],
        facts_of(row, manifest_of(store, row)),
    )
    if current.said is not None:
        facts["left out"] = current.said
    if cut := said_of_cut_off(totals_of(store, row)):
        facts["cut off"] = cut
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        path.write_text(markdown(rows, facts), "utf-8")
    else:
        write_html(rows, facts, path)
    return len(rows)


def shown(path: Path) -> str:
    """A path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def facts_of(row: RunRow, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a report says of where its rows come from; what is not known is left out."""
    study, kept = dict(manifest.get(row.kind) or {}), dict(manifest.get("provenance") or {})
    facts = {
        "study": row.name,
        "run": row.id,
        "created": _moment(row.created),
        "state": row.state,
        "file": study.get("file"),
        "only": _chosen(study),
        "budget": study.get("budget"),
        "commit": _commit(kept.get("commit") or manifest.get("commit"), kept),
        "seed": row.seed,
        "lane width": kept.get("lane_width") or study.get("lane_width"),
        "abreast": kept.get("abreast"),
        "Python": kept.get("python"),
        "packages": kept.get("packages"),
        "platform": kept.get("platform"),
        "cores": kept.get("cores"),
        "prices": kept.get("prices"),
    }
    if row.state not in ("done", "failed"):
        facts["warnings"] = [f"The run is {row.state}: cells may be missing."]
    return {name: value for name, value in facts.items() if value is not None}


def _moment(when: float) -> str:
    return f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M} UTC"


def _chosen(study: Mapping[str, Any]) -> str | None:
    """The part of the study that was asked for, if it wasn't all of it."""
    given = {word: study.get(word) for word in _CHOSEN}
    said = [
        f"{word} {value if isinstance(value, int) else ', '.join(map(str, value))}"
        for word, value in given.items()
        if value
    ]
    return "; ".join(said) or None


def _commit(commit: object, kept: Mapping[str, Any]) -> str | None:
    return (
        f"{commit}{', with changes that are not committed' if kept.get('dirty') else ''}"
        if commit
        else None
    )
