"""Chooses the git-ignored files that the tests of a project may need.

Such files are generated modules, built extensions and data.

They are chosen by kind and size. Left out without a note: git's own directories, virtual
environments, `node_modules`, caches (by name or by their `CACHEDIR.TAG`), abreast's store, data of
coverage, and files of secrets. Of all others the smallest are taken first, up to a bound on bytes
and on files; notes name the largest beyond it. They are copied like all other files, never linked:
a candidate that writes to one must not reach the main tree.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abreast.worktrees.background import StopRequest
from abreast.worktrees.git import Git, Repository

_SKIPPED_DIRECTORIES: Final = frozenset(
    {
        *(
            ".git",
            ".hg",
            ".svn",
            ".abreast",
            "node_modules",
            "__pycache__",
            "site-packages",
            "__pypackages__",
        ),
        *(
            ".tox",
            ".nox",
            ".venv",
            ".direnv",
            ".eggs",
            ".cache",
            ".idea",
            ".vscode",
            ".ipynb_checkpoints",
            "htmlcov",
        ),
        *(
            ".pytest_cache",
            ".mypy_cache",
            ".ruff_cache",
            ".hypothesis",
            ".pytype",
            ".pyre",
            ".terraform",
            ".gradle",
        ),
    }
)
_SKIPPED_FILES: Final = (".env", ".envrc", ".netrc", ".pypirc", ".coverage")
_SKIPPED_PREFIXES: Final = (".env.", ".coverage.")
_MAX_NAMED: Final = 5  # entries with a note of their own
_BYTECODE_SUFFIXES: Final = (".pyc", ".pyo")
_IMPORTED_SUFFIXES: Final = (".py", ".so", ".pyd", ".dylib")


@dataclass(frozen=True, slots=True)
class IgnoredBound:
    """How many ignored files are taken, and how many are examined."""

    size: int = 200 << 20  # bytes of all taken files together
    files: int = 20_000
    seen: int = 100_000


def list_ignored(
    repository: Repository, git: Git, stop: StopRequest, bound: IgnoredBound | None = None
) -> tuple[list[str], list[str]]:
    """List the ignored files that slots get, by name from the top, and notes about the others."""
    if repository.common is None:
        return [], []
    bound = bound or IgnoredBound()
    listed = git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    entries = sorted(map(os.fsdecode, filter(None, listed.split(b"\0"))))
    found: list[tuple[int, str, str]] = []
    notes: list[str] = []
    for entry in entries:
        for name, size in _walk_entry(repository.top, entry):
            stop.check()
            if len(found) >= bound.seen:
                notes.append(
                    f"there are more than {bound.seen} ignored files: "
                    f"those from {entry} on are not in the slots"
                )
                return _choose(found, notes, bound)
            found.append((size, name, entry))
    return _choose(found, notes, bound)


def _choose(
    found: list[tuple[int, str, str]], notes: list[str], bound: IgnoredBound
) -> tuple[list[str], list[str]]:
    """Take the smallest files, as far as they fit.

    A note names those that do not fit by their entry in git's list.
    """
    taken: list[str] = []
    beyond: dict[str, list[int]] = {}
    room = bound.size
    for size, name, entry in sorted(found):
        if size <= room and len(taken) < bound.files:
            taken.append(name)
            room -= size
        else:
            beyond.setdefault(entry, []).append(size)
    if len(beyond) > _MAX_NAMED:
        largest = sorted(beyond, key=lambda entry: -sum(beyond[entry]))[: _MAX_NAMED - 1]
        others = [size for entry in beyond.keys() - set(largest) for size in beyond[entry]]
        number = len(beyond) - len(largest)
        beyond = {entry: beyond[entry] for entry in sorted(largest)}
        beyond[f"{number} other names that git ignores"] = others
    else:
        beyond = dict(sorted(beyond.items()))
    notes += (_left_out(entry, sizes, bound) for entry, sizes in beyond.items())
    return sorted(taken), notes


def _left_out(entry: str, sizes: list[int], bound: IgnoredBound) -> str:
    files = "an ignored file" if len(sizes) == 1 else f"{len(sizes)} ignored files"
    return (
        f"{entry}: {files} of {_megabytes(sum(sizes))} left out of the slots, "
        f"which take at most {bound.files} such files of {_megabytes(bound.size)}; "
        "if the tests need them, add them to git"
    )


def _walk_entry(top: Path, entry: str) -> Iterator[tuple[str, int]]:
    """The files and links of an entry: a file or, with a slash at its end, a directory."""
    if any(part in _SKIPPED_DIRECTORIES for part in entry.rstrip("/").split("/")):
        return
    if not entry.endswith("/"):
        yield from _file_size(top / entry, entry)
        return
    waiting = [entry.rstrip("/")]
    while waiting:
        above = waiting.pop()
        try:
            entries = sorted(os.scandir(top / above), key=lambda one: one.name)
        except OSError:  # it is gone, or can't be read
            continue
        if {one.name for one in entries} & {"pyvenv.cfg", "CACHEDIR.TAG", ".git"}:
            continue
        for one in entries:
            if not one.is_dir(follow_symlinks=False):
                yield from _file_size(Path(one.path), f"{above}/{one.name}")
            elif one.name not in _SKIPPED_DIRECTORIES:
                waiting.append(f"{above}/{one.name}")


def _file_size(path: Path, name: str) -> Iterator[tuple[str, int]]:
    base = name.rpartition("/")[2]
    if base in _SKIPPED_FILES or base.startswith(_SKIPPED_PREFIXES):
        return
    if base.endswith(_BYTECODE_SUFFIXES):
        return
    try:
        facts = path.lstat()
    except OSError:
        return
    if path.is_symlink() or path.is_file():
        yield name, facts.st_size


def is_code(name: str) -> bool:
    """Whether a file may be imported: when such an ignored file changes, results are stale."""
    return name.endswith(_IMPORTED_SUFFIXES)


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB" if size < 10 << 30 else f"{size / (1 << 30):.1f} GB"
