"""Choices between the sides of conflicts, kept beside the tree until the plan is applied.

A choice is for one file, and for others that a rename of it touches. It holds only as long as all
sides are what they were when it was made.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.written.parts import EDIT
from abreast.system.file_names import file_name
from abreast.worktrees.merge.apply import HOME
from abreast.worktrees.merge.merge import SOURCE, Change
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.snapshots import REGULAR, Snapshots, TreeDifference, TreeEntry

_FOLDER: Final = "resolved"

PlainEntry: TypeAlias = list[str] | None
"""A mode and a blob; None for no file."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What was chosen for a file."""

    file: str
    take: str
    """A part, `source`, or `edit` for a text of one's own."""
    entries: Mapping[str, TreeEntry | None]
    """What becomes of the file, and of others that a rename of it touches; None is no file."""
    sides: Mapping[str, Any]
    """What each side had when it was chosen."""

    def plain(self) -> dict[str, Any]:
        """The choice as JSON values."""
        entries = {path: _plain(entry) for path, entry in self.entries.items()}
        return {"take": self.take, "entries": entries, "sides": dict(self.sides)}

    @classmethod
    def read(cls, file: str, facts: Mapping[str, Any]) -> Self:
        """The choice of JSON values."""
        entries = {
            path: None if entry is None else TreeEntry(*entry)
            for path, entry in facts["entries"].items()
        }
        return cls(file, facts["take"], entries, facts["sides"])


@dataclass(frozen=True, slots=True)
class Sides:
    """All sides of a merge: the source tree, and what each part changed."""

    source: Mapping[str, TreeEntry]
    differences: Mapping[str, TreeDifference]

    @classmethod
    def of(cls, snapshots: Snapshots, source: str, changes: Sequence[Change]) -> Self:
        """The sides of these changes."""
        found = {each.leaf: snapshots.changes(each.base, each.result) for each in changes}
        return cls(snapshots.entries(source), found)

    def parts(self, file: str) -> list[str]:
        """The parts that changed a file."""
        return [leaf for leaf, found in self.differences.items() if found.at(file) is not None]

    def choose(self, file: str, take: str, edited: str | None = None) -> Resolution:
        """A choice for a file; `edited` is the blob of a text of one's own.

        Raises `PlanInvalid` if no part changed the file, or not the one that is chosen.
        """
        parts = self.parts(file)
        if not parts:
            raise PlanInvalid(f"no part of the plan changed {printable(file)}")
        if take not in (*parts, SOURCE, EDIT):
            raise PlanInvalid(
                f"{take!r} did not change {printable(file)}; "
                f"choose {', '.join(parts)}, {SOURCE} or {EDIT}"
            )
        paths = self._linked(file)
        entries = {path: self._entry(path, take) for path in sorted(paths)}
        if edited is not None:
            entries[file] = TreeEntry(self._mode(file), edited)
        return Resolution(file, take, entries, self._facts(paths))

    def holds(self, choice: Resolution) -> bool:
        """Whether all sides of a choice are still what they were.

        The tree may also have what was chosen, from an apply before.
        """
        applied = {
            path: {**sides, SOURCE: _plain(choice.entries.get(path))}
            for path, sides in choice.sides.items()
        }
        return self._facts(self._linked(choice.file)) in (choice.sides, applied)

    def _linked(self, file: str) -> set[str]:
        """The file, and all files that renames connect with it."""
        paths, before = {file}, 0
        while len(paths) != before:
            before = len(paths)
            for difference in self.differences.values():
                for step in difference.steps():
                    touched = {each.path for each in step.changed}
                    if touched & paths:
                        paths |= touched
        return paths

    def _entry(self, path: str, take: str) -> TreeEntry | None:
        chosen = self.parts(path) if take == EDIT else [take]
        for leaf in chosen:
            change = self.differences[leaf].at(path) if leaf in self.differences else None
            if change is not None:
                return change.after
        return self.source.get(path)

    def _mode(self, file: str) -> str:
        sides = [self.source.get(file)]
        sides += [self._entry(file, leaf) for leaf in self.parts(file)]
        return next((each.mode for each in sides if each is not None and not each.link), REGULAR)

    def _facts(self, paths: set[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in sorted(paths):
            sides: dict[str, Any] = {SOURCE: _plain(self.source.get(path))}
            for leaf, difference in self.differences.items():
                change = difference.at(path)
                if change is not None:
                    sides[leaf] = [_plain(change.before), _plain(change.after)]
            found[path] = sides
        return found


@dataclass(frozen=True, slots=True)
class Resolutions:
    """The choices for one run, in a file of the directory that its plan divides."""

    root: Path
    run: str

    @property
    def _place(self) -> Path:
        return self.root / HOME / _FOLDER / file_name(f"{self.run}.json")

    def read(self) -> dict[str, Resolution]:
        """All choices, by file."""
        try:
            facts = json.loads(self._place.read_text("utf-8", "surrogateescape"))
        except FileNotFoundError:
            return {}
        return {file: Resolution.read(file, one) for file, one in facts.items()}

    def keep(self, choice: Resolution) -> None:
        """Add a choice, or replace that of the same file."""
        facts = {file: one.plain() for file, one in self.read().items()}
        facts[choice.file] = choice.plain()
        self._place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=self._place.parent, delete=False, encoding="utf-8"
        ) as written:
            written.write(json.dumps(facts, indent=1))
            written.flush()
            os.fsync(written.fileno())
        Path(written.name).replace(self._place)


def _plain(entry: TreeEntry | None) -> PlainEntry:
    return None if entry is None else [entry.mode, entry.blob]
