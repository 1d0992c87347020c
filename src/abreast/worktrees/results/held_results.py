"""Keeps the trees of subplans by references until they are applied, so that none is lost.

    refs/abreast/RUN/LEAF/done-TREE       a result
    refs/abreast/RUN/LEAF/failed-TREE     the worktree after a failure, a timeout or a stop
    refs/abreast/RUN/LEAF/cut-off-TREE    the worktree when the driver was killed

They are in the object database of `snapshots.py`, not in the user's repository, where other tools
would see them.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, unquote

from abreast.core.errors import AbreastError
from abreast.system.file_names import MAX_BYTES, file_name
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.pool import has_dead_pools, has_pools, reap_worktrees, unfinished_in
from abreast.worktrees.slot import Slot

_PREFIX: Final = "refs/abreast/"

How: TypeAlias = Literal["done", "failed", "cut-off"]


@dataclass(frozen=True, slots=True)
class HeldTree:
    """A tree that a subplan made, done or not."""

    run: str
    leaf: str
    how: str
    tree: str
    home: Path | None = None
    """The object database, if the caller does not know it."""


@dataclass(frozen=True, slots=True)
class HeldResults:
    """The references of one object database."""

    snapshots: Snapshots

    def hold(self, run: str, leaf: str, how: How, tree: str) -> None:
        """Keep a tree; does nothing if it is kept already."""
        self.snapshots.refer(f"{_PREFIX}{_ref_part(run)}/{_ref_part(leaf)}/{how}-{tree}", tree)

    def held(self, run: str | None = None) -> list[HeldTree]:
        """All kept trees, or those of one run, ordered by run, leaf and name."""
        found = []
        for name, tree in sorted(
            self.snapshots.references(
                _PREFIX if run is None else f"{_PREFIX}{_ref_part(run)}/"
            ).items()
        ):
            of_run, leaf, last = name.removeprefix(_PREFIX).split("/")
            found.append(HeldTree(unquote(of_run), unquote(leaf), last.rpartition("-")[0], tree))
        return found

    def drop(self, run: str, leaves: Iterable[str]) -> int:
        """Drop the trees of these leaves, which are applied to the source tree by now.

        Returns the number of trees.
        """
        applied = set(leaves)
        dropped = [each for each in self.held(run) if each.leaf in applied]
        self.snapshots.forget(
            f"{_PREFIX}{_ref_part(run)}/{_ref_part(each.leaf)}/{each.how}-{each.tree}"
            for each in dropped
        )
        return len(dropped)


def _ref_part(name: str) -> str:
    """A name as one part of a reference.

    A part may have no dots at its ends, no slashes and few special characters. A reference is a
    file, so a long name is cut, and gets a digest that keeps it distinct.
    """
    part = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    # Git refuses "~" in references.
    return part if len(part) <= MAX_BYTES else file_name(part).replace("~", "-")


def begin(slot: Slot, snapshots: Snapshots, run: str, leaf: str, base: str) -> None:
    """Note beside a worktree which leaf starts in it, for `rescue` if the driver is killed."""
    facts = {
        "home": str(snapshots.home),
        "root": str(slot.root),
        "run": run,
        "leaf": leaf,
        "base": base,
    }
    facts |= {"git": str(slot.git_dir)} if slot.git_dir is not None else {}
    slot.keep(json.dumps(facts))


def rescue(root: Path) -> list[HeldTree]:
    """Keep what killed drivers left in worktrees of the repository of `root`.

    The worktrees may then be removed. Each tree is kept in the object database of its plan; if that
    is gone, the worktree stays.
    """
    found = []
    for each in unfinished_in(root):
        try:
            facts = json.loads(each.note)
            run, leaf, base, place = facts["run"], facts["leaf"], facts["base"], Path(facts["root"])
            home, git_dir = Path(facts["home"]), Path(facts["git"]) if "git" in facts else None
        except (ValueError, KeyError, TypeError):  # not a note of this module
            continue
        if not home.is_dir():
            continue
        snapshots = Snapshots(home)
        tree = snapshots.take(place, git_dir=git_dir) if place.is_dir() else base
        if tree != base:
            HeldResults(snapshots).hold(run, leaf, "cut-off", tree)
            found.append(HeldTree(run, leaf, "cut-off", tree, home))
        each.let_go()
    return found


def clear_leftovers(root: Path, notify: Callable[[str], None]) -> None:
    """Save the results that killed drivers left in worktrees of `root`, and remove the worktrees.

    `notify` is told what is saved. Worktrees that can't be saved are left as they are, and of
    errors it is only told: a plan can be shown in a read-only directory too.
    """
    try:
        if not has_pools(root):
            return
        for each in rescue(root):
            notify(
                f"{each.leaf} of {each.run} was cut off; what it had done is kept: "
                f"git --git-dir {each.home} ls-tree -r {each.tree}"
            )
        reap_worktrees(root)
    except (OSError, AbreastError) as error:
        notify(f"worktrees of a plan that was cut off could not be removed: {error}")


def clear_dead_pools(root: Path, notify: Callable[[str], None]) -> None:
    """Do the same if an owner of worktrees of `root` died; else nothing is locked or told.

    It is for the start of any run, also of one that needs neither git nor worktrees.
    """
    try:
        found = has_dead_pools(root)
    except (OSError, AbreastError):
        return
    if found:
        clear_leftovers(root, notify)
