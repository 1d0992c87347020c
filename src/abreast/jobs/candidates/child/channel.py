"""The way back to the judge: lines in a file, each written at once, so that what was said survives the sayer."""

from __future__ import annotations

import json
import os


class Channel:
    """Lines of JSON, each a kind and what it says; only the process that opened it writes."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._owner = os.getpid()
        self._said: set[str] = set()

    def say(self, kind: str, content: object) -> None:
        """Write a line. A process that was forked off says nothing."""
        if os.getpid() == self._owner:
            data = json.dumps([kind, content], separators=(",", ":")).encode("ascii") + b"\n"
            while data:
                data = data[os.write(self._file, data) :]

    def say_once(self, kind: str, content: str, most: int = 200) -> None:
        """Write it unless it was said before, or much else was."""
        if content not in self._said and len(self._said) < most:
            self._said.add(content)
            self.say(kind, content)
