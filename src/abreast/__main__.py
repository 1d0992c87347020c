"""The entry point of the command line: `python -m abreast`, and the `abreast` script."""

import gc

# Nearly all objects of a command are freed by their reference count, or live as long as the
# process. The garbage collector at Python's default thresholds takes a tenth of the start (16 ms of
# CPU), and more while a run goes on.
gc.set_threshold(50_000, 20, 50)

from abreast.cli.main import main  # noqa: E402 - imports take most of the start

__all__ = ["main"]

if __name__ == "__main__":
    main()
