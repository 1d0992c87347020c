"""Writes the report of a study to a file, and collects where and with what the study ran."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from abreast.cli.commands.show import describe_cut_off, totals_of
from abreast.cli.stores import FOLDER, StoreChoice
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.version import VERSION
from abreast.jobs.matrix.design.cells import CurrentCells, Design
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.models.lanes import LaneSettings
from abreast.models.price import table_date
from abreast.store.codec import codec
from abreast.store.port import JsonValue, RunRow, Store, each_event
from abreast.system.file_names import file_name

STUDY_GIVEN: Final = "study-given"
"""The event with the file and options of a later driver of a study."""
_SELECTION_KEYS: Final = ("models", "strategies", "inputs", "repeats")


def report_path(row: RunRow, choice: StoreChoice) -> Path:
    """The default file of a report: in `reports`, beside the store."""
    folder = Path(FOLDER) if choice.path is None else choice.path.parent
    return folder / "reports" / f"{file_name(row.id)}.html"


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


def write_page(store: Store, row: RunRow, path: Path, *, every: bool = False) -> int:
    """Write a report, as Markdown if the path ends with .md, else as HTML; return its row count.

    With `every`, it includes cells that are no longer in the study's file. Raises `NeedsReport` if
    packages are missing.
    """
    from abreast.jobs.matrix.report.report import markdown, write_html

    current = CurrentCells(None if every else design_of(store, row))
    rows, facts = (
        [one for one in rows_of(store, row) if current.passes(one)],
        facts_of(row, manifest_of(store, row)),
    )
    if current.said is not None:
        facts["left out"] = current.said
    if cut := describe_cut_off(totals_of(store, row)):
        facts["cut off"] = cut
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        path.write_text(markdown(rows, facts), "utf-8")
    else:
        write_html(rows, facts, path)
    return len(rows)


def short_path(path: Path) -> str:
    """The path, relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def facts_of(row: RunRow, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a report about where its rows come from; unknown ones are left out."""
    study, provenance = dict(manifest.get(row.kind) or {}), dict(manifest.get("provenance") or {})
    facts = {
        "study": row.name,
        "run": row.id,
        "created": f"{datetime.fromtimestamp(row.created, UTC):%Y-%m-%d %H:%M} UTC",
        "state": row.state,
        "file": study.get("file"),
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


_CLIENT_PACKAGES: Final = ("aiohttp", "xllamacpp")  # packages that make the calls
_PRICED_KINDS: Final = (
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
)  # kinds of lanes whose prices may come from the table


def provenance(
    directory: Path, width: int | str, lanes: Sequence[LaneSettings]
) -> dict[str, JsonValue]:
    """The provenance that a run stores; `lanes` are those of its models."""
    status = subprocess.run(
        [
            shutil.which("git") or "git",
            "-C",
            str(directory),
            "status",
            "--porcelain=v2",
            "--branch",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    status_lines = status.stdout.splitlines() if status.returncode == 0 else []
    commit = next(
        (line.rpartition(" ")[2] for line in status_lines if line.startswith("# branch.oid ")), None
    )
    return {
        "abreast": VERSION,
        "packages": ", ".join(
            f"{name} {version}"
            for name in _CLIENT_PACKAGES
            if (version := _version(name)) is not None
        ),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "commit": commit,
        "dirty": any(not line.startswith("#") for line in status_lines) if status_lines else None,
        "prices": _price_source(lanes),
        "lane_width": width,
        "argv": list(sys.argv[1:]),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _price_source(lanes: Sequence[LaneSettings]) -> str:
    """Which table prices were taken from, and its date.

    It is read only if some lane has no price of its own.
    """
    if not any(lane.kind in _PRICED_KINDS and lane.price is None for lane in lanes):
        return "those that the lanes have themselves"
    version = _version("genai-prices")
    if version is None:
        return "no table is installed"
    newest = table_date(datetime.fromtimestamp(SYSTEM_CLOCK.wall(), UTC).date())
    return f"genai-prices {version}" + (f", whose newest price is of {newest}" if newest else "")
