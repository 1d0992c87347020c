"""`abreast watch`: draws the lanes of a run, live from another process, or after its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import click

from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, os_error_text, refusing, tell
from abreast.cli.stores import LAST, StoreChoice, find_run
from abreast.cli.terminal.tables import say, say_json
from abreast.core.clock import SYSTEM_CLOCK, pause
from abreast.jobs.files import units
from abreast.store.port import RunRow, Store
from abreast.views.lane_rows import CRASHED, RUNNING
from abreast.views.lanes import LaneChart
from abreast.views.limits import LimitChart
from abreast.views.run_reader import Follower
from abreast.views.served import KIND, ServedSums

if TYPE_CHECKING:
    from rich.console import Console

    from abreast.cli.terminal.drawing import Canvas

_LOOK_INTERVAL: Final = 0.2  # seconds between two looks
_LIVE_WINDOW: Final = 60.0  # seconds that are drawn of a run that goes on
_FILE_WIDTH: Final = 100  # columns of a drawing in a file or a pipe
_LOOKS_PER_LINE: Final = 5  # between two lines, if nothing can be redrawn
_QUIET_LOOKS: Final = 5  # without an event, before the run's driver is checked


def _drawing_module(*, limits: bool) -> ModuleType:
    """The module that draws, imported late: importing rich takes time."""
    if limits:
        from abreast.cli.terminal import limit_drawing

        return limit_drawing
    from abreast.cli.terminal import lane_drawing

    return lane_drawing


class WatchView:
    """Follows a run through its store: each look reads the new events."""

    def __init__(
        self, store: Store, row: RunRow, window: float | None, *, limits: bool = False
    ) -> None:
        """Show `window` seconds; by default the last minute of a live run, and all of another.

        With `limits`, the limits are drawn instead of the items.
        """
        self.id = row.id
        self.state: str = row.state
        self._store = store
        self._reader = Follower()
        self._quiet_looks = 0
        self._driven = row.state == RUNNING and store.driven(row.id)
        span, whole = window or _LIVE_WINDOW, window is None and not self._driven
        sums = ServedSums() if row.kind == KIND else None
        self.chart: Any = (
            LimitChart(span, whole=whole) if limits else LaneChart(span, whole=whole, served=sums)
        )
        self.drawing: Any = _drawing_module(limits=limits)

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state != RUNNING

    @property
    def now(self) -> float:
        """The time of the drawing, in seconds since the run started."""
        return float(self.chart.now if self.over else self.chart.time.at(SYSTEM_CLOCK.wall()))

    def look(self) -> bool:
        """Read the events since the last look; return whether there were any."""
        # Before the events: an ended run may be shown only after all its events are read.
        row = self._store.get(self.id)
        news = self._reader.read(self._store, row, self.chart.add, self.chart.KINDS)
        self.state = row.state
        self._quiet_looks = 0 if news else self._quiet_looks + 1
        # `driven` takes the run's lock for a moment if no driver holds it, so it is called only
        # when there are no events.
        if self.state == RUNNING and (self._quiet_looks >= _QUIET_LOOKS or not self._driven):
            self._quiet_looks = 0
            self._driven = self._store.driven(self.id)
            row = self._store.get(self.id)
            if not self._driven and row.state == RUNNING:
                self._reader.read(self._store, row, self.chart.add, self.chart.KINDS)
                self.chart.cut()
                self.state = CRASHED
        return news

    def draw(self, console: Console) -> Any:  # noqa: ANN401 - what rich prints
        """The drawing, in the size of the console."""
        return self.drawing.draw(self.chart, self.id, self.state, self.now, canvas_of(console))


@click.command("watch")
@options.optional_run
@click.option("--once", is_flag=True, help="Draw what there is now, and end.")
@click.option(
    "--window",
    metavar="TIME",
    help="Show so much of it: 30s, 5min.  [1min; all of a run that has ended]",
)
@click.option("--svg", metavar="FILE", help="Write the last drawing to this file, too.")
@click.option(
    "--limits",
    is_flag=True,
    help="Draw calls in flight, how many are allowed, and each decision on it.",
)
@options.common
def command(
    *,
    run: str | None,
    once: bool,
    window: str | None,
    svg: str | None,
    limits: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Draw the lanes of RUN as it goes, or with --limits its limits; by default of the newest run.

    One row per slot in use, each item a bar in time, coloured by its outcome; what waits for its
    lane is drawn below. It works from any process, and on a run that has ended: that is drawn once.
    Of a server, its calls are summed by client, model and tag.
    Ctrl-C stops the watching, not the run.
    """
    with refusing("--window"):
        seconds = None if window is None else units.duration(window)
    choice = StoreChoice(Config.load(), store)
    with choice.existing(reads=True) as opened:
        view = WatchView(opened, find_run(opened, run or LAST), seconds, limits=limits)
        with suppress(KeyboardInterrupt):
            _watch(view, once=once, as_json=as_json)
        if svg is not None:
            _write_svg(view, svg)
    if view.state == CRASHED:
        tell(f"{view.id} has crashed; go on with: abreast resume {view.id}{choice.flag}")


def _watch(view: WatchView, *, once: bool, as_json: bool) -> None:
    view.look()
    drawing = view.drawing
    if as_json:
        _report_changes(
            view,
            lambda: say_json(drawing.snapshot(view.chart, view.id, view.state, view.now)),
            once=once,
        )
        return
    console = make_console()
    if can_redraw(console) and not once and not view.over:
        _live(view, console)
        return
    if not once and not view.over:
        line = drawing.summary_line
        _report_changes(
            view,
            lambda: say(line(view.chart, view.id, view.state, view.now)),
            every=_LOOKS_PER_LINE,
        )
    show(console, view.draw(console))


def draw_once(store: Store, run: str, *, limits: bool = False) -> None:
    """Print the drawing of a run as it is now."""
    view = WatchView(store, store.get(run), None, limits=limits)
    view.look()
    console = make_console()
    show(console, view.draw(console))


def _report_changes(view: WatchView, report: Any, *, once: bool = False, every: int = 1) -> None:  # noqa: ANN401 - any callable
    """Call `report` now, after new events, and at the end."""
    report()
    news, looks = False, 0
    while not view.over and not once:
        pause(_LOOK_INTERVAL)
        news, looks = view.look() or news, looks + 1
        if (news and looks % every == 0) or view.over:
            news = False
            report()


def _live(view: WatchView, console: Console) -> None:
    from rich.live import Live

    with (
        restore_cursor(console),
        Live(
            view.draw(console), console=console, auto_refresh=False, vertical_overflow="crop"
        ) as live,
    ):
        took = 0.0
        while not view.over:
            pause(max(_LOOK_INTERVAL, 2 * took))  # a slow drawing is updated less often
            began = SYSTEM_CLOCK.now()
            view.look()
            live.update(view.draw(console), refresh=True)
            took = SYSTEM_CLOCK.now() - began


@contextmanager
def restore_cursor(console: Console) -> Iterator[None]:
    """Show the cursor at the end, also if Live is interrupted before it has started."""
    try:
        yield
    finally:
        console.show_cursor()


def make_console() -> Console:
    """A rich console for stdout."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def can_redraw(console: Console) -> bool:
    """Whether the console can be redrawn in place."""
    return console.is_terminal and not console.is_dumb_terminal


def canvas_of(console: Console) -> Canvas:
    """The canvas of a console; a pipe or a file gets all rows, in a width of 100 columns."""
    from abreast.cli.terminal.drawing import Canvas

    plain = not console.encoding.startswith("utf")
    size = console.size
    if not console.is_terminal:
        return Canvas(width=int(os.environ.get("COLUMNS") or _FILE_WIDTH), ascii=plain)
    return Canvas(
        size.width,
        size.height,
        colour=console.color_system is not None and not console.no_color,
        ascii=plain,
    )


def show(console: Console, drawing: Any) -> None:  # noqa: ANN401 - a rich Text, imported late
    """Print a drawing: with rich on a terminal, else as plain lines."""
    if console.is_terminal:
        console.print(drawing, crop=True)
    else:
        say("\n".join(line.rstrip() for line in drawing.plain.splitlines()))


def _write_svg(view: WatchView, file: str) -> None:
    try:
        Path(file).write_text(
            view.drawing.svg(view.chart, view.id, view.state, view.now), encoding="utf-8"
        )
    except OSError as error:
        raise UsageError(f"--svg: {file} can't be written: {os_error_text(error)}", 1) from None
    tell(f"the drawing of {view.id} is in {file}")
