"""Divides files by the parts that a person has written.

A file that is named counts more than a pattern, a pattern more than a directory, and a directory
more than those above it. What two parts name in the same way is an error.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from abreast.jobs.files.units import quoted
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.patterns import PathPattern, is_pattern
from abreast.jobs.plan.spec import NodeKind, Options, Plan, PlanNode, Reason
from abreast.jobs.plan.written.part_tree import tree_of
from abreast.jobs.plan.written.parts import PartSpec, WrittenName, also_at
from abreast.worktrees.merge.names import folders_above, printable

_MAX_LISTED: Final = 5  # files that a note names


def plan_of_parts(
    inventory: Inventory,
    parts: Sequence[PartSpec],
    excluded: Sequence[str] = (),
    *,
    strict: bool = True,
) -> Plan:
    """The plan of written parts, in their order; parts may name files that are `excluded`.

    Raises `PlanInvalid` for a file of two parts, and if `strict` for what no file is called;
    else, as for a run that goes on after files were removed, the notes say it.
    """
    claims = _Claims(inventory.paths, excluded, strict=strict)
    for part in parts:
        claims.add(part)
    owners = claims.owners()
    tokens = {file.path: file.tokens for file in inventory.files}
    files: dict[str, list[str]] = {part.id: [] for part in parts}
    for path in inventory.paths:
        if path in owners:
            files[owners[path]].append(path)
    kept = [part for part in parts if files[part.id]]
    notes = [*inventory.notes, *claims.notes]
    out = set(owners.values())
    for part in parts:
        if not files[part.id]:
            if strict and part.id not in out:
                raise PlanInvalid(
                    f"{part.place}part {part.id} has no files: other parts name all of them"
                )
            notes.append(f"part {part.id} has no files left, and is left out")
    if not kept:
        raise PlanInvalid("none of the files of the plan's parts is there")
    if free := [path for path in inventory.paths if path not in owners]:
        notes.append(
            f"in no part, and not worked on: {listed(free)}; "
            "put such files into a part, or name them under exclude"
        )
    leaves = [_leaf(part, files[part.id], tokens) for part in kept]
    return Plan(tuple(tree_of(leaves)), Options(), 0, tuple(notes), tuple(free))


def written_needs(plan: Plan, parts: Sequence[PartSpec]) -> dict[str, tuple[str, ...]] | None:
    """The parts that each part waits for; None if none waits."""
    there = {leaf.id for leaf in plan.leaves}
    found = {
        part.id: tuple(each.text for each in part.after if each.text in there)
        for part in parts
        if part.id in there
    }
    return found if any(found.values()) else None


def listed(paths: Sequence[str]) -> str:
    """Some paths, and how many more there are."""
    more = len(paths) - _MAX_LISTED
    shown = ", ".join(printable(path) for path in paths[:_MAX_LISTED])
    return f"{shown} and {more:,} more" if more > 0 else shown


class _Claims:
    """Which part each file belongs to."""

    def __init__(self, paths: Sequence[str], excluded: Sequence[str], *, strict: bool) -> None:
        self._paths = frozenset((*paths, *excluded))
        self._folders = {folder for path in self._paths for folder in folders_above(path)}
        self._strict = strict
        self._files: dict[str, tuple[str, WrittenName]] = {}
        self._by_folder: dict[str, tuple[str, WrittenName]] = {}
        self._patterns: list[tuple[PathPattern, tuple[str, WrittenName]]] = []
        self.notes: list[str] = []

    def add(self, part: PartSpec) -> None:
        for each in part.files:
            text = each.text.removeprefix("./")
            folder = text.rstrip("/")
            if text in self._paths:
                self._claim(self._files, text, part.id, each)
            elif folder in self._folders or not folder:
                self._claim(self._by_folder, folder, part.id, each)
            elif is_pattern(text):
                try:
                    pattern = PathPattern.read(text)
                except PlanInvalid as error:
                    raise PlanInvalid(f"{each.place}{error}") from None
                if not any(map(pattern.matches, self._paths)):
                    self._missing(f"no file is like {quoted(each.text)}", each)
                self._patterns.append((pattern, (part.id, each)))
            else:
                close = get_close_matches(text, self._paths, 1) if self._strict else []
                hint = f"; did you mean {close[0]}?" if close else ""
                self._missing(f"there is no file {quoted(each.text)} to divide{hint}", each)

    def _missing(self, sentence: str, each: WrittenName) -> None:
        if self._strict:
            raise PlanInvalid(f"{each.place}{sentence}")
        self.notes.append(sentence)

    def _claim(
        self,
        claims: dict[str, tuple[str, WrittenName]],
        text: str,
        part: str,
        each: WrittenName,
    ) -> None:
        before = claims.setdefault(text, (part, each))
        if before[1] is not each:
            raise _twice(text or "./", before, (part, each))

    def owners(self) -> dict[str, str]:
        """The part of each file that belongs to one."""
        found: dict[str, str] = {}
        for path in sorted(self._paths):
            owner = self._files.get(path) or self._by_pattern(path) or self._above(path)
            if owner is not None:
                found[path] = owner[0]
        return found

    def _by_pattern(self, path: str) -> tuple[str, WrittenName] | None:
        fitting = [each for pattern, each in self._patterns if pattern.matches(path)]
        for each in fitting[1:]:
            if each[0] != fitting[0][0]:
                raise _twice(path, fitting[0], each)
        return fitting[0] if fitting else None

    def _above(self, path: str) -> tuple[str, WrittenName] | None:
        for folder in (*folders_above(path), ""):
            if folder in self._by_folder:
                return self._by_folder[folder]
        return None


def _twice(
    path: str, first: tuple[str, WrittenName], second: tuple[str, WrittenName]
) -> PlanInvalid:
    return PlanInvalid(
        f"{second[1].place}{printable(path)} comes twice: in part {second[0]} "
        f"and in part {first[0]}{also_at(first[1].place)}"
    )


def _leaf(part: PartSpec, files: Sequence[str], tokens: Mapping[str, int]) -> PlanNode:
    return PlanNode(
        part.id,
        None,
        (),
        0,
        tuple(files),
        sum(tokens[path] for path in files),
        Reason.GIVEN,
        over_budget=False,
        kind=NodeKind.PART,
        scope=part.name,
        instructions=part.instructions,
    )
