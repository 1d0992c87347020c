"""Copies the modules of the child for the interpreter of the user's project.

They get a package name of their own, so that the project may be abreast itself or have another
abreast installed.
"""

import marshal
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from itertools import chain
from pathlib import Path
from typing import Final

_CANDIDATES: Final = Path(__file__).parents[1]
_WORKTREES: Final = Path(__file__).parents[3] / "worktrees"
_PACKAGE, BUNDLE = "abreast.jobs.candidates", "_abreast_child"
# The folders of the bundle, and where each is from.
_FOLDERS: Final = {"values": _CANDIDATES, "child": _CANDIDATES, "sandbox": _WORKTREES}
# By PEP 552: a file with a source hash that is not checked when it is loaded.
_PYC_HEADER: Final = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)

# For `python -c`, with the directory of the bundle as its argument.
PROGRAM: Final = f"""
import sys
if sys.version_info < (3, 11):
    found = sys.version.split()[0]
    sys.exit("abreast: Python 3.11 or later is needed to watch a function, this is %s" % found)
place = sys.argv.pop()
sys.path.insert(1, place)
from {BUNDLE}.child.main import main
sys.path.remove(place)
main(place)
"""


def write_bundle(place: Path) -> None:
    """Write all modules of the child into a package in the directory `place`, which exists."""
    package = place / BUNDLE
    for folder in ("", *_FOLDERS):
        (package / folder / "__pycache__").mkdir(parents=True)
    for name, data in _files().items():
        (package / name).write_bytes(data)


@cache
def _files() -> dict[str, bytes]:
    """Return the modules as source, and as compiled by this interpreter.

    An interpreter of another version ignores the compiled ones.
    """
    found = {"__init__.py": b"", **{f"{folder}/__init__.py": b"" for folder in _FOLDERS}}
    folders = [sorted((top / folder).glob("[a-z]*.py")) for folder, top in _FOLDERS.items()]
    for path in (_CANDIDATES / "rules.py", *chain(*folders)):
        top = _FOLDERS.get(path.parent.name, _CANDIDATES)
        name = path.relative_to(top).as_posix()
        text = path.read_text(encoding="utf-8").replace(_PACKAGE, BUNDLE)
        text = text.replace("from abreast.worktrees.sandbox", f"from {BUNDLE}.sandbox")
        found[name] = text.encode("utf-8")
        compiled = Path(cache_from_source(name))
        found[str(compiled)] = _PYC_HEADER + marshal.dumps(
            compile(text, name, "exec", dont_inherit=True, optimize=0)
        )
    return found
