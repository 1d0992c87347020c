"""Atomic files: a file appears complete, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from abreast.store.os_errors import as_store_error


@contextmanager
def write_atomically(target: Path) -> Iterator[Path]:
    """A temporary file that is renamed to `target` at the end, and removed if anything fails.

    Its mode is 0600; errors are raised as a `StoreError` about `target`.
    """
    part = Path(f"{target}.{os.getpid()}.part")
    with as_store_error(str(target)):
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        try:
            yield part
            part.replace(target)
        except BaseException:
            part.unlink()
            raise
