"""The run that `abreast demo` shows: two dozen real commands of uneven length, in two lanes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from abreast.cli.children import Groups
from abreast.cli.command import CommandWork
from abreast.cli.job import INPUT, ITEMS, KIND, MapJob
from abreast.core.outcome import Outcome
from abreast.executors.commands import Commands
from abreast.limits.slots import Slots
from abreast.run.retry import Retry
from abreast.store.port import Store
from abreast.wiring import open_run

NAME: Final = "demo"
WIDTH: Final = 4
LANES: Final = {"quick": 3, "slow": 1}
SAYING: Final = (
    "Given the same replies, concurrency changes only the time, never the answer. "
    "A run that was killed and resumed returns the same again."
)
STUMBLE: Final = "(stumble)"

_QUICK: Final = (0.9, 0.5, 1.3, 0.7, 0.6, 1.1, 0.4, 1.5, 0.8)
_SLOW: Final = (0.9, 0.6, 0.5, 0.9, 0.4, 0.7)
_LATER: Final = 9  # the item whose first attempt fails
_NEVER: Final = 17  # the item that fails for good
_SCRIPT: Final = """
sleep "$2"
case "$3" in
  later) if [ "$ABREAST_ITEM_ATTEMPT" = 1 ]; then echo "not yet" >&2; exit 75; fi ;;
  never) echo "it was told to fail" >&2; exit 3 ;;
esac
echo "$1"
"""

Word: TypeAlias = dict[str, Any]


def story(saying: str = SAYING) -> Iterator[Word]:
    """The items: a word each, how long its command takes, in which lane, and whether it succeeds."""
    words = saying.split()
    words.insert(_NEVER, STUMBLE)
    for index, word in enumerate(words):
        lane, lengths = ("slow", _SLOW) if index % 4 == 1 else ("quick", _QUICK)
        ends = "later" if index == _LATER else "never" if index == _NEVER else "well"
        yield {"word": word, "seconds": lengths[index // 4 % len(lengths) if lane == "slow" else index % len(lengths)],
               "lane": lane, "ends": ends}  # fmt: skip


async def tell_story(
    store: Store, hooks: Sequence[object], opened: Callable[[str], None], released: Callable[[Outcome[Any]], None]
) -> None:
    """Run it; `opened` gets the run's id, `released` each outcome, in item order, as soon as it can leave."""
    command = ("sh", "-c", _SCRIPT, "sh", "{.word}", "{.seconds}", "{.ends}")
    job = MapJob(os.getcwd(), command, jsonl=True, width=WIDTH, retries=1)  # noqa: PTH109 - as a text
    lanes = {name: Slots(slots) for name, slots in LANES.items()}
    run = open_run(NAME, store=store, lanes=lanes, resume="never", hooks=hooks, kind=KIND, manifest=job.manifest())
    async with Commands() as commands, run:
        opened(run.id or "")
        work = CommandWork(job, run.id or "", commands, Groups())
        outcomes = run.map(
            work, run.intake(INPUT, story()), width=WIDTH, name=ITEMS, lane=lambda word: str(word["lane"]),
            retry=Retry(1, base=0.4),
        )  # fmt: skip
        async for outcome in outcomes:
            released(outcome)
