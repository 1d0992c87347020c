"""The files besides the target's that a candidate changes, and which of them it may change."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from abreast.jobs.candidates.source.target import CandidateInvalid, Target, read_source
from abreast.worktrees.slot import Slot

MAX_FILES: Final = 40  # besides the target's
# Code, and documentation that goes with it. Data may be what the tests compare with.
_SUFFIXES: Final = frozenset({".py", ".pyi", ".md", ".rst"})
_TEST_FOLDERS: Final = frozenset({"test", "tests", "testing"})
# Interpreter and packaging tools run these, or pytest reads them.
_SETTINGS: Final = frozenset({"setup.py", "noxfile.py", "sitecustomize.py", "usercustomize.py"})
# What a module of the project can't be called: the tests and the tracing would get it instead.
_TAKEN_NAMES: Final = sys.stdlib_module_names | {
    *("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "py", "hypothesis", "xdist"),
    "_abreast_child",
}


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file besides the target's: its path from the top of the repository, and both texts.

    `before` is None for a new file, `after` for one that is removed.
    """

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class CandidateSource:
    """What an author writes: the function or the target's file, and other files it changes."""

    text: str
    files: tuple[FileChange, ...] = ()


def as_source(given: object) -> CandidateSource:
    """Return an author's answer, which may be text alone, as a source. Raises TypeError."""
    if isinstance(given, CandidateSource):
        return given
    if isinstance(given, str):
        return CandidateSource(given)
    raise TypeError(f"it must return Python as text, not {type(given).__name__}")


async def stage_source(slot: Slot, target: Target, source: CandidateSource) -> None:
    """Write all files of a candidate in a slot, and remove those that it removes."""
    await slot.stage(target.file, source.text)
    for one in source.files:
        await slot.stage(one.path, one.after)


def refuse_path(path: str, protected: Iterable[str] = ()) -> str:
    """Return why a candidate may not change a file; empty if it may.

    `protected` are the tests and scripts that call the target: files, directories, node ids.
    """
    parts = PurePosixPath(path).parts
    name = parts[-1] if parts else ""
    if not name or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
        return "it is outside of the repository"
    if ".git" in (part.lower() for part in parts):
        return "it is git's own"
    if name == "conftest.py" or _is_test(parts) or _is_beneath(path, protected):
        return "it belongs to the tests"
    if name in _SETTINGS:
        return "it is configuration"
    if PurePosixPath(name).suffix not in _SUFFIXES:
        return f"only {', '.join(sorted(_SUFFIXES))} may change"
    return ""


def _is_test(parts: Sequence[str]) -> bool:
    name = parts[-1]
    return (
        name.startswith("test_")
        or name.endswith("_test.py")
        or not _TEST_FOLDERS.isdisjoint(part.lower() for part in parts[:-1])
    )


def _is_beneath(path: str, places: Iterable[str]) -> bool:
    names = (place.partition("::")[0].rstrip("/") for place in places)
    return any(path == name or path.startswith(f"{name}/") for name in names if name != ".")


def protected_places(tests: Iterable[str], scripts: Iterable[str], target: str) -> tuple[str, ...]:
    """Return the tests and scripts; without a directory of tests that holds the target too."""
    return tuple(one for one in (*tests, *scripts) if not _is_beneath(target, [one]))


def read_change(root: Path, path: str, after: str | None) -> FileChange | None:
    """Return the change of a file of a working tree; None if it changes nothing.

    Raises `CandidateInvalid` if a link leads there, if the file can't be read as text, or if the
    change would make Python import something else under a name that is in use.
    """
    place = root
    for part in PurePosixPath(path).parts:
        place /= part
        if place.is_symlink():
            raise CandidateInvalid(f"it touches {path}, and {place.relative_to(root)} is a link")
    if place.exists() and not place.is_file():
        raise CandidateInvalid(f"it touches {path}, which is no file")
    before = read_source(place) if place.exists() else None
    if before == after:
        return None
    if (before is None or after is None) and (why := _refuse_module(root, path, after)):
        raise CandidateInvalid(f"it {'adds' if before is None else 'removes'} {path}: {why}")
    return FileChange(path, before, after)


def _refuse_module(root: Path, path: str, after: str | None) -> str:
    """Why a file may not come or go: for what it would do to the imports of others."""
    inside = PurePosixPath(path)
    if inside.suffix != ".py":
        return ""
    if inside.name == "__init__.py" and (after is None or (root / inside.parent).is_dir()):
        return "it would change how the modules beside it are imported"
    taken = {part.removesuffix(".py") for part in inside.parts} & _TAKEN_NAMES
    # Within a package a name is not looked up from the top.
    in_package = (root / inside.parent / "__init__.py").exists()
    if after is not None and taken and not in_package:
        return f"it could take the place of the module {min(taken)}"
    return ""


def is_code(change: FileChange) -> bool:
    """Whether the change leaves a module that can be imported."""
    return change.path.endswith(".py") and change.after is not None
