"""`python -m abreast`, and the `abreast` script: the command line."""

from __future__ import annotations

import gc

# Nearly all that a command makes dies by its count, or lives as long as the process: looking for cycles as often as
# Python does by default takes a tenth of the start (16 ms of CPU), and more while a run goes on.
gc.set_threshold(50_000, 20, 50)

from abreast.cli.main import main  # noqa: E402 - the start is the most of it

if __name__ == "__main__":
    main()
