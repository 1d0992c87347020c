"""Write what was measured as JSON: the numbers, and the kind of machine.

No host names, no paths.
"""

import json
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.measure import SCRATCH
from benchmarks.rounds import Result
from benchmarks.targets import Verdict

HOME = Path(__file__).resolve().parent / "results"
FSYNCS = 50


def record(
    played: Mapping[str, Sequence[Result]], judged: Sequence[Verdict], *, quick: bool
) -> dict[str, object]:
    """Return the document of one run of the harness."""
    everything = [result for results in played.values() for result in results]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": _machine(),
        "versions": {
            result.entry.label: result.version
            for result in everything
            if result.samples and result.version
        },
        "works": {
            name: [_result(result) for result in results] for name, results in played.items()
        },
        "targets": [asdict(verdict) for verdict in judged],
    }


def write(document: Mapping[str, object], names: Sequence[str]) -> Path:
    """Write the document under its date and the works it holds; returns where."""
    HOME.mkdir(exist_ok=True)
    date = str(document["date"])[:16].replace(":", "")
    path = HOME / f"{date}-{'-'.join(names)}{'-quick' if document['quick'] else ''}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def _result(result: Result) -> dict[str, object]:
    entry = {name: value for name, value in asdict(result.entry).items() if value}
    if not result.samples:
        return {**entry, "missing": result.missing}
    medians = {"cpu_us_per_item": result.cpu * 1e6, "wall": result.wall, "around": result.around}
    return {**entry, **medians, "samples": [asdict(sample) for sample in result.samples]}


def _machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "fsync_us": round(_fsync_seconds() * 1e6),
    }


def _fsync_seconds() -> float:
    """Return what it costs here to append 400 bytes durably: the disk decides the walls of C."""
    SCRATCH.mkdir(exist_ok=True)
    took: list[float] = []
    with tempfile.TemporaryFile(dir=SCRATCH) as file:
        for _ in range(FSYNCS):
            began = time.perf_counter()
            file.write(bytes(400))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took)
