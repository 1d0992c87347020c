"""The repository that the agents work on, and what each of them is told to do in it.

It is the code of sortedcontainers, which is installed with Hypothesis: real code, no download.
Each agent adds a line to a file that all share, at a place of its own, and writes a file of its
own. Only the last two add a line at the same place: the one conflict.
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path

AGENTS = 10
WIDTH = 4
SHARED = "sortedcontainers/sortedlist.py"
CONFLICT = (8, 9)
"""The agents that write to the same place."""
_LINES = 200  # between the places of two agents
_NAMED = ("-c", "user.name=me", "-c", "user.email=me@example.org")


def own_file(number: int) -> str:
    """The file that one agent writes alone."""
    return f"notes/{number}.md"


def place_of(number: int) -> int:
    """The line of the shared file after which an agent adds its own."""
    return _LINES * (min(number, CONFLICT[0]) + 1)


def line_of(number: int) -> str:
    """The line that an agent adds to the shared file."""
    return f"# read by agent {number}"


def edits(number: int) -> str:
    """The command that an agent is made to run."""
    added = f"""awk '{{print}} NR=={place_of(number)}{{print "{line_of(number)}"}}' {SHARED}"""
    own = own_file(number)
    return f"{added} > new && mv new {SHARED} && mkdir -p notes && echo done > {own}"


def without_markers(text: str) -> str:
    """A text with conflicts as one that has both sides of each, one after the other."""
    marks = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith(marks)]
    return "".join(kept)


def make_repository(folder: Path) -> None:
    """Put the code into a directory, and commit it."""
    found = importlib.util.find_spec("sortedcontainers")
    if found is None or found.origin is None:
        raise SystemExit("sortedcontainers is not installed; it comes with hypothesis")
    code = folder / "sortedcontainers"
    code.mkdir(parents=True)
    for file in Path(found.origin).parent.glob("*.py"):
        shutil.copyfile(file, code / file.name)
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*_NAMED, "commit", "-qm", "code")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
