"""A large run, made of a smaller one that was driven: its events again and again, as if later.

A million items take a minute this way; to drive them takes ten.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Final

from abreast.assembly.names import find_store
from abreast.core.events import MAP_STARTED, RUN_STARTED, Event
from abreast.core.item import position_key
from abreast.store.port import Driver, each_event
from abreast.store.totals import RunTotals

BATCH: Final = 3000  # events of one commit


def repeat_run(store: str, small: str, name: str, times: int, *, ended: bool = True) -> str:
    """Write a run `name` with the items of the run `small`, so many times; its id.

    Unless it has `ended`, it is as if its driver had been killed.
    """
    with closing(find_store(store)) as opened:
        row = opened.get(small)
        events = list(each_event(opened, small, page=20_000))
        driver = Driver(os.getpid(), socket.gethostname(), row.created)
        large = opened.begin(
            name, kind=row.kind, seed=row.seed, manifest=row.manifest, tags=(), driver=driver
        )
        seq, last, totals = 0, events[-1], RunTotals(large)
        news = _repeated(events, row.name, name, times)
        while batch := [
            event._replace(seq=seq + place) for place, event in enumerate(islice(news, BATCH), 1)
        ]:
            opened.commit(large.id, large.epoch, batch, totals.facts(batch))
            seq, last = batch[-1].seq, batch[-1]
        if ended:
            opened.end(large.id, large.epoch, "done", "", last.wall)
    return large.id


def _repeated(events: list[Event], old: str, new: str, times: int) -> Iterator[Event]:
    items = [event for event in events if "index" in event.data]
    count = 1 + max(int(event.data["index"]) for event in items)  # type: ignore[arg-type]
    yield from (
        event._replace(path=event.path.replace(old, new, 1))
        for event in events
        if event.kind in (RUN_STARTED, MAP_STARTED)
    )
    lasted = items[-1].mono - items[0].mono
    for turn in range(times):
        for event in items:
            index = int(event.data["index"]) + turn * count  # type: ignore[arg-type]
            scope = event.path.rpartition("/")[0].replace(old, new, 1)
            yield event._replace(
                path=f"{scope}/{position_key(index)}",
                data={**event.data, "index": index},
                mono=event.mono + turn * lasted,
                wall=event.wall + turn * lasted,
            )
