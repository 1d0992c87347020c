"""A map whose outcomes you can watch.

Twelve items of uneven length, four at a time, released in order.

Run it with `make demo`, or `python examples/quickstart.py`.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import abreast

LENGTHS = [0.6, 0.2, 0.4, 0.1, 0.5, 0.2, 0.3, 0.1, 0.4, 0.2, 0.1, 0.3]


async def work(number: int) -> str:
    """Pretend to wait for a reply; the eighth is refused at first, as happens."""
    attempt = abreast.current().attempt
    await asyncio.sleep(LENGTHS[number])
    if number == 7 and attempt == 1:
        raise ConnectionError("the line was busy")
    return f"reply {number}" + (f" (attempt {attempt})" if attempt > 1 else "")


def show(event: object) -> None:
    """Print what happens as it happens; `hooks=` takes any function of one event."""
    kind, path = getattr(event, "kind", ""), getattr(event, "path", "")
    marks = {"item-started": ">", "attempt-failed": "!", "item-settled": "."}
    if kind in marks:
        sys.stderr.write(f"  {marks[kind]} {path.rpartition('/')[2]} {kind.partition('-')[2]}\n")


async def main() -> None:
    """Run it twice on one store: the second time nothing is left to do."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs.db"
        print("Twelve items, four at a time; outcomes leave in item order:")
        async with abreast.open_run("demo", store=store, seed=7, hooks=[show]) as run:
            outcomes = run.map(work, range(12), width=4, retry=2)
            async for outcome in outcomes:
                said = outcome.value if outcome.ok else outcome.error
                print(f"{outcome.key}  {said}  [{outcome.timing.wall:.2f} s]")
            print(f"At most {outcomes.peak} at once.")
            run_id = run.id
        async with abreast.open_run("demo", store=store, resume="must", run_id=run_id) as run:
            again = [outcome.value async for outcome in run.map(work, range(12), width=4, retry=2)]
        print(f"Asked again of the store: {len(again)} outcomes, and nothing ran a second time.")


if __name__ == "__main__":
    asyncio.run(main())
