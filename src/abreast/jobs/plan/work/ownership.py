"""Ownership of paths: each leaf may write its own files, and new ones beside them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Self

from abreast.jobs.plan.spec import ROOT, Plan
from abreast.worktrees.merge.names import folders_above

SUBMODULE: Final = "a submodule"
"""The owner of all files of a repository within the repository."""
NO_PART: Final = "no part"
"""The owner of files that are in no part of the plan, or excluded."""


class Ownership:
    """The owners of paths, by the files of each leaf."""

    def __init__(
        self,
        leaves: Mapping[str, Iterable[str]],
        submodules: Iterable[str] = (),
        left_out: Iterable[str] = (),
    ) -> None:
        """Index which leaves have files in each directory, and beneath it.

        Submodules and the files that the plan leaves out belong to none of the leaves.
        """
        self._submodules = frozenset(submodules)
        self._left_out = frozenset(left_out)
        self._owners = {path: leaf for leaf, files in leaves.items() for path in files}
        self._in_folder: dict[str, set[str]] = defaultdict(set)
        self._beneath: dict[str, set[str]] = defaultdict(set)
        for path, leaf in self._owners.items():
            self._in_folder[path.rpartition("/")[0]].add(leaf)
            for folder in (*folders_above(path), ""):
                self._beneath[folder].add(leaf)

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """The ownership of a plan."""
        return cls({leaf.id: leaf.files for leaf in plan.leaves}, left_out=plan.left_out)

    def owners(self, path: str) -> tuple[str, ...]:
        """The leaves that may write a path, sorted; a file of the plan has one.

        A new file may be written by the leaves with files in its directory; if that is new too, or
        has no files itself, by those of the nearest directory above that has some.
        """
        if not self._submodules.isdisjoint((path, *folders_above(path))):
            return (SUBMODULE,)
        owner = self._owners.get(path)
        if owner is not None:
            return (owner,)
        if path in self._left_out:
            return (NO_PART,)
        for folder in (*folders_above(path), ""):
            found = self._in_folder.get(folder) or self._beneath.get(folder)
            if found:
                return tuple(sorted(found))
        return (ROOT,)  # a plan without files

    def allows(self, leaf: str, path: str) -> bool:
        """Whether a leaf may write a path."""
        return leaf in self.owners(path)
