"""What a subplan is handed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Assignment:
    """A subplan as its work sees it: which files, what to do with them, and the worktree to do it in."""

    id: str
    scope: str
    files: tuple[str, ...]
    """Paths from `path`, sorted."""
    instruction: str
    path: Path
    """The top of its worktree: a copy of the directory that the plan divides.

    Nobody else writes there.
    """
    scratch: Path | None = None
    """A directory beside the worktree, for what isn't part of the result.

    It goes when the worktree goes.
    """

    @property
    def places(self) -> tuple[Path, ...]:
        """Where its files are."""
        return tuple(self.path / file for file in self.files)
