"""The user's directories for caches and for state."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """`ABREAST_CACHE`, or `abreast` in the user's cache directory."""
    if given := os.environ.get("ABREAST_CACHE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "abreast"


def state_directory() -> Path:
    """`ABREAST_STATE`, or `abreast` in the user's state directory (`XDG_STATE_HOME`)."""
    if given := os.environ.get("ABREAST_STATE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "abreast"
