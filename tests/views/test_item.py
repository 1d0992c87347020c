"""One item in full: its input is found among the lines that were read together."""

import pytest

from abreast import open_run
from abreast.core.errors import NoSuchRun
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import MemoryStore
from abreast.views.item import item_of

LINES = [f"line {number}\nof {number}" for number in range(230)]


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runs.db")
    yield store
    store.close()


async def read_lines(store, key=None):
    async def work(line):
        return len(line)

    async with open_run("mine", store=store, resume="never") as run:
        await run.map(work, run.intake("input", LINES), width=3, name="items", key=key).values()


def given(store, key, run_id="mine-1"):
    said = item_of(store, store.get(run_id), f"mine/items/{key}", lambda *_: None)["input"]
    return said and said["text"]


# Characters in one event: those of one line, of a few, of many.
@pytest.mark.parametrize("together", [0, 100, 1 << 14])
async def test_every_item_is_shown_with_its_own_line(store, together, monkeypatch):
    monkeypatch.setattr("abreast.run.map.recorded_input.EVENT_CHARACTERS", together)
    await read_lines(store)
    assert [given(store, f"{number:04}") for number in range(230)] == LINES
    assert given(store, "0230") is None
    assert given(store, "no-number") is None
    with pytest.raises(NoSuchRun):
        item_of(store, store.get("mine-1"), "other/items/0000", lambda *_: None)


async def test_an_item_with_a_key_of_its_own_is_found_by_its_place(store):
    await read_lines(store, key=lambda line: f"k{line.split()[1]}")
    assert [given(store, f"k{number}") for number in (0, 99, 100, 229)] == [
        LINES[0],
        LINES[99],
        LINES[100],
        LINES[229],
    ]
