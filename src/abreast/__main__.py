"""The entry point of the command line: `python -m abreast`, and the `abreast` script."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import NoReturn

# Nearly all objects of a command are freed by their reference count, or live as long as the
# process. The garbage collector at Python's default thresholds takes a tenth of the start (16 ms of
# CPU), and more while a run goes on.
gc.set_threshold(50_000, 20, 50)

_exit_codes: list[int] = []  # the exit code, once there is one


def _exit_now() -> None:
    """Exit without the interpreter's own shutdown, which would take 10 ms more."""
    if _exit_codes:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):  # Python's own shutdown reports that
            return
        os._exit(_exit_codes[0])


# Callbacks run in reverse order of registration: the first one registered here is the last to run.
# Where one is registered already (a measurement such as coverage), that one must run last instead.
if not atexit._ncallbacks():  # noqa: SLF001 - there is no public way to ask
    atexit.register(_exit_now)

from abreast.cli.main import main as _main  # noqa: E402 - imports take most of the start


def main() -> NoReturn:
    """Run the `abreast` command, and exit."""
    try:
        _main()
    except SystemExit as error:
        if isinstance(error.code, int):
            _exit_codes.append(error.code)
        raise


if __name__ == "__main__":
    main()
