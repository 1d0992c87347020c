"""Finds a table in the settings of a project: abreast.toml, or pyproject.toml."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_FILES: Final = (("abreast.toml", ()), ("pyproject.toml", ("tool", "abreast")))


def find_table(name: str, folder: Path | None = None) -> tuple[object, Path] | None:
    """The value of that name and its file, in this folder or above; None if there is none.

    abreast.toml comes first; an empty table is passed over. Raises ValueError for a file that is no
    TOML, and OSError for one that can't be read.
    """
    here = folder or Path.cwd()
    for file, keys in _FILES:
        for above in (here, *here.parents):
            path = above / file
            if not path.is_file():
                continue
            table: Any = tomllib.loads(path.read_text("utf-8"))
            for key in (*keys, name):
                table = table.get(key, {}) if isinstance(table, Mapping) else {}
            if table:
                return table, path
    return None
