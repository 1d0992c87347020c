"""The input of a subplan's work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PartRequest:
    """A change that another subplan made in a file of this one, and that it is asked for."""

    by: str
    """The id of the subplan that asks."""
    file: str
    diff: str
    """The change as a unified diff."""


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
    instructions: str = ""
    """What this subplan alone is told, as the file of the plan says."""
    requests: tuple[PartRequest, ...] = ()
    """Changes in its files that other subplans ask for; only in a second round."""

    @property
    def places(self) -> tuple[Path, ...]:
        """The absolute paths of its files."""
        return tuple(self.path / file for file in self.files)

    @property
    def request_text(self) -> str:
        """The requests as text; empty if there are none."""
        return requests_as_text(self.requests)


def requests_as_text(requests: Sequence[PartRequest]) -> str:
    """Requests as text: who asks, for which file, and the diff of each."""
    return "\n".join(
        f"Part {each.by} asks for this change of {each.file}:\n{each.diff}" for each in requests
    )
