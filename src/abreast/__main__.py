"""The entry point of the command line: `python -m abreast`, and the `abreast` script."""

import gc
import signal
import sys

# Nearly all objects of a command are freed by their reference count, or live as long as the
# process. The garbage collector at Python's default thresholds takes a tenth of the start (16 ms of
# CPU), and more while a run goes on.
gc.set_threshold(50_000, 20, 50)

# Imports take most of the start, and nothing has begun: Ctrl-C ends it without a traceback.
_interrupt = signal.getsignal(signal.SIGINT)
if _interrupt is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    from abreast.cli.main import main
except (ImportError, MemoryError, OSError) as error:
    sys.exit(f"abreast: it can't start: {type(error).__name__}: {error}")
if _interrupt is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupt)

__all__ = ["main"]

if __name__ == "__main__":
    main()
