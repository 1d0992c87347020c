"""`python -m abreast`: the command line."""

from __future__ import annotations

from abreast.cli.main import main

if __name__ == "__main__":
    main()
