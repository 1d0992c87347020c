"""The input of a subplan's work."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Assignment:
    """A part of a plan as its work sees it: its files, the instruction, the worktree to work in.

    def rename(part):
        for place in part.places:
            place.write_text(place.read_text().replace("currency", "unit"))
    """

    id: str
    """Made of its path, such as `money-d308e7d3e284`."""
    scope: str
    """A readable name, such as `src/core/`."""
    files: tuple[str, ...]
    """Paths relative to `path`, sorted."""
    instruction: str
    """The `prompt` of the plan; empty if there is none."""
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
