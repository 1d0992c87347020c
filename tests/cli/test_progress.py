"""The live line: on a terminal only, and out of the way of what items write."""

import os
import pty
import re
import select
import subprocess

from abreast.cli.progress import Progress
from abreast.core.events import ATTEMPT_FAILED, ITEM_READ, ITEM_SETTLED, ITEM_STARTED, ITEMS_COMPLETE, Event
from tests.cli.shell import ABREAST, PATIENCE


def on_a_terminal(abreast, *arguments, both=False):
    """Run it with stderr (or both) on a terminal; what the terminal was sent, and what came to stdout."""
    ours, theirs = pty.openpty()
    stdout = theirs if both else subprocess.PIPE
    environment = {**abreast.environment, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen([*ABREAST, *arguments], cwd=abreast.folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=stdout, stderr=theirs) as process:  # fmt: skip
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                seen += os.read(ours, 10_000)
            except OSError:  # the last one who had it open is gone
                break
        out = process.stdout.read() if process.stdout else b""
        assert process.wait(PATIENCE) == 0
    os.close(ours)
    return seen.decode(), out.decode()


def test_a_terminal_sees_how_it_goes_and_stdout_stays_clean(abreast):
    # The last item ends only when the line has been drawn for the others, which takes a tenth of a second.
    abreast.file("items", "".join(f"{number}\n" for number in range(20)))
    seen, out = on_a_terminal(abreast, "map", "--input", "items", "--", "sh", "-c", "sleep 0.1; echo $1", "sh", "{}")
    assert out == "".join(f"{number}\n" for number in range(20))
    assert re.search(r"map  \d+/20  ", seen)
    assert "running" in seen
    assert "20 done in" in seen.splitlines()[-1]


def test_on_one_terminal_the_line_steps_aside_for_the_results(abreast):
    abreast.file("items", "".join(f"{number}\n" for number in range(20)))
    seen, _ = on_a_terminal(
        abreast, "map", "--input", "items", "--", "sh", "-c", "sleep 0.1; echo got $1", "sh", "{}", both=True
    )
    lines = [line for line in re.split(r"\r\x1b\[2K|\r?\n", seen) if line]
    assert [line for line in lines if "got" in line] == [f"got {number}" for number in range(20)]


def test_quiet_is_quiet_on_a_terminal_too(abreast):
    abreast.file("items", "1\n2\n")
    assert on_a_terminal(abreast, "map", "--quiet", "--input", "items", "--", "true") == ("", "")


def test_a_terminal_that_gives_the_items_is_asked_for_them(abreast):
    ours, theirs = pty.openpty()
    command, wrote = [*ABREAST, "map", "--", "echo", "got"], subprocess.PIPE
    with subprocess.Popen(
        command, cwd=abreast.folder, env=abreast.environment, stdin=theirs, stdout=wrote, stderr=wrote
    ) as process:
        os.close(theirs)
        assert b"end them with Ctrl-D" in process.stderr.readline()
        os.write(ours, b"one\n\x04")
        assert process.stdout.read() == b"got one\n"
        assert process.wait(PATIENCE) == 0
    os.close(ours)


def event(kind, **data):
    return Event(1, kind, "map/items/0000", 0.0, 0.0, None, data)


def test_the_line_counts_what_happens():
    progress = Progress("map", read=2, done=1)
    for kind in (ITEM_READ, ITEM_STARTED, ATTEMPT_FAILED, ITEM_STARTED, ITEM_STARTED):
        progress(event(kind))
    assert progress._line().plain.startswith("map  1/3+  2 running  ")
    progress(event(ITEM_SETTLED, state="failed"))
    progress(event(ITEM_SETTLED, state="done"))
    progress(event(ITEM_READ, index=3, count=40))
    assert progress._line().plain.startswith("map  3/43+  ")
    progress(event(ITEMS_COMPLETE))
    assert progress._line().plain.startswith("map  3/43  0 running  1 failed  ")
