"""Where and with what a study ran: versions, the commit, the table of prices and its date."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.version import VERSION
from abreast.models.lanes import LaneSettings
from abreast.models.price import table_date
from abreast.store.port import JsonValue

_ASKING: Final = ("aiohttp", "xllamacpp", "litellm")  # what models are asked through
_TABLED: Final = (
    "openai",
    "anthropic",
    "gemini",
)  # kinds of lanes that may have prices of the table


def provenance(
    directory: Path, width: int | str, lanes: Sequence[LaneSettings]
) -> dict[str, JsonValue]:
    """What a run keeps of where it was made; `lanes` are those of its models."""
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
    told = status.stdout.splitlines() if status.returncode == 0 else []
    commit = next(
        (line.rpartition(" ")[2] for line in told if line.startswith("# branch.oid ")), None
    )
    return {
        "abreast": VERSION,
        "packages": _packages(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "commit": commit,
        "dirty": any(not line.startswith("#") for line in told) if told else None,
        "prices": _prices(lanes),
        "lane_width": width,
        "argv": list(sys.argv[1:]),
    }


def _packages() -> str:
    return ", ".join(
        f"{name} {version}" for name in _ASKING if (version := _version(name)) is not None
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _prices(lanes: Sequence[LaneSettings]) -> str:
    """Which table prices were taken from, and of when it is.

    It is read only if some lane has no price of its own.
    """
    if not any(lane.kind in _TABLED and lane.price is None for lane in lanes):
        return "those that the lanes have themselves"
    version = _version("genai-prices")
    if version is None:
        return "no table is installed"
    newest = table_date(datetime.fromtimestamp(SYSTEM_CLOCK.wall(), UTC).date())
    return f"genai-prices {version}" + (f", whose newest price is of {newest}" if newest else "")
