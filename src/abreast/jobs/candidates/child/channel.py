"""The file through which the child reports to the parent: lines of JSON, each written at once.

What was written survives a crash of the child.
"""

import json
import os


class Channel:
    """Writes lines of JSON, each a kind and its content; only the process that opened it writes."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._owner = os.getpid()
        self._sent: set[str] = set()

    def send(self, kind: str, content: object) -> None:
        """Write a line. A forked process writes nothing."""
        if os.getpid() == self._owner:
            data = json.dumps([kind, content], separators=(",", ":")).encode("ascii") + b"\n"
            while data:
                data = data[os.write(self._file, data) :]

    def send_once(self, kind: str, content: str, most: int = 200) -> None:
        """Write a line unless it was written before, or `most` others were."""
        if content not in self._sent and len(self._sent) < most:
            self._sent.add(content)
            self.send(kind, content)
