"""Collects where and with what a study ran: versions, commit, table of prices and its date."""

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

_CLIENT_PACKAGES: Final = ("aiohttp", "xllamacpp", "litellm")  # packages that make the calls
_PRICED_KINDS: Final = (
    "openai",
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
        "packages": _packages(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "commit": commit,
        "dirty": any(not line.startswith("#") for line in status_lines) if status_lines else None,
        "prices": _price_source(lanes),
        "lane_width": width,
        "argv": list(sys.argv[1:]),
    }


def _packages() -> str:
    return ", ".join(
        f"{name} {version}" for name in _CLIENT_PACKAGES if (version := _version(name)) is not None
    )


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
