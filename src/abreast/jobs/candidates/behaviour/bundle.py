"""Brings what the confined child needs to where it can be read, under a name that no project has."""

from __future__ import annotations

import marshal
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Final

from abreast.jobs.candidates.child import (
    audit,
    build,
    capture,
    channel,
    guard,
    install,
    main,
    paths,
    suite,
    timed,
    trying,
    wrapping,
)

_HERE: Final = Path(__file__).parents[1]
_OURS, _THERE = "abreast.jobs.candidates", "_abreast_child"
_SHARED: Final = (
    "rules",
    *(f"values/{path.stem}" for path in sorted((_HERE / "values").glob("[a-z]*.py"))),
)
_CHILD: Final = (
    audit,
    build,
    capture,
    channel,
    guard,
    install,
    main,
    paths,
    suite,
    timed,
    trying,
    wrapping,
)

_COMPILED: Final = "__pycache__"
_HEADER: Final = (
    MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
)  # by PEP 552: a hash that nobody checks

PROGRAM: Final = f"""
import sys
if sys.version_info < (3, 11):
    sys.exit("abreast: Python 3.11 or later is needed to watch a function, this is %s" % sys.version.split()[0])
place = sys.argv.pop()
sys.path.insert(1, place)
from {_THERE}.child.main import main
sys.path.remove(place)
main(place)
"""
"""What Python is told to run, with the directory of the bundle as its argument."""


def write_bundle(place: Path) -> None:
    """Write all modules of the child into a package of its own in `place`, which exists."""
    package = place / _THERE
    for folder in (
        package / _COMPILED,
        package / "values" / _COMPILED,
        package / "child" / _COMPILED,
    ):
        folder.mkdir(parents=True)
    for name, data in _files().items():
        (package / name).write_bytes(data)


@cache
def _files() -> dict[str, bytes]:
    """The modules, each also as our interpreter compiles it: another one than ours does not look at that."""
    found = {"__init__.py": b"", "values/__init__.py": b"", "child/__init__.py": b""}
    for name in (
        *(f"{name}.py" for name in _SHARED),
        *(f"child/{Path(str(one.__file__)).name}" for one in _CHILD),
    ):
        text = (_HERE / name).read_text(encoding="utf-8").replace(_OURS, _THERE)
        found[name] = text.encode("utf-8")
        compiled = Path(cache_from_source(name))
        found[str(compiled)] = _HEADER + marshal.dumps(
            compile(text, name, "exec", dont_inherit=True, optimize=0)
        )
    return found
