"""`python -m abreast`, and the `abreast` script: the command line."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import NoReturn

# Nearly all that a command makes dies by its count, or lives as long as the process: looking for
# cycles as often as Python does by default takes a tenth of the start (16 ms of CPU), and more
# while a run goes on.
gc.set_threshold(50_000, 20, 50)

_ended: list[int] = []  # the exit code, once there is one


def _leave() -> None:
    """End here, when all that was asked for is done: to take Python apart, piece by piece, would take 10 ms more."""
    if _ended:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):  # Python has its own words for that
            return
        os._exit(_ended[0])


if not atexit._ncallbacks():  # noqa: SLF001 - else somebody was here before, as a measurement, and is to be the last
    atexit.register(_leave)  # which is called after all that are registered from now on

from abreast.cli.main import main as _main  # noqa: E402 - the start is the most of it


def main() -> NoReturn:
    """Be the `abreast` command, and exit."""
    try:
        _main()
    except SystemExit as error:
        if isinstance(error.code, int):
            _ended.append(error.code)
        raise


if __name__ == "__main__":
    main()
