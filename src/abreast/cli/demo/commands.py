"""Parts of `abreast demo` that run commands: two dozen in two lanes, and `abreast run`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from abreast.assembly.names import open_run
from abreast.cli.demo.crash import clean_environment
from abreast.cli.demo.reviews import MODEL
from abreast.cli.errors import DONE, FAILED, UsageError, one_line
from abreast.cli.jobs.map.command import CommandFailed
from abreast.core.outcome import Outcome
from abreast.executors.commands import Commands
from abreast.limits.slots import Slots
from abreast.run.current import current
from abreast.run.retry import Retry
from abreast.store.port import Store

NAME: Final = "demo"
WIDTH: Final = 4
LANES: Final = {"quick": 3, "slow": 1}
SAYING: Final = (
    "Given the same replies, concurrency changes only the time, never the answer. "
    "A run that was killed and resumed returns the same again."
)
STUMBLE: Final = "(stumble)"

_QUICK_SECONDS: Final = (0.9, 0.5, 1.3, 0.7, 0.6, 1.1, 0.4, 1.5, 0.8)
_SLOW_SECONDS: Final = (0.9, 0.6, 0.5, 0.9, 0.4, 0.7)
_RETRIED_INDEX: Final = 9  # the item whose first attempt fails
_FAILING_INDEX: Final = 17  # the item that fails for good
_SCRIPT: Final = """
sleep "$2"
case "$3" in
  later) if [ "$4" = 1 ]; then echo "not yet" >&2; exit 75; fi ;;
  never) echo "it was told to fail" >&2; exit 3 ;;
esac
echo "$1"
"""

DemoItem: TypeAlias = dict[str, Any]


def demo_items() -> Iterator[DemoItem]:
    """The items: for each a word, its command's seconds, its lane, and whether it succeeds."""
    words = SAYING.split()
    words.insert(_FAILING_INDEX, STUMBLE)
    for index, word in enumerate(words):
        slow = index % WIDTH == 1
        seconds = (
            _SLOW_SECONDS[index // WIDTH] if slow else _QUICK_SECONDS[index % len(_QUICK_SECONDS)]
        )
        ends = {_RETRIED_INDEX: "later", _FAILING_INDEX: "never"}.get(index, "well")
        yield {"word": word, "seconds": seconds, "lane": "slow" if slow else "quick", "ends": ends}


async def run_commands(
    store: Store,
    hooks: Sequence[object],
    opened: Callable[[str], None],
    released: Callable[[Outcome[Any]], None],
) -> None:
    """Run the commands.

    `opened` is called with the run's id, `released` with each outcome, in item order, as soon as
    it is released.
    """
    lanes = {name: Slots(slots) for name, slots in LANES.items()}
    async with Commands() as commands:

        async def run_word(word: DemoItem) -> dict[str, object]:
            parts = (word["word"], str(word["seconds"]), word["ends"], str(current().attempt))
            finished = await commands.run(["sh", "-c", _SCRIPT, "sh", *parts])
            wrote = {"stdout": finished.stdout.decode(), "stderr": finished.stderr.decode()}
            if finished.exit_code != 0:
                sentence = f"exit code {finished.exit_code}: {wrote['stderr'].strip()}"
                raise CommandFailed(sentence, {"exit_code": finished.exit_code, **wrote})
            return {"exit_code": 0, **wrote}

        async with open_run(
            NAME, store=store, lanes=lanes, resume="never", hooks=hooks, kind=NAME
        ) as run:
            opened(run.id or "")
            words = run.intake("story", demo_items())
            retry = Retry(1, base=0.4)
            async for outcome in run.map(
                run_word, words, width=WIDTH, lane=lambda word: str(word["lane"]), retry=retry
            ):
                released(outcome)


QUICKSTART: Final = "examples/quickstart.yaml"
_PACKAGED_FILE: Final = Path(__file__).with_name("data") / "quickstart.yaml"
_PASSED_VARIABLES: Final = (
    "ABREAST_CACHE",
    "ABREAST_LOCAL_THREADS",
)  # where the weights are, and the number of threads


def quickstart() -> str:
    """The workflow's file: the repository's if the working directory has it, else the package's."""
    here = Path(QUICKSTART)
    try:
        return (
            QUICKSTART if here.read_bytes() == _PACKAGED_FILE.read_bytes() else str(_PACKAGED_FILE)
        )
    except OSError:
        return str(_PACKAGED_FILE)


def run_quickstart(store: str, *, prints: bool) -> dict[str, Any]:
    """Run the workflow; with `prints` it prints its results, otherwise they are returned.

    Raises `UsageError` if it fails.
    """
    words = [
        sys.executable,
        "-m",
        "abreast",
        "run",
        quickstart(),
        "--store",
        store,
        "--model",
        MODEL,
    ]
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    stream = None if prints else subprocess.PIPE
    finished = subprocess.run(
        words if prints else [*words, "--json"],
        env=clean_environment() | passed,
        stdin=subprocess.DEVNULL,
        stdout=stream,
        stderr=stream,
        check=False,
    )
    if finished.returncode != DONE:
        why = "" if prints else f": {one_line(finished.stderr.decode('utf-8', 'replace'))}"
        raise UsageError(f"the demo's own workflow failed{why}", FAILED)
    if prints:
        return {}
    found: dict[str, Any] = json.loads(finished.stdout)
    return {"run": found["run"], "status": found["status"], "outputs": found["outputs"]}
