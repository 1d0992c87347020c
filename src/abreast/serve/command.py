"""A command that a server runs for, with the variables by which it finds the server."""

import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

_SIGNAL_EXIT = 128  # a shell's exit code for a signal is this and its number


class ServedCommand:
    """Starts a command and tells when it has ended; it keeps the terminal to itself."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; OSError if that can't be."""
        self._process = subprocess.Popen(list(words), env=dict(environment))

    def when_over(self, call: Callable[[], None]) -> None:
        """Call a function, on a thread of its own, when the command has ended."""

        def wait() -> None:
            self._process.wait()
            call()

        threading.Thread(target=wait, name="abreast-command", daemon=True).start()

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def end(self) -> int:
        """End it, if it is still there; returns its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        code = self._process.wait()
        return code if code >= 0 else _SIGNAL_EXIT - code
