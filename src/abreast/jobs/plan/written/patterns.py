"""Patterns of paths, as people write them: `docs/`, `*.md`, `src/*/tests`."""

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import cache
from typing import Final

from abreast.worktrees.merge.names import folders_above

_WILDCARDS: Final = re.compile(r"[*?\[]")


def is_pattern(text: str) -> bool:
    """Whether a text has wildcards."""
    return _WILDCARDS.search(text) is not None


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern stands for a path, or for a directory above it.

    `*` stands for any characters, also for `/`. Without a `/` in it, a pattern is compared with
    names: `*.md` is every such file, `docs` all files and directories of that name. With a `/` at
    its end it is only for directories.
    """
    wanted = pattern.removeprefix("./").rstrip("/")
    fits = _fitting(wanted)
    places = [*folders_above(path)] if pattern.endswith("/") else [path, *folders_above(path)]
    if "/" in wanted:
        return any(fits(place) for place in places)
    return any(fits(place.rpartition("/")[2]) for place in places)


def chosen(path: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether a path is included, and not excluded; without `include` all paths are included."""
    return (not include or any(matches(one, path) for one in include)) and not any(
        matches(one, path) for one in exclude
    )


@cache
def _fitting(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(translate(pattern)).match
