"""The input of a subplan's work."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Assignment:
    """A subplan as its work sees it: its files, the instruction, and the worktree to work in."""

    id: str
    scope: str
    files: tuple[str, ...]
    """Paths relative to `path`, sorted."""
    instruction: str
    path: Path
    """The top of its worktree: a copy of the directory that the plan divides.

    No other subplan writes there.
    """
    scratch: Path | None = None
    """A directory beside the worktree, for files that are not part of the result.

    It is removed with the worktree.
    """

    @property
    def places(self) -> tuple[Path, ...]:
        """The absolute paths of its files."""
        return tuple(self.path / file for file in self.files)
