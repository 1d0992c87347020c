"""What the manifest of a run says of the worktrees that its items had."""

from typing import Any, Final

from abreast.store.port import RunRow

TREES: Final = "trees"
"""The key of a manifest: `path`, the directory whose copies the items work in, and the `task`."""


def merge_folder(row: RunRow) -> str | None:
    """The directory that the items of a run had copies of; None if they had none, or of a plan."""
    facts: Any = row.manifest.get(TREES)
    found = facts.get("path") if isinstance(facts, dict) else None
    return found if isinstance(found, str) else None
