"""Who may write what: each leaf its files, and new ones beside them."""

from __future__ import annotations

from collections import defaultdict

from abreast.jobs.plan.nodes import Plan


class Ownership:
    """The owners of paths, by a plan."""

    def __init__(self, plan: Plan) -> None:
        """Remember which leaves have files in each directory, and beneath it."""
        self._plan = plan
        self._here: dict[str, set[str]] = defaultdict(set)
        self._beneath: dict[str, set[str]] = defaultdict(set)
        for leaf in plan.leaves:
            for path in leaf.files:
                folder = path.rpartition("/")[0]
                self._here[folder].add(leaf.id)
                while leaf.id not in self._beneath[folder] and folder:
                    self._beneath[folder].add(leaf.id)
                    folder = folder.rpartition("/")[0]
                self._beneath[folder].add(leaf.id)

    def owners(self, path: str) -> tuple[str, ...]:
        """The leaves that may write a path, sorted: one for a file of the plan.

        A new file may be written by those that have files in its directory; where that is new too, or has none itself,
        by those of the nearest directory that has.
        """
        owner = self._plan.owner(path)
        if owner is not None:
            return (owner,)
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            found = self._here.get(folder) or self._beneath.get(folder)
            if found:
                return tuple(sorted(found))
        return (self._plan.root.id,)  # a plan without files

    def allows(self, leaf: str, path: str) -> bool:
        """Whether a leaf may write a path."""
        return leaf in self.owners(path)
