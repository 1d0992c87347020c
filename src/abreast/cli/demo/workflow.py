"""The last part of `abreast demo`: a workflow, run by `abreast run` in another process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from abreast.cli.demo.crash import clean_environment
from abreast.cli.demo.reviews import MODEL
from abreast.cli.errors import DONE, FAILED, UsageError, one_line

NAME: Final = "examples/quickstart.yaml"
_PACKAGED_FILE: Final = Path(__file__).with_name("data") / "quickstart.yaml"
_PASSED_VARIABLES: Final = (
    "ABREAST_CACHE",
    "ABREAST_LOCAL_THREADS",
)  # where the weights are, and the number of threads


def quickstart() -> str:
    """The workflow's file: the repository's if the working directory has it, else the package's."""
    here = Path(NAME)
    try:
        return NAME if here.read_bytes() == _PACKAGED_FILE.read_bytes() else str(_PACKAGED_FILE)
    except OSError:
        return str(_PACKAGED_FILE)


def run_quickstart(store: str, *, prints: bool) -> dict[str, Any]:
    """Run the workflow; with `prints` it prints its results, otherwise they are returned.

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
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    stream = None if prints else subprocess.PIPE
    finished = subprocess.run(
        words if prints else [*words, "--json"],
        env=clean_environment() | passed,
        stdin=subprocess.DEVNULL,
        stdout=stream,
        stderr=stream,
        check=False,
    )
    if finished.returncode != DONE:
        why = "" if prints else f": {one_line(finished.stderr.decode('utf-8', 'replace'))}"
        raise UsageError(f"the demo's own workflow failed{why}", FAILED)
    if prints:
        return {}
    found: dict[str, Any] = json.loads(finished.stdout)
    return {"run": found["run"], "status": found["status"], "outputs": found["outputs"]}
