"""Chooses the files that are divided: by the user's patterns, and without those that no one edits.

    chosen = choose_files(take_inventory(root), root, include=["src/"], exclude=["*.md"])
    chosen.inventory, chosen.excluded, chosen.set_aside

Set aside are vendored files, by the name of a directory above them, and generated ones, by their
name or by what their first lines say; `.gitattributes` decides with `linguist-generated` and
`linguist-vendored`. They are in no part, but agents see them, and may write them as they may make
new files.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from abreast.jobs.plan.decompose.inventory import FileEntry, Inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.patterns import PathPattern
from abreast.worktrees.merge.listing import count_in_words

_VENDORED: Final = re.compile(
    r"(?:^|/)(?:_?vendor|vendored|third[_-]?party|node_modules|bower_components|Godeps)/"
)
_GENERATED: Final = re.compile(
    r""".+_pb2(_grpc)?\.pyi? | .+\.pb(\.gw)?\.(go|cc|h|swift) | zz_generated\..+ | .+\.Designer\.cs
    | .+\.min\.(js|css) | .+\.(js|css)\.map | .+\.(g|freezed)\.dart
    | (package-lock|npm-shrinkwrap)\.json | pnpm-lock\.yaml | conda-lock\.yml | bun\.lockb?
    | (yarn|Cargo|poetry|uv|pdm|pixi|Pipfile|Gemfile|composer|flake|mix|pubspec|Podfile)\.lock
    | go(\.work)?\.sum | Package\.resolved | gradle\.lockfile""",
    re.VERBOSE,
)
_ATTRIBUTES: Final = ".gitattributes"
_LINGUIST: Final = re.compile(r"(-|!)?linguist-(generated|vendored)(?:=(\w+))?")


@dataclass(frozen=True, slots=True)
class ChosenFiles:
    """The files that are divided, and the paths of the others."""

    inventory: Inventory
    excluded: tuple[str, ...] = ()
    """Left out by the user's patterns."""
    set_aside: tuple[str, ...] = ()
    """Generated and vendored files."""


def choose_files(
    inventory: Inventory,
    root: Path | None = None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    all_files: bool = False,
    named: Collection[str] = (),
) -> ChosenFiles:
    """The files that match `include`, if there is one, and don't match `exclude`.

    Generated and vendored files are set aside and counted in the notes, unless they are `named` or
    `all_files` is true. `.gitattributes` are read beneath `root`. Raises `PlanInvalid` for what is
    no pattern, and if no file is left.
    """
    wanted, unwanted = _read(include), _read(exclude)
    unused = {*wanted, *unwanted}
    kept: list[FileEntry] = []
    excluded: list[str] = []
    for file in inventory.files:
        matched = [each for each in (*wanted, *unwanted) if each.matches(file.path)]
        unused.difference_update(matched)
        taken = not wanted or any(each in wanted for each in matched)
        if taken and not any(each in unwanted for each in matched):
            kept.append(file)
        else:
            excluded.append(file.path)
    if excluded and not kept:
        raise PlanInvalid("no file is left by the patterns of include and exclude")
    aside: dict[str, list[str]] = {"vendored": [], "generated": []}
    if not all_files:
        kept = list(_edited(kept, _Kinds.read(inventory, root), named, aside))
    notes = [_note(kind, paths) for kind, paths in aside.items() if paths]
    if notes and not kept:
        raise PlanInvalid(f"no file is left to divide: {'; '.join(notes)}")
    notes += [
        f"no file matches the pattern {text}" for text in sorted(each.text for each in unused)
    ]
    return ChosenFiles(
        replace(inventory, files=tuple(kept), notes=(*inventory.notes, *notes)),
        tuple(excluded),
        tuple(sorted(path for paths in aside.values() for path in paths)),
    )


def _read(texts: Sequence[str]) -> list[PathPattern]:
    return [PathPattern.read(text) for text in texts]


def _edited(
    files: Iterable[FileEntry],
    kinds: "_Kinds",
    named: Collection[str],
    aside: Mapping[str, list[str]],
) -> Iterator[FileEntry]:
    """The files that people edit; the paths of the others are added to `aside`, by their kind."""
    for file in files:
        kind = kinds.of(file)
        if kind is None or file.path in named:
            yield file
        else:
            aside[kind].append(file.path)


def _note(kind: str, paths: Sequence[str]) -> str:
    return count_in_words(
        len(paths),
        f"{kind} file is",
        f"{kind} files are",
        f"in no part, such as {paths[0]}; --all-files takes them in",
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """A line of `.gitattributes` that says whether files are generated or vendored."""

    pattern: PathPattern
    kind: str
    holds: bool


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Finds the kind of a file, by these marks, the strongest last."""

    marks: Sequence[_Mark]

    @classmethod
    def read(cls, inventory: Inventory, root: Path | None) -> "_Kinds":
        return cls([] if root is None else list(_marks(inventory, root)))

    def of(self, file: FileEntry) -> str | None:
        """`vendored`, `generated`, or neither."""
        said = {mark.kind: mark.holds for mark in self.marks if mark.pattern.matches(file.path)}
        folder, _, name = file.path.rpartition("/")
        if said.get("vendored", _is_vendored(folder)):
            return "vendored"
        by_name = file.generated or _GENERATED.fullmatch(name) is not None
        return "generated" if said.get("generated", by_name) else None


@lru_cache(maxsize=100)  # files of a directory come one after the other
def _is_vendored(folder: str) -> bool:
    return _VENDORED.search(f"{folder}/") is not None


def _marks(inventory: Inventory, root: Path) -> Iterator[_Mark]:
    """All marks, the strongest last: those of deeper directories, and of later lines."""
    found = [path for path in inventory.paths if path.rpartition("/")[2] == _ATTRIBUTES]
    for path in sorted(found, key=lambda path: path.count("/")):
        try:
            lines = (root / path).read_text("utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            text, *words = line.split() or ["#"]
            # Neither a comment nor a macro, and git reads no negation here.
            said = () if text[0] in "#[!" else map(_LINGUIST.fullmatch, words)
            for word in filter(None, said):
                try:
                    pattern = PathPattern.read(text, beneath=path.rpartition("/")[0], git=True)
                except PlanInvalid:
                    break
                yield _Mark(pattern, word[2], holds=not word[1] and word[3] != "false")
