"""A run that is interrupted and started again.

What is recorded is not run again, and the answer is the same.

Run it with `python examples/resume.py`. It is its own resume command, as every script with a store
is.
"""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

import abreast

ITEMS = 20
WIDTH = 4
ENOUGH = 8  # outcomes until the interrupt


class Work:
    """Squares numbers, and counts how often each was begun."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.begun: Counter[int] = Counter()

    async def square(self, number: int) -> int:
        """Take a while, as work does."""
        self.begun[number] += 1
        await asyncio.sleep(0.02)
        return number * number


async def drive(store: Path, work: Work, *, interrupt: bool) -> list[int]:
    """Start the run, or go on with it if it did not end; the values, in order."""
    values = []
    async with abreast.open_run("squares", store=store) as run:
        print(f"{'goes on with' if run.resumed else 'starts'} {run.id}")
        async for outcome in run.map(work.square, range(ITEMS), width=WIDTH):
            values.append(outcome.value)
            if interrupt and len(values) == ENOUGH:
                raise KeyboardInterrupt  # as Ctrl-C does
    return values


def main() -> None:
    """Interrupt it after some outcomes, and start it again."""
    work = Work()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "runs.db")
        try:
            asyncio.run(drive(store, work, interrupt=True))
        except KeyboardInterrupt:
            print(f"interrupted after {ENOUGH} outcomes")
        values = asyncio.run(drive(store, work, interrupt=False))
    again = [number for number, times in work.begun.items() if times > 1]
    print(f"the same as the plain loop: {values == [number * number for number in range(ITEMS)]}")
    print(f"begun twice: {sum(number < ENOUGH for number in again)} of those that were handed out")
    print(f"no more than the width in all: {len(again) <= WIDTH}")


if __name__ == "__main__":
    main()
