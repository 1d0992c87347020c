"""Clears up the worktrees of runs whose drivers were killed."""

from contextlib import suppress
from pathlib import Path

from abreast.cli.errors import one_line, tell
from abreast.store.port import RunRow
from abreast.system.paths import worktrees_directory


def clear_left_trees(folder: Path | None = None, *, quiet: bool = False) -> None:
    """Remove the worktrees of a repository whose owners are dead; it blocks while git works.

    By default that of the current directory. What unfinished items had changed in them is kept, and
    told. Without such worktrees on this machine nothing is read or imported.
    """
    if not worktrees_directory().is_dir():
        return
    from abreast.worktrees.results.held_results import clear_dead_pools

    with suppress(OSError):  # the current directory may be gone
        clear_dead_pools(
            folder or Path.cwd(),
            (lambda _text: None) if quiet else lambda text: tell(one_line(text)),
        )


def folder_of_run(row: RunRow) -> Path | None:
    """The directory that a run is about; None if that is not recorded, or is gone."""
    for word, name in (("plan", "path"), ("trees", "path"), ("candidates", "cwd")):
        facts = row.manifest.get(word)
        found = facts.get(name) if isinstance(facts, dict) else None
        if isinstance(found, str) and Path(found).is_dir():
            return Path(found)
    return None
