"""Brings what the confined child needs to where it can be read, under a name that no project has."""

from __future__ import annotations

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

_HERE: Final = Path(__file__).parent
_OURS, _THERE = "abreast.jobs.candidates", "_abreast_child"
_SHARED: Final = (
    *("anatomy", "codes", "compare", "foreign", "kinds", "likeness"),
    *("matching", "portrait", "portray", "record", "rules"),
)
_CHILD: Final = (audit, build, capture, channel, guard, install, main, paths, suite, timed, trying, wrapping)

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
    (package / "child").mkdir(parents=True)
    for folder in (package, package / "child"):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    names = [*(f"{name}.py" for name in _SHARED), *(f"child/{Path(str(one.__file__)).name}" for one in _CHILD)]
    for name in names:
        text = (_HERE / name).read_text(encoding="utf-8").replace(_OURS, _THERE)
        (package / name).write_text(text, encoding="utf-8")
