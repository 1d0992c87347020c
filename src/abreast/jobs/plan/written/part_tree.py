"""Arranges written parts as a tree, by the directories that their files are in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from abreast.jobs.plan.spec import ROOT, NodeKind, PlanNode, Reason, node_id
from abreast.worktrees.merge.names import folders_above


def tree_of(leaves: Sequence[PlanNode]) -> Iterator[PlanNode]:
    """The nodes of a tree of parts: inner nodes first, then the parts in the order given.

    A directory is an inner node if it has several parts, and no directory in it has all of these. A
    part that is alone is the root.
    """
    if len(leaves) == 1:
        yield leaves[0]
        return
    homes = [_common_folder(leaf.files) for leaf in leaves]
    beneath: dict[str, list[int]] = {}
    for place, home in enumerate(homes):
        for folder in _upwards(home):
            beneath.setdefault(folder, []).append(place)
    ids = _node_ids(beneath, {leaf.id for leaf in leaves})
    parents = {folder: _nearest(folder, ids) for folder in ids}
    above = [next(folder for folder in _upwards(home) if folder in ids) for home in homes]
    # By the place of the first part that a child has.
    children: dict[str | None, dict[int, str]] = {folder: {} for folder in (None, *ids)}
    for folder, parent in parents.items():
        children[parent][beneath[folder][0]] = ids[folder]
    for place, parent in enumerate(above):
        children[parent][place] = leaves[place].id
    depths: dict[str | None, int] = {None: -1}
    for folder, parent in parents.items():
        depths[folder] = depths[parent] + 1
        parts = [leaves[place] for place in beneath[folder]]
        yield PlanNode(
            ids[folder],
            None if parent is None else ids[parent],
            tuple(name for _, name in sorted(children[folder].items())),
            depths[folder],
            tuple(sorted(path for part in parts for path in part.files)),
            sum(part.tokens for part in parts),
            Reason.GIVEN if parent is None else Reason.DIRECTORIES,
            over_budget=False,
            kind=NodeKind.DIRECTORY if parent is None else NodeKind.GROUP,
            scope="./" if parent is None else f"{folder}/",
        )
    for leaf, parent in zip(leaves, above, strict=True):
        yield replace(leaf, parent=ids[parent], depth=depths[parent] + 1)


def _node_ids(beneath: Mapping[str, Sequence[int]], taken: set[str]) -> dict[str, str]:
    """The directories that are nodes, parents first, and their ids, which no part has."""
    whole = {
        folder.rpartition("/")[0]
        for folder, parts in beneath.items()
        if folder and len(parts) == len(beneath[folder.rpartition("/")[0]])
    }
    found: dict[str, str] = {}
    for folder in sorted(beneath):
        if len(beneath[folder]) > 1 and folder not in whole:
            name = node_id("parts", folder) if found else ROOT
            while name in taken:
                name += "-"
            found[folder] = name
    return found


def _nearest(folder: str, nodes: Mapping[str, str]) -> str | None:
    """The nearest of these directories above one; None if there is none."""
    return next((one for one in _upwards(folder) if one in nodes and one != folder), None)


def _upwards(folder: str) -> Iterator[str]:
    """A directory and all above it; the top is empty."""
    yield folder
    if folder:
        yield from folders_above(folder)
        yield ""


def _common_folder(files: Sequence[str]) -> str:
    """The innermost directory that has all of these sorted files; empty for the top."""
    common: list[str] = []
    for one, other in zip(files[0].split("/")[:-1], files[-1].split("/")[:-1], strict=False):
        if one != other:
            break
        common.append(one)
    return "/".join(common)
