"""Entry point of `python -m abreast.testing.storm`."""

import sys

from abreast.testing.storm.cli import main

if __name__ == "__main__":
    sys.exit(main())
