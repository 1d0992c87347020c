"""The agent of the trial: renames in its own files, and asks for the tests of its sources.

    python agent.py     # as the command of a plan; the prompt is `old=new old=new`

It works as an agent that is told to keep sources and tests in step. In its own files it renames,
except in tests of sources that other parts own: the agents of these ask for that. A write to a file
of another part becomes a request, which the owner's agent applies as a patch in the second round.
It leaves a note of what it renamed in the directory of its sources.
"""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOTE = "RENAMED.md"
MEETING = "REFACTORING_MEETING"
"""The variable with the port of the meeting."""


def main() -> None:
    """Rename in the files of this part."""
    pairs = [pair.split("=") for pair in os.environ["ABREAST_INSTRUCTION"].split()]
    own = Path(os.environ["ABREAST_FILE_LIST"]).read_text("utf-8").splitlines()
    requests = os.environ["ABREAST_REQUESTS_FILE"]
    with meeting():
        mine = [Path(file) for file in own if file.endswith(".py") and not tested_by(file, own)]
        renamed = [str(file) for file in mine if rename(file, pairs)]
        for file in tests_of_others(own):
            rename(file, pairs)
        if Path(requests).stat().st_size:
            subprocess.run(["git", "apply", requests], check=True)
        sources = [file for file in renamed if not Path(file).name.startswith("test_")]
        if sources:
            write_note(sources)


def rename(file: Path, pairs: list[list[str]]) -> bool:
    """Rename whole words in a file; return whether it has one of them."""
    text = changed = file.read_bytes().decode()
    for old, new in pairs:
        changed = re.sub(rf"\b{old}\b", new, changed)
    if changed != text:
        file.write_bytes(changed.encode())
    return changed != text


def tested_by(file: str, own: list[str]) -> bool:
    """Whether a file has the tests of a source that another part owns."""
    place = Path(file)
    source = place.parent.parent / place.name.removeprefix("test_")
    is_test = place.name.startswith("test_") and place.parent.name == "tests"
    return is_test and source.is_file() and str(source) not in own


def tests_of_others(own: list[str]) -> Iterator[Path]:
    """The tests of this part's sources that other parts own."""
    for place in map(Path, own):
        test = place.parent / "tests" / f"test_{place.name}"
        if place.suffix == ".py" and test.is_file() and str(test) not in own:
            yield test


def write_note(renamed: list[str]) -> None:
    """Note what was renamed, in the directory that all of it is in."""
    folder = os.path.commonpath([os.path.dirname(file) for file in renamed])  # noqa: PTH120 - text
    lines = "".join(f"- {file}\n" for file in renamed)
    Path(folder, NOTE).write_text(f"# Renamed\n\n{lines}", "utf-8")


@contextmanager
def meeting() -> Iterator[None]:
    """Say when the work begins and ends, and begin when the meeting says so."""
    port = os.environ.get(MEETING)
    if port is None:
        yield
        return
    with socket.create_connection(("127.0.0.1", int(port))) as link:
        link.recv(1)
        try:
            yield
        finally:
            link.sendall(b"e")
            link.recv(1)


if __name__ == "__main__":
    main()
