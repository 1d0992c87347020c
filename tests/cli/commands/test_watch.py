"""`abreast watch`: drawings of live, ended and crashed runs, from another process."""

import json
import os
import pty
import re
import signal
from contextlib import closing
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from abreast.cli.commands.watch import WatchView
from abreast.cli.terminal.drawing import Canvas, DrawingFrame, clock
from abreast.cli.terminal.lane_drawing import draw, summary_line, svg
from abreast.core import events as kinds
from abreast.core.events import Event
from abreast.store.port import Driver
from abreast.testing import MemoryStore
from abreast.views import run_reader
from abreast.views.lanes import LaneChart
from tests.cli.shell import PATIENCE, end

# Reports its start on one pipe, and waits for a word on the other.
GATED = 'echo "$1" > up; read word < down; echo "$word"'


@pytest.fixture
def gate(abreast):
    """Commands that wait for the test: each reports on `up`, and a word on `down` ends one."""
    for name in ("up", "down"):
        os.mkfifo(abreast.folder / name)

    class Gate:
        command = ("--", "sh", "-c", GATED, "sh", "{}")

        def wait(self):
            return (abreast.folder / "up").read_text()

        def open(self, word="go"):
            (abreast.folder / "down").write_text(f"{word}\n")

    return Gate()


def finished(abreast, *options, items="1\n2\n3\n4\n5\n6\n"):
    said = abreast(
        "map", "--width", 2, *options, "--", "sh", "-c", 'test "$1" != 4', "sh", "{}", given=items
    )
    assert said.code == 1
    return said


# --- a run that has ended ------------------------------------------------------------------------


def test_a_run_that_has_ended_is_drawn_once_and_plainly_into_a_pipe(abreast):
    finished(abreast)
    said = abreast("watch")
    assert said.code == 0
    assert said.err == ""
    assert "\x1b" not in said.out
    assert said.lines[0].startswith("map-1  done after ")
    assert "5 done   1 failed" in said.lines[0]
    rows = [
        line
        for line in said.lines
        if line.startswith(("items ", " " * 12)) and ("█" in line or "▓" in line)
    ]
    assert len(rows) >= 2


def test_it_can_be_had_as_json(abreast):
    finished(abreast, "--retries", 1)
    (found,) = abreast("watch", "map-1", "--json").rows
    assert (found["run"], found["state"]) == ("map-1", "done")
    assert (found["done"], found["failed"], found["retried"]) == (5, 1, 1)
    assert (found["running"], found["waiting"], found["read"], found["complete"]) == (0, 0, 6, True)
    assert 1 <= found["peak"] <= 2
    (lane,) = found["lanes"]
    assert (lane["lane"], lane["done"]) == ("items", 5)


def test_the_picture_is_written_as_an_svg_that_fetches_nothing(abreast):
    finished(abreast)
    said = abreast("watch", "last", "--svg", "lanes.svg")
    assert said.code == 0
    assert "lanes.svg" in said.err
    text = (abreast.folder / "lanes.svg").read_text()
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert text.count("http") == 1  # the name of the language
    assert "url(" not in text
    assert "@import" not in text
    assert len(root.findall(".//{*}rect")) >= 6


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["watch", "nowhere-1"], 2, "there is no run 'nowhere-1'"),
        (["watch", "--window", "soon"], 2, "--window: must be a time"),
        (["watch", "--svg", "."], 1, "--svg: . can't be written: is a directory"),
        (["watch", "a", "b"], 2, "see abreast watch --help"),
    ],
)
def test_what_cannot_be_watched_is_said_in_one_sentence(abreast, arguments, code, words):
    finished(abreast)
    said = abreast(*arguments)
    assert (said.code, said.err.count("\n")) == (code, 1)
    assert words in said.err


def test_without_a_store_there_is_nothing_to_watch(abreast):
    said = abreast("watch")
    assert said.code == 2
    assert "there is no store at" in said.err
    assert not abreast.store.exists()


# --- a run that goes on --------------------------------------------------------------------------


def lines_until(process, wanted):
    """The JSON lines of a process up to the first that is wanted."""
    rows = []
    for line in process.stdout:
        rows.append(json.loads(line))
        if wanted(rows[-1]):
            return rows
    raise AssertionError(f"it ended before that: {rows}")


def test_it_follows_a_run_of_another_process_to_its_end(abreast, gate):
    abreast.file("items", "1\n2\n3\n")
    with abreast.start("map", "--width", 1, "--input", "items", *gate.command) as driver:
        assert gate.wait() == "1\n"
        with abreast.start("watch", "--json") as watching:
            (*_, row) = lines_until(watching, lambda row: row["running"] == 1)
            assert (row["state"], row["done"]) == ("running", 0)
            gate.open()
            assert gate.wait() == "2\n"
            (*_, row) = lines_until(watching, lambda row: row["done"] == 1)
            gate.open()
            gate.wait()
            gate.open()
            said = end(watching)
        assert end(driver).code == 0
    last = json.loads(said.out.splitlines()[-1])
    assert (said.code, last["state"], last["done"], last["running"]) == (0, "done", 3, 0)


def test_into_a_pipe_it_says_a_line_now_and_then_and_draws_at_the_end(abreast, gate):
    abreast.file("items", "1\n")
    with abreast.start("map", "--input", "items", *gate.command) as driver:
        gate.wait()
        with abreast.start("watch") as watching:
            assert watching.stdout.readline().startswith(b"map-1 running for ")
            gate.open()
            said = end(watching)
        end(driver)
    assert said.code == 0
    assert "\x1b" not in said.out
    assert "map-1  done after" in said.out


def test_once_draws_what_there_is_now(abreast, gate):
    abreast.file("items", "1\n")
    with abreast.start("map", "--input", "items", *gate.command):
        gate.wait()
        said = abreast("watch", "--once")
        assert (said.code, said.lines[0].split()[:2]) == (0, ["map-1", "running"])
        (row,) = abreast("watch", "--once", "--json").rows
        assert row["state"] == "running"
        gate.open()


def test_a_run_that_has_crashed_is_drawn_with_what_was_cut_and_the_way_to_go_on(abreast, gate):
    abreast.file("items", "1\n2\n")
    with abreast.start("map", "--width", 1, "--input", "items", *gate.command) as driver:
        gate.wait()
        gate.open()
        gate.wait()  # the second is there, so the first is recorded
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate(timeout=PATIENCE)
    said = abreast("watch")
    assert said.code == 0
    assert said.lines[0].startswith("map-1  crashed after")
    assert said.err == "abreast: map-1 has crashed; go on with: abreast resume map-1\n"


# --- on a terminal -------------------------------------------------------------------------------


class Terminal:
    """A process whose standard streams are a terminal of the test's.

    It is gone when the block is.
    """

    def __init__(self, abreast, *arguments, **environment):
        self._master, theirs = pty.openpty()
        size = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        self.process = abreast.forked(
            *arguments,
            environment={**size, **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            session=True,
        )
        os.close(theirs)
        self.raw = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._master)

    @property
    def shown(self):
        """The output so far."""
        return re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", self.raw)

    def read_until(self, words):
        while words not in self.shown and self._read():
            pass
        assert words in self.shown

    def end(self):
        """Read to the end; return the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def _read(self):
        try:
            piece = os.read(self._master, 65_536)
        except OSError:  # on Linux, after the last process has closed it
            piece = b""
        self.raw += piece.decode("utf-8", "replace")
        return piece


def test_ctrl_c_stops_the_watching_and_not_the_run(abreast, gate):
    abreast.file("items", "1\n")
    with abreast.start("map", "--input", "items", *gate.command) as driver:
        gate.wait()
        with Terminal(abreast, "watch") as watching:
            watching.read_until("1 running")
            os.kill(watching.process.pid, signal.SIGINT)
            assert watching.end() == 0
            assert watching.raw.rstrip().endswith("\x1b[?25h")  # the cursor is there again
            assert "Traceback" not in watching.shown
        gate.open()
        assert end(driver).code == 0


def test_a_terminal_gets_a_live_picture_in_colour(abreast, gate):
    abreast.file("items", "1\n2\n")
    with abreast.start("map", "--width", 1, "--input", "items", *gate.command) as driver:
        gate.wait()
        with Terminal(abreast, "watch") as watching:
            watching.read_until("running")
            gate.open()
            gate.wait()
            gate.open()
            assert watching.end() == 0
            assert "done after" in watching.shown
            assert "\x1b[38;5;" in watching.raw
        end(driver)


def test_without_colours_states_have_letters(abreast):
    finished(abreast)
    with Terminal(abreast, "watch", NO_COLOR="1") as terminal:
        assert terminal.end() == 0
        assert "[38;5;" not in terminal.raw
        assert "x failed" in terminal.shown


# --- the view of a store -------------------------------------------------------------------------


def event(seq, kind, path="run/work/0000", at=0.0, lane=None, **data):
    return Event(seq, kind, path, at, at, lane, data)


@pytest.fixture
def kept():
    """A store with a run that this test drives, and its row."""
    with closing(MemoryStore()) as store:
        driver = Driver(1, "here", 0.0)
        row = store.begin("run", kind="map", seed=1, manifest={}, tags=(), driver=driver)
        yield store, row


def test_a_look_takes_in_only_what_is_new(kept):
    store, row = kept
    store.commit(
        row.id,
        row.epoch,
        [event(1, kinds.RUN_STARTED), event(2, kinds.MAP_STARTED, "run/work")],
        {},
    )
    view = WatchView(store, row, None)
    assert view.look()
    assert not view.look()
    store.commit(
        row.id,
        row.epoch,
        [event(3, kinds.BATCH_COMMITTED), event(4, kinds.ITEM_STARTED, attempt=1)],
        {},
    )
    assert view.look()
    assert view.chart.counts.running == 1
    store.commit(
        row.id,
        row.epoch,
        [event(5, kinds.ITEM_SETTLED, state="done"), event(6, kinds.RUN_ENDED)],
        {},
    )
    store.end(row.id, row.epoch, "done", "", 1.0)
    assert view.look()
    assert (view.over, view.state, view.chart.counts.done) == (True, "done", 1)


def test_pages_do_not_show_in_the_picture(kept, monkeypatch):
    store, row = kept
    events = [event(1, kinds.RUN_STARTED), event(2, kinds.MAP_STARTED, "run/work")]
    for item in range(50):
        path = f"run/work/{item:04}"
        events.append(event(len(events) + 1, kinds.ITEM_STARTED, path, item, attempt=1))
        events.append(event(len(events) + 1, kinds.ITEM_SETTLED, path, item + 0.9, state="done"))
    store.commit(row.id, row.epoch, events, {})
    store.end(row.id, row.epoch, "done", "", 1.0)
    pictures = set()
    for page in (1, 7, 1000):
        monkeypatch.setattr(run_reader, "_PAGE_EVENTS", page)
        view = WatchView(store, store.get(row.id), None)
        view.look()
        pictures.add(draw(view.chart, row.id, view.state, view.now, Canvas()).plain)
    assert len(pictures) == 1


def test_a_driver_that_goes_silent_is_asked_after_and_found_dead(kept):
    store, row = kept
    store.commit(
        row.id,
        row.epoch,
        [event(1, kinds.RUN_STARTED), event(2, kinds.ITEM_STARTED, attempt=1)],
        {},
    )
    view = WatchView(store, row, None)
    view.look()
    store.let_go(row.id)
    looks = 0
    while not view.over and looks < 1000:
        view.look()
        looks += 1
    assert view.state == "crashed"
    assert looks > 1  # not at once: asking touches the lock
    assert view.chart.counts.running == 0


# --- the drawing ---------------------------------------------------------------------------------


def busy_chart(rows=40, items=4000):
    """Many rows, many items, all states."""
    chart = LaneChart(whole=True)
    events = [event(1, kinds.RUN_STARTED)]
    for item in range(items):
        path, at = f"run/work/{item:04}", item // rows + item % rows / rows
        events.append(event(len(events) + 1, kinds.ITEM_STARTED, path, at, attempt=1))
        if item >= rows:
            state = ("done", "failed", "cancelled")[item % 3]
            path = f"run/work/{item - rows:04}"
            events.append(event(len(events) + 1, kinds.ITEM_SETTLED, path, at, state=state))
    for one in events:
        chart.add(one)
    return chart


@pytest.mark.parametrize("rows", [1, 40, 300])
def test_an_svg_stays_small_and_whole_however_much_it_shows(rows):
    chart = busy_chart(rows, 10_000)  # 30 000 make it no larger
    text = svg(chart, "run-1", "running", chart.now)
    assert len(text.encode()) < 60_000
    ET.fromstring(text)


@pytest.mark.parametrize(
    "canvas",
    [Canvas(80, 24), Canvas(100, 30, colour=True), Canvas(30, 9, ascii=True), Canvas(5, 5)],
)
def test_a_picture_fits_its_canvas(canvas):
    chart = busy_chart()
    picture = draw(chart, "run-1", "running", chart.now, canvas)
    lines = picture.plain.splitlines()
    assert len(lines) <= max(canvas.height, 7)
    assert all(len(line.rstrip()) <= max(canvas.width, 32) for line in lines[2:-1])
    assert "more rows" in picture.plain


def test_ascii_is_enough_where_there_is_nothing_else():
    chart = busy_chart()
    assert draw(chart, "run-1", "running", chart.now, Canvas(ascii=True)).plain.isascii()


def test_a_key_that_is_markup_or_moves_the_cursor_is_only_text():
    chart = LaneChart()
    for one in (
        event(1, kinds.RUN_STARTED),
        event(
            2, kinds.ITEM_STARTED, "run/work/<script>[red]\x1b[2J", lane="a<b>\x1b[2J", attempt=1
        ),
        event(
            3,
            kinds.ITEM_SETTLED,
            "run/work/<script>[red]\x1b[2J",
            9.0,
            lane="a<b>\x1b[2J",
            state="done",
        ),
    ):
        chart.add(one)
    text = svg(chart, "run-1", "done", chart.now)
    ET.fromstring(text)
    assert "&lt;script&gt;[red]" in text
    assert "\x1b" not in text
    console = Console(force_terminal=True, width=100, color_system="truecolor")
    with console.capture() as captured:
        console.print(draw(chart, "run-1", "done", chart.now, Canvas(colour=True)))
    assert "\x1b[2J" not in captured.get()


def test_waiting_a_crash_and_what_was_spent_are_to_be_seen():
    chart = LaneChart(whole=True)
    used = {"requests": 2, "input_tokens": 30, "output_tokens": 12, "usd": 0.5, "estimate": False}
    for one in (
        event(1, kinds.RUN_STARTED),
        event(2, kinds.ITEM_STARTED, at=1.0, lane="api", attempt=1),
        event(3, kinds.ITEM_QUEUED, "run/work/0001", 2.0, lane="api"),
        event(4, kinds.RUN_RESUMED, at=4.0),
        event(5, kinds.ITEM_QUEUED, at=4.0, lane="api"),
        event(6, kinds.ITEM_STARTED, at=7.0, lane="api", attempt=1),
        event(
            7, kinds.CALL_SETTLED, "run/work/0000/call/0", at=9.0, lane="api", state="done", **used
        ),
        event(8, kinds.ITEM_SETTLED, at=9.0, lane="api", state="done", **used),
    ):
        chart.add(one)
    text = svg(chart, "run-1", "done", chart.now)
    ET.fromstring(text)
    assert all(
        words in text
        for words in (">resumed<", ">1 waiting<", ">crashed<", "2 req, 42 tok, 0.5000 usd")
    )
    plain = draw(chart, "run-1", "done", chart.now, Canvas()).plain
    assert all(
        words in plain
        for words in ("┊", "1 waiting", "! crashed", "·····", "2 req, 42 tok, 0.5000 usd")
    )


def test_an_empty_run_has_a_picture_too():
    chart = LaneChart()
    assert draw(chart, "run-1", "running", 0.0, Canvas()).plain.startswith(
        "run-1  running for 0 s   0 done"
    )
    ET.fromstring(svg(chart, "run-1", "running", 0.0))
    assert (
        summary_line(chart, "run-1", "running", 0.0)
        == "run-1 running for 0 s: 0 done, 0.0/s, peak 0"
    )


def test_in_a_narrow_terminal_what_a_line_has_no_room_for_stands_below():
    chart = LaneChart()
    used = {"usage": {"input": 40, "output": 2, "requests": 2, "usd": 0.5}}
    for number, state in enumerate(("done", "failed")):
        path = f"run/items/000{number}"
        chart.add(Event(2 * number, kinds.ITEM_STARTED, path, 1.0, 1.0, None, {}))
        facts = {"state": state, **used}
        chart.add(Event(2 * number + 1, kinds.ITEM_SETTLED, path, 2.0, 2.0, None, facts))

    wide, *_ = draw(chart, "run-1", "done", 2.0, Canvas(100, 20)).plain.split("\n")
    for width in (50, 30):
        lines = draw(chart, "run-1", "done", 2.0, Canvas(width, 20)).plain.split("\n")
        header = lines[: lines.index("")]
        assert max(map(len, header)) <= width
        assert "   ".join(header) == wide
        assert len(header) > 1


def test_times_are_written_as_people_do():
    assert [clock(seconds) for seconds in (0, 0.25, 4, 59, 60, 90, 3600, 7325)] == [
        "0 s",
        "0.25 s",
        "4 s",
        "59 s",
        "1:00",
        "1:30",
        "1:00:00",
        "2:02:05",
    ]


@pytest.mark.parametrize("length", [0.02, 1, 5.8, 59, 600, 9000, 200_000])
def test_an_axis_has_a_few_round_times(length):
    ticks = list(DrawingFrame(0.0, length, 88).ticks(12))
    assert 2 <= len(ticks) <= 8
    assert ticks[0] == (0, "0 s")
    columns = [column for column, _ in ticks]
    assert all(after - before >= 11 for before, after in pairwise(columns))
