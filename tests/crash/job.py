"""A durable job that is killed: run as a script in a child process.

    job.py STORE COUNTS ITEMS WIDTH [--crash COMMIT before|after]

Each item appends to its own file in COUNTS, so that every execution is seen, and returns a value
that depends on its seed. It prints `started` when the first outcome is out, and a digest of all
outcomes at the end.
"""

import asyncio
import hashlib
import os
import sys
from contextlib import closing
from pathlib import Path

import abreast
from abreast.assembly.names import find_store
from abreast.testing import crash_at


async def main(argv: list[str]) -> None:
    store_path, counts, items, width = argv[0], Path(argv[1]), int(argv[2]), int(argv[3])
    store: object = store_path
    if "--crash" in argv:
        place = argv.index("--crash")
        store = crash_at(find_store(store_path), int(argv[place + 1]), argv[place + 2])

    async def work(item: int) -> dict[str, object]:
        with (counts / f"{item}").open("ab", buffering=0) as counter:
            counter.write(b"x")
        for _ in range(item % 7):
            await asyncio.sleep(0)
        if item % 50 == 49:
            raise LookupError(f"no {item}")
        return {"item": item, "seed": abreast.current().seed, "text": "x" * (item % 300)}

    with closing(find_store(store_path)) as looked:
        found = looked.newest("killed")  # go on with it also if it was killed just after its end
    digest = hashlib.sha256()
    async with abreast.open_run("killed", store=store, seed=11, run_id=found and found.id) as run:
        async for outcome in run.map(work, range(items), width=width):
            said = outcome.value if outcome.ok else str(outcome.error).rpartition(": ")[2]
            digest.update(repr((outcome.index, outcome.key, outcome.state, said)).encode())
            if outcome.index == 0:
                os.write(1, b"started\n")
    os.write(1, f"{outcome.index + 1} {digest.hexdigest()}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
