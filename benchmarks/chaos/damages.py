"""Damages a store at random, and says what became of its runs.

    python -m benchmarks.chaos.damages [--tries 1000] [--seed N]

The store has a run that ended and one whose driver was killed. Damage of the ended run has to be
told by every read, or to change nothing. The unfinished run must never be taken for a complete one.
A recovery must keep only what was written.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from abreast.core.errors import AbreastError
from abreast.core.events import Event
from abreast.store.check import check_store
from abreast.store.memory import MemoryStore
from abreast.store.port import Store, each_event
from abreast.store.recovery import RUN_RECOVERED, recover_store
from abreast.store.sqlite.store import SqliteStore

ENDED, UNFINISHED = "ended-1", "unfinished-1"
PAGE: Final = 4096  # bytes
BAD: Final = ("silent", "taken for complete", "invented", "not whole after recovery", "crashed")
_MAKE: Final = """
import asyncio, sys
import abreast
from abreast.testing import crash_at
async def work(item):
    return {"item": item, "text": "x" * (item * 7 % 300)}
async def run(name, store):
    async with abreast.open_run(name, store=store, seed=1) as opened:
        async for _ in opened.map(work, range(60), width=2):
            pass
asyncio.run(run("ended", sys.argv[1]))
asyncio.run(run("unfinished", crash_at(sys.argv[1], 12, "after")))
"""


@dataclass(slots=True)
class Damages:
    """How often each thing became of a damaged store."""

    tries: int = 0
    found: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    rows: int = 0
    """Of the damaged ended runs."""
    recovered: int = 0

    @property
    def is_right(self) -> bool:
        """Whether nothing happened that must not."""
        return not any(self.found[name] for name in BAD)

    def note(self, what: str, example: str) -> None:
        """Count it, and keep an example of what must not happen."""
        self.found[what] += 1
        if what in BAD and len(self.examples) < 10:
            self.examples.append(f"{what}: {example}")


def flip(data: bytearray, draw: Random) -> None:
    """Change up to eight bits."""
    for _ in range(draw.randint(1, 8)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def cut(data: bytearray, draw: Random) -> None:
    """Lose the end."""
    del data[draw.randrange(len(data)) :]


def clear(data: bytearray, draw: Random) -> None:
    """Zero a page, as a disk does that lost it."""
    at = draw.randrange(max(1, len(data) // PAGE)) * PAGE
    data[at : at + PAGE] = bytes(len(data[at : at + PAGE]))


def scramble(data: bytearray, draw: Random) -> None:
    """Write noise over some bytes."""
    at = draw.randrange(len(data))
    length = min(draw.randint(2, 600), len(data) - at)
    data[at : at + length] = draw.randbytes(length)


def exchange(data: bytearray, draw: Random) -> None:
    """Put a page in the place of another."""
    pages = max(1, len(data) // PAGE)
    to, source = draw.randrange(pages) * PAGE, draw.randrange(pages) * PAGE
    data[to : to + PAGE] = data[source : source + PAGE]


KINDS: Final[tuple[Callable[[bytearray, Random], None], ...]] = (
    flip,
    flip,
    cut,
    clear,
    scramble,
    exchange,
)


def make_store(path: Path) -> None:
    """Run a map to its end, and another until its driver is killed."""
    path.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", _MAKE, str(path)], check=False, capture_output=True)


class Trial:
    """A store, and what a damaged copy of it says."""

    def __init__(self, folder: Path) -> None:
        """Make the store in `folder`."""
        self._copy = folder / "copy.db"
        path = folder / "runs.db"
        make_store(path)
        files = {"": path, "-wal": folder / "runs.db-wal"}
        self._files = {end: file.read_bytes() for end, file in files.items() if file.exists()}
        self._write(self._files)
        with closing(SqliteStore(self._copy)) as store:
            self._whole = {name: list(each_event(store, name)) for name in (ENDED, UNFINISHED)}

    def damage(self, draw: Random, damages: Damages) -> None:
        """Damage a copy, and read, check and recover it."""
        end = draw.choice(sorted(self._files))
        data, kind = bytearray(self._files[end]), draw.choice(KINDS)
        kind(data, draw)
        what = f"{kind.__name__} of {end or 'the file'}"
        damages.tries += 1
        for look in (self._read_ended, self._read_unfinished, self._recover):
            self._write(self._files | {end: bytes(data)})
            try:
                look(damages, what)
            except AbreastError:
                damages.note("told", what)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is not told
                damages.note("crashed", f"{what}: {type(error).__name__}: {error}")

    def _read_ended(self, damages: Damages, what: str) -> None:
        with closing(SqliteStore(self._copy)) as store:
            states = {row.id: row.state for row in store.runs()}
            same = states.get(ENDED) == "done" and self._events(store, ENDED) == self._whole[ENDED]
        damages.note("harmless" if same else "silent", what)

    def _read_unfinished(self, damages: Damages, what: str) -> None:
        with closing(SqliteStore(self._copy)) as store:
            state, events = store.get(UNFINISHED).state, self._events(store, UNFINISHED)
        if state != "running":
            damages.note("taken for complete", what)
        elif events != self._whole[UNFINISHED][: len(events)]:
            damages.note("silent", what)

    def _recover(self, damages: Damages, what: str) -> None:
        with closing(SqliteStore(self._copy)) as store, closing(MemoryStore()) as target:
            recover_store(store, target, 1.0)
            known = {row.id for row in target.runs()}
            for name in known & {ENDED, UNFINISHED}:
                written = {_content(event) for event in self._whole[name]}
                kept = {_content(event) for event in self._events(target, name)}
                if kept - written:
                    damages.note("invented", what)
                state = target.get(name).state
                if state == "done" and (name == UNFINISHED or kept != written):
                    damages.note("taken for complete", what)
                if name == ENDED and kept != written:
                    damages.rows, damages.recovered = (
                        damages.rows + len(written),
                        damages.recovered + len(kept),
                    )
            if not check_store(target).is_whole:
                damages.note("not whole after recovery", what)

    def _events(self, store: Store, name: str) -> list[Event]:
        return [event for event in each_event(store, name) if event.kind != RUN_RECOVERED]

    def _write(self, files: dict[str, bytes]) -> None:
        for file in self._copy.parent.glob("copy.db-*"):
            if file.is_file():
                file.unlink()
        for end, data in files.items():
            Path(f"{self._copy}{end}").write_bytes(data)


def _content(event: Event) -> tuple[str, str, str | None]:
    return event.kind, event.path, event.body


def damage_at_random(tries: int, seed: int) -> Damages:
    """Damage a store so many times."""
    damages, draw = Damages(), Random(seed)
    with tempfile.TemporaryDirectory(prefix="abreast-damages-") as folder:
        trial = Trial(Path(folder))
        for _ in range(tries):
            trial.damage(draw, damages)
    return damages


def main() -> int:
    """Print the counts; 1 if something happened that must not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = Random().randrange(1 << 32) if given.seed is None else given.seed
    damages = damage_at_random(given.tries, seed)
    print(f"seed {seed}: {damages.tries} damages; reads and recoveries that")
    for name in ("told", "harmless", *BAD):
        print(f"{name:26}{damages.found[name]:>7}")
    print(f"of damaged ended runs {damages.recovered} of {damages.rows} rows were recovered")
    print("\n".join(damages.examples))
    return 0 if damages.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
