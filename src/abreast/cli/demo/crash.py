"""`abreast demo crash`: kills a run, resumes it, and compares it with an undisturbed run."""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from abreast.assembly.names import find_store
from abreast.cli import options
from abreast.cli.commands.watch import draw_once
from abreast.cli.errors import DONE, FAILED, UsageError, one_line
from abreast.cli.jobs.map.recorded import each_result, row_of_recorded
from abreast.cli.terminal.outcome_text import json_line
from abreast.cli.terminal.tables import say, say_json
from abreast.core.clock import SYSTEM_CLOCK, pause
from abreast.core.events import ITEM_STARTED
from abreast.core.item import position_key
from abreast.store.port import Store, each_event, each_outcome

ITEMS: Final = 40
WIDTH: Final = 8
NAME: Final = "crash"
_KILL_AFTER_ITEMS: Final = 15  # the run is killed once so many are recorded
_KILL_WHILE_RUNNING: Final = 4  # and so many are known to run
_SEED: Final = "7"  # of both runs, as each item prints its own seed
_TIMEOUT: Final = 60.0  # seconds, after which the demo fails
_POLL_INTERVAL: Final = 0.01  # seconds
# Long enough for the start of an item to be recorded: the drawing shows those that were running.
_SCRIPT: Final = """
printf x >> "$2/$1"
sleep "0.$((40 + $1 * 7 % 10 * 5))"
echo "$1 squared is $(($1 * $1)), and its seed is $3"
"""
_TIMING_FIELDS: Final = (
    "seconds",
    "queued",
    "waited",
    "backoff",
)  # the only fields in which two runs of the same items differ

Report = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class CrashResult:
    """What the trial measured."""

    items: int
    killed_at: int
    recorded: int
    """Items whose outcome was on disk when the run was killed."""
    resumed: bool
    same_bytes: bool
    sha256: tuple[str, str]
    """Of the outcomes of the killed run, and of the undisturbed run."""
    recorded_ran_again: int
    in_flight: tuple[str, ...]
    """The keys of items that had started without being recorded, and so ran again."""

    @property
    def holds(self) -> bool:
        """Whether the outcomes are the same, and no recorded item ran again."""
        kept = self.recorded_ran_again == 0 and len(self.in_flight) <= WIDTH
        return kept and self.resumed and self.same_bytes


@click.command("crash")
@click.option(
    "--store", metavar="FILE", help="Keep both runs in this store; by default nothing is kept."
)
@options.as_json
@options.verbose
def command(*, store: str | None, as_json: bool) -> int:
    """Kill a run in the middle with SIGKILL, resume it, and compare it with one left alone.

    Exits with 1 unless the outcomes are the same to the byte and no recorded item ran again.
    """
    began = SYSTEM_CLOCK.now()
    if not as_json:
        _print_step(
            f"{ITEMS} commands, {WIDTH} at once:",
            "`abreast map`, killed in the middle, then `abreast resume`\n",
        )
    with tempfile.TemporaryDirectory(prefix="abreast-demo-") as folder:
        place = Path(store).absolute() if store else Path(folder, "abreast.db")
        with closing(find_store(place)) as opened:
            trial = CrashTrial(opened, place, Path(folder))
            found = trial.run((lambda *_: None) if as_json else _print_step)
            if not as_json:
                say("")
                draw_once(opened, trial.killed)
    if as_json:
        say_json(
            {**asdict(found), "holds": found.holds, "seconds": round(SYSTEM_CLOCK.now() - began, 3)}
        )
    elif found.holds:
        say("\nA recorded step is never run again; an unrecorded one may be.")
    else:
        say("\nThat must not be: please report it.")
    return DONE if found.holds else FAILED


def _print_step(what: str, more: str) -> None:
    say(f"{what:27} {more}".rstrip())


def clean_environment() -> dict[str, str]:
    """The environment without the user's ABREAST_ settings.

    Its PYTHONPATH starts with this installation of abreast, so that any directory finds it.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ABREAST_")
    }
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    places = [
        str(Path(__file__).parents[3]),
        *(str(Path(place).absolute()) for place in given if place),
    ]
    return {**environment, "PYTHONPATH": os.pathsep.join(places)}


class CrashTrial:
    """Two runs of the same items in one store.

    Each item counts its executions in a file of its own.
    """

    def __init__(self, store: Store, place: Path, folder: Path) -> None:
        """Write the items to `folder`, where the counts are written too."""
        self.killed = ""
        self._store = store
        self._place = place
        self._folder = folder
        (folder / "items").write_text(
            "".join(f"{item}\n" for item in range(ITEMS)), encoding="utf-8"
        )

    def run(self, report: Report) -> CrashResult:
        """Run the trial, and call `report` after each step."""
        self._kill(self._start("killed"), self._newest())
        recorded, before = self._recorded(), self._executed()
        at = 1 + next(item for item in range(ITEMS) if position_key(item) not in recorded)
        report(
            f"killed at item {at} of {ITEMS}",
            f"{self.killed}: SIGKILL, with {len(recorded)} recorded",
        )
        output = self._finish(self._abreast("resume", self.killed))
        report("resumed", f"{self.killed}: {len(self._recorded())} recorded")
        undisturbed_output = self._finish(self._start("calm"))
        undisturbed = self._newest()
        report("left alone, for comparison", f"{undisturbed}: {ITEMS} items")
        after, digests = self._executed(), (self._digest(self.killed), self._digest(undisturbed))
        ran_again = tuple(
            sorted(key for key, times in after.items() if times > 1 and key not in recorded)
        )
        found = CrashResult(
            ITEMS,
            at,
            len(recorded),
            resumed=len(self._recorded()) == ITEMS,
            same_bytes=digests[0] == digests[1] and output == undisturbed_output,
            sha256=digests,
            recorded_ran_again=sum(after[key] != before[key] for key in recorded),
            in_flight=ran_again,
        )
        report(
            "same bytes" if found.same_bytes else "OTHER BYTES",
            f"sha256 {digests[0][:16]} and {digests[1][:16]}",
        )
        unrecorded = (
            f"{len(ran_again)} in flight did ({', '.join(ran_again)}): nothing was recorded of them"
        )
        report(
            f"{found.recorded_ran_again} recorded items ran again", unrecorded if ran_again else ""
        )
        return found

    def _start(self, counts: str) -> subprocess.Popen[bytes]:
        (self._folder / counts).mkdir()
        options = (
            "--name",
            NAME,
            "--seed",
            _SEED,
            "--width",
            str(WIDTH),
            "--input",
            "items",
            "--quiet",
        )
        return self._abreast(
            "map", *options, "--", "sh", "-c", _SCRIPT, "sh", "{}", counts, "{seed}"
        )

    def _abreast(self, verb: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "abreast", verb, "--store", str(self._place), *arguments],
            cwd=self._folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def _finish(self, process: subprocess.Popen[bytes]) -> bytes:
        with process:
            try:
                output, errors = process.communicate(timeout=_TIMEOUT)
            finally:
                process.kill()
        if process.returncode != DONE:
            raise UsageError(
                f"the demo's own run failed: {one_line(errors.decode('utf-8', 'replace'))}",
                FAILED,
            )
        return output

    def _kill(self, process: subprocess.Popen[bytes], before: str) -> None:
        """Kill the process when enough items are recorded and others are running.

        The drawing then shows both.
        """
        deadline = SYSTEM_CLOCK.now() + _TIMEOUT
        with process:
            try:
                while process.poll() is None and SYSTEM_CLOCK.now() < deadline:
                    self.killed = self._newest()
                    if (
                        self.killed != before
                        and len(self._recorded()) >= _KILL_AFTER_ITEMS
                        and len(self._running()) >= _KILL_WHILE_RUNNING
                    ):
                        break
                    pause(_POLL_INTERVAL)
            finally:
                process.kill()
        if process.returncode >= 0 or self.killed == before:
            raise UsageError("the demo's own run ended before it could be killed", FAILED)

    def _newest(self) -> str:
        row = self._store.newest(NAME)
        return row.id if row else ""

    def _recorded(self) -> set[str]:
        return {
            outcome.path.rpartition("/")[2] for outcome in each_outcome(self._store, self.killed)
        }

    def _running(self) -> set[str]:
        """The items that have started and are not recorded."""
        begun = each_event(self._store, self.killed, {ITEM_STARTED})
        return {event.path.rpartition("/")[2] for event in begun} - self._recorded()

    def _executed(self) -> dict[str, int]:
        counts = (self._folder / "killed").iterdir()
        return {position_key(int(count.name)): count.stat().st_size for count in counts}

    def _digest(self, run: str) -> str:
        """The SHA-256 of everything that is exported of a run, except times."""
        rows = (row_of_recorded(recorded) for recorded in each_result(self._store, run))
        lines = (
            json_line({name: value for name, value in row.items() if name not in _TIMING_FIELDS})
            for row in rows
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
