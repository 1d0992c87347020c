"""Starting `abreast` beside the page: a run that goes on there outlives the page, as one started in a shell would."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Final

from abreast.cli.errors import one_line

_PATIENCE: Final = 2.0  # seconds in which a command that can't go on says so
_LONGEST: Final = 4000  # bytes of what it said that are looked at


class Launcher:
    """Starts commands on one store.

    Each in a session of its own, so that Ctrl-C ends the page and not the run.
    """

    def __init__(self, place: str) -> None:
        """On the store at `place`."""
        self._place = place

    def __call__(self, words: Sequence[str]) -> str | None:
        """Start it; a sentence if it has ended within a moment because it could not."""
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                [sys.executable, "-m", "abreast", words[0], "--store", self._place, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            try:
                code = child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                threading.Thread(
                    target=child.wait, daemon=True
                ).start()  # so that no zombie is left
                return None
            said.seek(0)
            lines = said.read()[-_LONGEST:].decode("utf-8", "replace").strip().splitlines()
        # 1 is a run that went on and in which something failed: its page shows that better than a
        # sentence.
        return (
            (one_line(lines[-1]).removeprefix("abreast: ") if lines else f"exit code {code}")
            if code > 1
            else None
        )
