"""The file that a function is in, which must be the same on every machine that calls it."""

from __future__ import annotations

import hashlib
import importlib.util
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from abreast.core.errors import AbreastError
from abreast.core.frozen import record


class NodeDiffers(AbreastError, retryable=False):
    """A machine has other versions than the driver, of Python, of abreast or of your code."""


@record(frozen=True, slots=True)
class ModuleSource:
    """A module's name, and the digest of its file where the driver is."""

    module: str
    digest: str

    @classmethod
    def of(cls, fn: Callable[..., object]) -> ModuleSource | None:
        """The source of a function; None if it travels with its code, or has no file."""
        while hasattr(fn, "func"):  # a partial, or a step
            fn = fn.func
        module = getattr(fn, "__module__", None)
        if not isinstance(module, str) or module == "__main__":
            return None
        digest = _digest(getattr(sys.modules.get(module), "__file__", None))
        return None if digest is None else cls(module, digest)

    def check(self) -> None:
        """Raise `NodeDiffers` unless this machine has the same file."""
        try:
            spec = importlib.util.find_spec(self.module)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise NodeDiffers(
                f"the node {socket.gethostname()} has no module {self.module}, "
                "which the function is in: install it there, or share its directory"
            )
        if _digest(spec.origin) != self.digest:
            raise NodeDiffers(
                f"the node {socket.gethostname()} has another version of {self.module} "
                f"({spec.origin}): bring it up to date"
            )


def _digest(file: str | None) -> str | None:
    if file is None or not Path(file).is_file():
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
