"""Whole-state JSON.

Each outcome rewrites the file of all outcomes (temporary file, fsync, os.replace).

The form in which many agent tools keep a run. It writes in place of the loop: with a thread per
write the rewrites would still follow each other, as each needs the state of the one before.
"""

import json
import os
from pathlib import Path

from benchmarks.contenders.meter import ITEMS, Lap, Load, on_loop, run
from benchmarks.contenders.taskgroup_window import window


def rewrite(path: Path, state: dict[int, object]) -> None:
    """Replace the file by the whole state, durably."""
    draft = path.with_suffix(".tmp")
    with draft.open("w", encoding="utf-8") as file:
        file.write(json.dumps(state))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


async def play(load: Load, lap: Lap) -> list[object]:
    """Play C or W."""
    function, path = ITEMS[load.work], load.scratch / "state.json"
    state: dict[int, object] = {}

    async def durable(item: int) -> object:
        state[item] = await function(item)
        rewrite(path, state)
        return state[item]

    with lap:
        return await window(durable, range(load.n), load.width)


if __name__ == "__main__":
    run({"C": on_loop(play), "W": on_loop(play)})
