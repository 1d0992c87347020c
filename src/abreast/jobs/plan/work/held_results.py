"""What subplans did, held by references until it is applied: done or not, no kill and no clean-up loses it.

    refs/abreast/RUN/LEAF/done-TREE       a result
    refs/abreast/RUN/LEAF/failed-TREE     what was in the worktree when its work failed, timed out or was stopped
    refs/abreast/RUN/LEAF/cut-off-TREE    what was in the worktree when the driver was killed

They are in the object database of `snapshots.py`, not in the repository: no tool of its owner sees
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, unquote

from abreast.core.file_names import MAX_BYTES, file_name
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.pool import unfinished_in
from abreast.worktrees.slot import Slot

_HEAD: Final = "refs/abreast/"

How: TypeAlias = Literal["done", "failed", "cut-off"]


@dataclass(frozen=True, slots=True)
class Held:
    """A tree that a subplan has made, whatever became of it."""

    run: str
    leaf: str
    how: str
    tree: str
    home: Path | None = None
    """The object database, where that isn't known otherwise."""


class HeldResults:
    """The references of one object database."""

    def __init__(self, snapshots: Snapshots) -> None:
        """Of this one."""
        self._snapshots = snapshots

    def hold(self, run: str, leaf: str, how: How, tree: str) -> None:
        """Hold a tree; harmless if it is held already."""
        self._snapshots.refer(f"{_HEAD}{_word(run)}/{_word(leaf)}/{how}-{tree}", tree)

    def held(self, run: str | None = None) -> list[Held]:
        """All that is held, or what one run has made, by run, leaf and name."""
        found = []
        for name, tree in sorted(
            self._snapshots.references(_HEAD if run is None else f"{_HEAD}{_word(run)}/").items()
        ):
            of_run, leaf, last = name.removeprefix(_HEAD).split("/")
            found.append(Held(unquote(of_run), unquote(leaf), last.rpartition("-")[0], tree))
        return found

    def drop(self, run: str, leaves: Iterable[str]) -> int:
        """Let go of what these leaves have made: it is in the source tree by now.

        How many trees.
        """
        gone = set(leaves)
        dropped = [each for each in self.held(run) if each.leaf in gone]
        self._snapshots.forget(
            f"{_HEAD}{_word(run)}/{_word(each.leaf)}/{each.how}-{each.tree}" for each in dropped
        )
        return len(dropped)


def _word(name: str) -> str:
    """A name as one part of a reference, which may have no dots at its ends, no slashes and few signs.

    A reference is a file, so a long name is cut, and told from others by a digest.
    """
    word = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    return (
        word if len(word) <= MAX_BYTES else file_name(word).replace("~", "-")
    )  # which git refuses


def begin(slot: Slot, snapshots: Snapshots, run: str, leaf: str, base: str) -> None:
    """Note beside a worktree whose work begins in it: should the driver be killed, `rescue` finds it."""
    facts = {
        "home": str(snapshots.home),
        "root": str(slot.root),
        "run": run,
        "leaf": leaf,
        "base": base,
    }
    facts |= {"git": str(slot.git_dir)} if slot.git_dir is not None else {}
    slot.keep(json.dumps(facts))


def rescue(root: Path) -> list[Held]:
    """Hold what drivers that were killed have left in worktrees of the repository of `root`.

    These may then be removed.

    Each is held where its plan keeps its trees. Where that is gone, the worktree stays.
    """
    found = []
    for each in unfinished_in(root):
        try:
            facts = json.loads(each.note)
            run, leaf, base, place = facts["run"], facts["leaf"], facts["base"], Path(facts["root"])
            home, git_dir = Path(facts["home"]), Path(facts["git"]) if "git" in facts else None
        except (ValueError, KeyError, TypeError):  # another's note
            continue
        if not home.is_dir():
            continue
        snapshots = Snapshots(home)
        tree = snapshots.take(place, git_dir=git_dir) if place.is_dir() else base
        if tree != base:
            HeldResults(snapshots).hold(run, leaf, "cut-off", tree)
            found.append(Held(run, leaf, "cut-off", tree, home))
        each.let_go()
    return found
