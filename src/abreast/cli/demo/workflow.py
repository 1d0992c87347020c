"""The last part of `abreast demo`: a workflow, run by `abreast run` in a process of its own, as anybody would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from abreast.cli.demo.crash import surroundings
from abreast.cli.demo.reviews import MODEL
from abreast.cli.errors import DONE, FAILED, UsageError, one_line

NAME: Final = "examples/quickstart.yaml"
_OWN: Final = Path(__file__).with_name("data") / "quickstart.yaml"
_KEPT: Final = (
    "ABREAST_CACHE",
    "ABREAST_LOCAL_THREADS",
)  # where the weights are, and how they are used


def quickstart() -> str:
    """The workflow's file: the one of the repository, where this is it, or else the same one of the package."""
    here = Path(NAME)
    try:
        return NAME if here.read_bytes() == _OWN.read_bytes() else str(_OWN)
    except OSError:
        return str(_OWN)


def run_quickstart(store: str, *, aloud: bool) -> dict[str, Any]:
    """Run it; `aloud`, it says its own results, otherwise they are returned.

    Raises `UsageError` if it fails.
    """
    words = [
        sys.executable,
        "-m",
        "abreast",
        "run",
        quickstart(),
        "--store",
        store,
        "--model",
        MODEL,
    ]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    told = None if aloud else subprocess.PIPE
    ended = subprocess.run(
        words if aloud else [*words, "--json"],
        env=surroundings() | kept,
        stdin=subprocess.DEVNULL,
        stdout=told,
        stderr=told,
        check=False,
    )
    if ended.returncode != DONE:
        why = "" if aloud else f": {one_line(ended.stderr.decode('utf-8', 'replace'))}"
        raise UsageError(f"the demo's own workflow failed{why}", FAILED)
    if aloud:
        return {}
    found: dict[str, Any] = json.loads(ended.stdout)
    return {"run": found["run"], "status": found["status"], "outputs": found["outputs"]}
