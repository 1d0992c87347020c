"""Starts `abreast` commands for the web page, in processes that outlive it."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Final

from abreast.cli.errors import one_line

_START_TIMEOUT: Final = 2.0  # seconds to wait for a command that fails at its start
_MAX_OUTPUT_BYTES: Final = 4000  # of its stderr that are read


class Launcher:
    """Starts commands on one store, each in its own session: Ctrl-C ends the page, not the run."""

    def __init__(self, place: str) -> None:
        """Start commands on the store at `place`."""
        self._place = place

    def __call__(self, words: Sequence[str]) -> str | None:
        """Start a command; return its error message if it fails within two seconds, else None."""
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "abreast", words[0], "--store", self._place, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = child.wait(_START_TIMEOUT)
            except subprocess.TimeoutExpired:
                threading.Thread(
                    target=child.wait, daemon=True
                ).start()  # so that no zombie is left
                return None
            output.seek(0)
            lines = (
                output.read()[-_MAX_OUTPUT_BYTES:].decode("utf-8", "replace").strip().splitlines()
            )
        # Exit code 1 means that the run went on and items failed: the run's page shows these.
        return (
            (one_line(lines[-1]).removeprefix("abreast: ") if lines else f"exit code {code}")
            if code > 1
            else None
        )
