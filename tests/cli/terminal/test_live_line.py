"""The live line is drawn on a terminal only, and never mixes with the output of items."""

import os
import pty
import re
import select
import socket
import subprocess
import sys

import pytest

from abreast.cli.terminal.live_line import LiveLine
from abreast.core.events import (
    ATTEMPT_FAILED,
    ITEM_READ,
    ITEM_SETTLED,
    ITEM_STARTED,
    ITEMS_COMPLETE,
    Event,
)
from abreast.jobs.map.view import MapLive
from abreast.models.embedded.loading import LOADING
from abreast.views.job_view import LiveText
from abreast.views.progress import RunProgress
from tests.cli.shell import PATIENCE


def on_a_terminal(abreast, *arguments, both=False):
    """Run it with stderr (or both) on a terminal.

    What the terminal was sent, and what came to stdout.
    """
    ours, theirs = pty.openpty()
    stdout = theirs if both else subprocess.PIPE
    with abreast.forked(
        *arguments,
        environment={"TERM": "xterm", "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                seen += os.read(ours, 10_000)
            except OSError:  # no process has it open any more
                break
        out = process.stdout.read() if process.stdout else b""
        assert process.wait(PATIENCE) == 0
    os.close(ours)
    return seen.decode(), out.decode()


def test_a_terminal_sees_how_it_goes_and_stdout_stays_clean(abreast):
    # The last item ends only when the line has been drawn for the others, which takes a tenth of a
    # second.
    abreast.file("items", "".join(f"{number}\n" for number in range(20)))
    seen, out = on_a_terminal(
        abreast, "map", "--input", "items", "--", "sh", "-c", "sleep 0.1; echo $1", "sh", "{}"
    )
    assert out == "".join(f"{number}\n" for number in range(20))
    assert re.search(r"map  \d+/20  ", seen)
    assert "running" in seen
    assert "20 done in" in seen.splitlines()[-1]


def test_on_one_terminal_the_line_steps_aside_for_the_results(abreast):
    abreast.file("items", "".join(f"{number}\n" for number in range(20)))
    seen, _ = on_a_terminal(
        abreast,
        "map",
        "--input",
        "items",
        "--",
        "sh",
        "-c",
        "sleep 0.1; echo got $1",
        "sh",
        "{}",
        both=True,
    )
    lines = [line for line in re.split(r"\r\x1b\[2K|\r?\n", seen) if line]
    assert [line for line in lines if "got" in line] == [f"got {number}" for number in range(20)]


def test_quiet_is_quiet_on_a_terminal_too(abreast):
    abreast.file("items", "1\n2\n")
    assert on_a_terminal(abreast, "map", "--quiet", "--input", "items", "--", "true") == ("", "")


def test_a_terminal_that_gives_the_items_is_asked_for_them(abreast):
    ours, theirs = pty.openpty()
    wrote = subprocess.PIPE
    with abreast.forked(
        *("map", "--", "echo", "got"),
        stdin=theirs,
        stdout=wrote,
        stderr=wrote,
    ) as process:
        os.close(theirs)
        assert b"end them with Ctrl-D" in process.stderr.readline()
        os.write(ours, b"one\n\x04")
        assert process.stdout.read() == b"got one\n"
        assert process.wait(PATIENCE) == 0
    os.close(ours)


def event(kind, path="map/items/0000", **data):
    return Event(1, kind, path, 0.0, 0.0, None, data)


def test_the_line_counts_what_happens():
    live = MapLive("map", RunProgress(read=2, done=1))

    def said():
        return "  ".join(text for text, _ in live.parts() if text)

    for kind in (ITEM_READ, ITEM_STARTED, ATTEMPT_FAILED, ITEM_STARTED, ITEM_STARTED):
        live.add(event(kind))
    assert said().startswith("map  1/3+  2 running  ")
    live.add(event(ITEM_SETTLED, state="failed"))
    live.add(event(ITEM_SETTLED, "map/items/0001", state="done"))
    live.add(event(ITEM_READ, index=3, count=40))
    assert said().startswith("map  3/43+  ")
    live.add(event(ITEMS_COMPLETE))
    assert said().startswith("map  3/43  0 running  1 failed  ")


class Counted(LiveText):
    """As many events as were added."""

    interval = 0.0

    def __init__(self):
        self.events = 0

    def add(self, _):
        self.events += 1
        return True

    def parts(self):
        return [("events", ""), ("", "red"), (f"{self.events}\x1b", "dim")]


def test_a_model_that_is_loaded_is_told_at_once_and_no_more_when_it_is_there(capsys):
    line = LiveLine(Counted())
    with LOADING.during("loading local/one"):
        assert capsys.readouterr().err == "events  0  loading local/one"
    assert capsys.readouterr().err == "\r\x1b[2Kevents  0"
    line.close()
    capsys.readouterr()
    with LOADING.during("loading local/two"):
        assert capsys.readouterr().err == ""


def test_a_line_steps_aside_is_drawn_again_and_ends_for_good(capsys):
    line = LiveLine(Counted())
    line(event(ITEM_READ))
    assert capsys.readouterr().err == "events  1"
    with line.aside():
        assert capsys.readouterr().err == "\r\x1b[2K"
    assert capsys.readouterr().err == "events  1"
    line.end()
    line(event(ITEM_READ))
    assert capsys.readouterr().err == "\r\x1b[2Kevents  2"
    line.close()
    line(event(ITEM_READ))
    assert capsys.readouterr().err == "\r\x1b[2K"


# --- Ctrl-C --------------------------------------------------------------------------------------

# Gives the process a terminal of its own, so that Ctrl-C there is a signal, as it is for a person.
OWN_TERMINAL = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(2, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'abreast', *sys.argv[1:]])"
)
FLOW = """
workflow: {id: wait, name: Wait, version: "1.0.0"}
steps:
  - {id: first, type: shell, run: "true"}
  - {id: hangs, type: shell, run: "exec tail -f /dev/null"}
"""
STUDY = """
matrix:
  name: wait
  models: [scripted/replies.jsonl]
  strategies:
    mine: {python: "strategy:answer"}
  inputs: [{id: a, text: a}, {id: b, text: b}]
  scores: [{contains: a}]
  controls: []
"""
STRATEGY = """
import asyncio

async def answer(given, model):
    return given["text"] if given["text"] == "a" else await asyncio.Event().wait()
"""
HANGS = {
    "map": (
        (
            "map",
            "-P",
            "1",
            "--input",
            "items",
            "--",
            "sh",
            "-c",
            "sleep 0.1; [ $1 -lt 3 ] || exec tail -f /dev/null",
            "sh",
            "{}",
        ),
        b" running",
    ),
    "workflow": (("run", "flow.yaml"), b" running"),
    "sample": (("sample", "Say yes", "-m", "silent/model"), b"branch:round"),
    "matrix": (("matrix", "run", "study.yaml", "--no-report"), b"/2 cells"),
}


def on_the_screen(sent):
    """The lines that a terminal shows after this output: it obeys carriage return and ESC[2K."""
    lines = [""]
    for part in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|[^\x1b]", sent):
        if part == "\n":
            lines.append("")
        elif part == "\r":
            lines[-1] = lines[-1] if not lines[-1] else f"{lines[-1]}\r"
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif not part.startswith("\x1b"):
            lines[-1] += part
    return [line.rstrip("\r") for line in lines]


@pytest.fixture
def silent():
    """A server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.mark.parametrize("job", HANGS)
def test_ctrl_c_clears_the_line_before_a_word_is_said(abreast, silent, job):
    words, drawn = HANGS[job]
    abreast.file("items", "".join(f"{number}\n" for number in range(9)))
    abreast.file("flow.yaml", FLOW)
    abreast.file("study.yaml", STUDY)
    abreast.file("strategy.py", STRATEGY)
    abreast.file("replies.jsonl", '{"prompt": "x", "reply": "y"}\n')
    abreast.file(
        "abreast.toml", f'[lanes.silent]\nbase_url = "http://127.0.0.1:{silent.getsockname()[1]}"\n'
    )
    ours, theirs = pty.openpty()
    environment = {**abreast.environment, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL, *words],
        cwd=abreast.folder,
        env=environment,
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        seen, pressed = b"", False
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                seen += os.read(ours, 10_000)
            except OSError:  # no process has it open any more
                break
            if drawn in seen and not pressed:
                pressed = os.write(ours, b"\x03") == 1
        assert process.wait(PATIENCE) == 130, seen
    os.close(ours)
    told = [line for line in on_the_screen(seen.decode()) if "interrupted" in line]
    assert [line.partition(";")[0] for line in told] == ["abreast: interrupted"], seen.decode()
