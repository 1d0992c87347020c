"""What a run has recorded of its study: file and options, design, and the facts of a report."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from abreast.jobs.files.manifests import without_unsaid
from abreast.jobs.matrix.design.cells import CurrentCells, Design
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.jobs.matrix.rows import Row
from abreast.run.call_totals import CALL_KINDS, call_totals, describe_cut_off
from abreast.store.codec import codec
from abreast.store.port import JsonValue, RunRow, Store, each_event

KIND: Final = "matrix"
"""The kind of a study's runs, and the key of its facts in their manifests."""
STUDY_GIVEN: Final = "study-given"
"""The event with the file and options of a later driver of a study."""
_SELECTION_KEYS: Final = ("models", "strategies", "inputs", "repeats")


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A study's file as it was read, and the options given with it, as a manifest stores them."""

    file: str
    """Empty for a study that a Python program described."""
    text: str
    directory: str
    lane_width: int | str | None = None
    """For all lanes, or for some: `a=1,b=8`."""
    budget: str | None = None
    models: list[str] = field(default_factory=list)
    strategies: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    repeats: int | None = None
    adaptive: bool = False
    executor: str | None = None
    """Where the commands of workflows run."""
    calls: dict[str, Any] = field(default_factory=dict)
    """How calls are made, if not as the lanes say: in batches, or in a tier."""
    warm: bool = False
    """Whether one prompt goes ahead, if the file doesn't say so."""

    def manifest(self) -> dict[str, JsonValue]:
        """The file and its options as a run's manifest stores them."""
        return {KIND: without_unsaid(asdict(self), ("executor", "calls", "warm"))}

    @classmethod
    def of_run(cls, store: Store, row: RunRow) -> Self:
        """The file of a recorded run, as its newest driver had it.

        Raises ValueError if another version of abreast recorded something else.
        """
        facts: Any = manifest_of(store, row).get(KIND)
        try:
            return cls(**facts)
        except TypeError:
            raise ValueError(
                f"{row.id} was made by another version of abreast, "
                "and this one doesn't know all of it"
            ) from None


def newest_study(store: Store, name: str) -> RunRow | None:
    """The newest run of the study of that name; None if there is none."""
    row = store.newest(name)
    return row if row is not None and row.kind == KIND else None


def manifest_of(store: Store, row: RunRow) -> dict[str, Any]:
    """The manifest of a run, as its newest driver had it."""
    found: dict[str, Any] = dict(row.manifest)
    for event in each_event(store, row.id, {STUDY_GIVEN}):
        later: Any = codec.decode(event.body or "{}")
        found |= later
    return found


def design_of(store: Store, row: RunRow) -> Design | None:
    """The design of the study's file at its newest run; None if the run did not record it."""
    return Design.read(manifest_of(store, row).get("design") or {})


def report_content(
    store: Store,
    row: RunRow,
    *,
    every: bool = False,
    root: str | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> tuple[list[Row], dict[str, Any]]:
    """The rows of a report, and its facts about where they come from.

    With `every`, it includes cells that are no longer in the study's file. A study within another
    run has its `root` there, and its `manifest` is not in the store.
    """
    known = manifest_of(store, row) if manifest is None else manifest
    current = CurrentCells(None if every else Design.read(known.get("design") or {}))
    rows = [one for one in rows_of(store, row, root) if current.passes(one)]
    facts = facts_of(row, known)
    if current.said is not None:
        facts["left out"] = current.said
    totals = call_totals(
        each_event(store, row.id, CALL_KINDS),
        driven=row.state == "running" and store.driven(row.id),
    )
    if cut := describe_cut_off(totals):
        facts["cut off"] = cut
    return rows, facts


def write_report(rows: list[Row], facts: Mapping[str, Any], path: Path) -> None:
    """Write a report, as Markdown if the path ends with .md, else as HTML.

    Raises `NeedsReport` if packages are missing.
    """
    from abreast.jobs.matrix.report.report import markdown, write_html

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        path.write_text(markdown(rows, facts), "utf-8")
    else:
        write_html(rows, facts, path)


def facts_of(row: RunRow, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a report about where its rows come from; unknown ones are left out."""
    study, provenance = dict(manifest.get(KIND) or {}), dict(manifest.get("provenance") or {})
    facts = {
        "study": row.name,
        "run": row.id,
        "created": f"{datetime.fromtimestamp(row.created, UTC):%Y-%m-%d %H:%M} UTC",
        "state": row.state,
        "file": study.get("file") or None,
        "only": _selection_text(study),
        "budget": study.get("budget"),
        "commit": _commit_text(provenance.get("commit") or manifest.get("commit"), provenance),
        "seed": row.seed,
        "lane width": provenance.get("lane_width") or study.get("lane_width"),
        "abreast": provenance.get("abreast"),
        "Python": provenance.get("python"),
        "packages": provenance.get("packages"),
        "platform": provenance.get("platform"),
        "cores": provenance.get("cores"),
        "prices": provenance.get("prices"),
    }
    if row.state not in ("done", "failed"):
        facts["warnings"] = [f"The run is {row.state}: cells may be missing."]
    return {name: value for name, value in facts.items() if value is not None}


def _selection_text(study: Mapping[str, Any]) -> str | None:
    """The selected part of the study; None if all of it was selected."""
    given = {word: study.get(word) for word in _SELECTION_KEYS}
    parts = [
        f"{word} {value if isinstance(value, int) else ', '.join(map(str, value))}"
        for word, value in given.items()
        if value
    ]
    return "; ".join(parts) or None


def _commit_text(commit: object, provenance: Mapping[str, Any]) -> str | None:
    return (
        f"{commit}{', with changes that are not committed' if provenance.get('dirty') else ''}"
        if commit
        else None
    )
