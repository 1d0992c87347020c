"""A workflow that kills its own process at a commit of its journal, or else prints its result."""

import asyncio
import json
import sys
from pathlib import Path

import abreast
from abreast.jobs.workflow.job import Flow
from abreast.run.current import current_item
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import crash_at
from tests.jobs.workflow.kits import FakeKit, each, fan, flow, step, told

WIDTH = 3
LOOP = {
    "id": "loop",
    "type": "do-while",
    "max_iterations": 2,
    "condition": "{{ true }}",
    "steps": [each("l")],
}
INNER = fan(
    ["x", "y"], step("leaf", "{{ item }}-{{ steps.a.output.value }}"), name="inner", width=WIDTH
)
WORKFLOW = flow(
    step("first"), fan(list(range(6)), each("a"), LOOP, INNER, width=WIDTH), step("last")
)


class Counting(FakeKit):
    """Writes a file for every call, named by the path that the call is recorded under."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    async def act(self, who):
        with (self.folder / current_item().path.replace("/", "+")).open("a") as mark:
            mark.write("x")
        return await super().act(who)


async def main(place, folder, crash):
    store = SqliteStore(place)
    try:
        driven = crash_at(store, int(crash[0]), crash[1]) if crash else store
        resume = "failed" if store.newest("flow") else "auto"
        async with abreast.open_run("flow", store=driven, seed=1, resume=resume) as run:
            return told(await Flow(WORKFLOW, Counting(Path(folder))).run(run, {}))
    finally:
        store.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))))  # noqa: T201
