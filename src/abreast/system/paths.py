"""The user's directories for caches and for state."""

import os
from contextlib import suppress
from pathlib import Path


def cache_directory() -> Path:
    """`ABREAST_CACHE`, or `abreast` in the user's cache directory."""
    return _directory("CACHE", ".cache")


def worktrees_directory(cache: Path | None = None) -> Path:
    """Where worktrees are made; it exists only as long as there are some."""
    return (cache or cache_directory()) / "worktrees"


def state_directory() -> Path:
    """`ABREAST_STATE`, or `abreast` in the user's state directory (`XDG_STATE_HOME`)."""
    return _directory("STATE", ".local/state")


def _directory(kind: str, usual: str) -> Path:
    if given := os.environ.get(f"ABREAST_{kind}"):
        return Path(given).expanduser()
    return Path(os.environ.get(f"XDG_{kind}_HOME") or Path.home() / usual) / "abreast"


def make_ignored_folder(folder: Path) -> None:
    """Make a directory that git ignores, by a .gitignore of its own; one that is there is kept.

    Raises OSError. The file appears whole or not at all: with an empty one git would see all else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        replace_file(ignore, "*\n")


def replace_file(path: Path, text: str) -> None:
    """Write a file at once: readers see the old text or the new one. Makes its directory."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def short_path(path: Path) -> str:
    """The path, relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
