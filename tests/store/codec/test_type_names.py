"""Types in a store: abreast's own go by stable names, a user's are never imported."""

import asyncio
import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
from contextlib import closing

import pytest

import abreast
from abreast.core.errors import StoreError, TypeNotLoaded
from abreast.core.item import Item, position_key
from abreast.core.outcome import Usage
from abreast.jobs.plan.spec import Reason
from abreast.models.port import Reply, ToolCall
from abreast.run.map.recorded_input import InputIncomplete
from abreast.store.codec import type_names
from abreast.store.codec.codec import decode, digest, encode
from abreast.store.codec.named_types import types_by_name
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import MemoryStore
from tests.fixtures.recorded.load import HERE
from tests.store import shapes

# Values with the text and the digest that the version before stable names gave them.
REPLY = Reply(text="four", tool_calls=(ToolCall("c1", "add", {"a": 2}),), usage=Usage(1, 7, 2, 0.5))
BEFORE = (
    (
        REPLY,
        (
            '{"~":"dataclass","v":{"text":"four","value":null,"tool_calls":{"~":"tuple","v":[{"~":"dataclass","v":'
            '{"id":"c1","name":"add","arguments":{"a":2}},"t":"abreast.models.port:ToolCall"}]},"usage":{"~":"dataclass",'
            '"v":{"requests":1,"input_tokens":7,"output_tokens":2,"usd":0.5,"estimate":false},'
            '"t":"abreast.core.outcome:Usage"},"finish":"stop","model":"","id":"","seconds":0.0,"first_token":null,'
            '"headers":null},"t":"abreast.models.port:Reply"}'
        ),
        "0eb5cfca65c705d28bb25f6cbe1a8f98",
    ),
    (
        Item("a", {"x": 1}),
        '{"~":"dataclass","v":{"key":"a","value":{"x":1},"lane":null},"t":"abreast.core.item:Item"}',
        "595ef1585513bd57973023b76992caa2",
    ),
    (
        Reason.MAX_DEPTH,
        '{"~":"enum","v":"MAX_DEPTH","t":"abreast.jobs.plan.spec:Reason"}',
        "665b149f943db3d51364251093f64b7c",
    ),
)


@pytest.mark.parametrize(("value", "text", "recorded_digest"), BEFORE)
def test_what_was_recorded_before_stable_names_is_read_and_has_the_same_digest(
    value, text, recorded_digest
):
    assert decode(text) == value
    assert digest(value) == recorded_digest


@pytest.mark.parametrize(("value", "text", "_"), BEFORE)
def test_own_types_are_written_by_their_stable_names_alone(value, text, _):
    written = encode(value, "here")
    assert decode(written) == value
    names = {line.partition('"')[0] for line in written.split('"t":"')[1:]}
    assert names
    assert names.isdisjoint(line.partition('"')[0] for line in text.split('"t":"')[1:])
    assert all(name.startswith("abreast:") for name in names)


def test_every_own_type_that_an_earlier_store_names_is_in_the_table():
    texts = [path.read_text("utf-8") for path in (HERE / "store.sql", HERE / "files.json")]
    named = {name for text in texts for name in re.findall(r"abreast[\w.]*:[A-Z]\w*", text)}
    assert len(named) > 10
    assert {name for name in named if type_names.home_of(name) is None} == set()


@dataclasses.dataclass(frozen=True)
class Moved:
    """The class of Item, as it might be called and placed some day."""

    key: str
    value: object
    lane: str | None = None


def test_a_class_that_was_renamed_and_moved_is_found_by_all_its_names(monkeypatch):
    value, text, recorded_digest = BEFORE[1]
    written = encode(value, "here")
    home = f"{__name__}:Moved"
    monkeypatch.setitem(type_names._HOME, "abreast:Item", home)
    monkeypatch.setitem(type_names._STABLE_BY_HOME, home, "abreast:Item")
    moved = Moved("a", {"x": 1})
    assert decode(text) == decode(written) == moved
    assert encode(moved, "here") == written
    assert digest(moved) == recorded_digest


@pytest.mark.parametrize("stable", type_names._FIRST)
def test_every_stable_name_leads_to_a_type_that_the_codec_writes(stable):
    module, _, qualname = type_names.home_of(stable).partition(":")
    found = getattr(importlib.import_module(module), qualname)
    assert types_by_name([found]) == {f"{module}:{qualname}": found}
    assert type_names.stable_name(f"{module}:{qualname}") == stable
    assert type_names.home_of(type_names.digest_name(stable)) == f"{module}:{qualname}"


def test_every_type_of_the_public_face_has_a_stable_name():
    public = [getattr(abreast, name) for name in abreast.__all__]
    values = [one for one in public if isinstance(one, type) and dataclasses.is_dataclass(one)]
    assert values
    assert [
        one
        for one in values
        if type_names.stable_name(f"{one.__module__}:{one.__qualname__}") is None
    ] == []


# --- a user's types ---

_SHOP = """
import dataclasses, pathlib
pathlib.Path({mark!r}).touch()

@dataclasses.dataclass
class Order:
    number: int
"""


@pytest.fixture
def shop(tmp_path):
    """A folder with a module whose import leaves a mark."""
    (tmp_path / "shop.py").write_text(_SHOP.format(mark=str(tmp_path / "imported")))
    return tmp_path


def in_python(folder, code):
    """What a program of the user's prints, the last line of what it says, and its exit code."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *filter(None, sys.path)))}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.stdout.strip(), ended.stderr.strip().splitlines()[-1:], ended.returncode


_RUN = """
import abreast
def work(number):
    if number == 3:
        raise LookupError
    {work}
def orders():
    found = abreast.map(
        work, range({count}), width=1, name="orders", store="runs.db", on_error="raise", {more}
    )
    return [one.value for one in found]
"""


def record(folder):
    code = _RUN.format(work="return shop.Order(number)", count=4, more="")
    said = in_python(
        folder, f"import shop\n{code}\ntry: orders()\nexcept LookupError: print('stopped')"
    )
    assert said == ("stopped", [], 0)
    (folder / "imported").unlink()


def resume(folder, first="", more=""):
    return in_python(
        folder, f"{first}\n{_RUN.format(work='return number', count=3, more=more)}\nprint(orders())"
    )


def test_a_resumed_run_stops_with_a_sentence_where_a_type_is_not_imported(shop):
    record(shop)
    printed, said, code = resume(shop)
    assert not (shop / "imported").exists()
    assert (printed, code) == ("", 1)
    sentence = (
        "a recorded value is a shop:Order, and a store's types are never imported: "
        "import shop first, or pass open_run(types=[Order])"
    )
    assert said == [f"abreast.core.errors.TypeNotLoaded: {sentence}"]


def test_a_resumed_run_reads_types_that_are_imported_already(shop):
    record(shop)
    assert resume(shop, "import shop")[0] == "[Order(number=0), Order(number=1), Order(number=2)]"


def test_a_resumed_run_reads_types_that_are_handed_in(shop):
    record(shop)
    # The module goes by another name here: the type is what counts, as long as it says where it
    # stands.
    first = "import sys, shop\nOrder = shop.Order\ndel sys.modules['shop']"
    assert (
        resume(shop, first, "types=[Order]")[0]
        == "[Order(number=0), Order(number=1), Order(number=2)]"
    )


def test_a_type_of_a_script_is_read_by_that_script_and_by_whoever_hands_it_in():
    text = '{"~":"dataclass","v":{"x":1},"t":"__main__:Outer.Inner"}'
    with pytest.raises(
        TypeNotLoaded, match=r"__main__:Outer\.Inner, a type of the script that recorded it"
    ):
        decode(text)
    assert decode(text, types_by_name([shapes.Outer.Inner])) == shapes.Outer.Inner(1)


@pytest.mark.parametrize("given", [3, int, "shapes:Plain", Exception, shapes.Plain(1)])
def test_what_the_codec_would_never_write_by_name_is_refused_as_a_type(given):
    with pytest.raises(
        TypeError, match="types must be dataclasses, enums, named tuples or pydantic models"
    ):
        abreast.open_run("x", types=[given])


def test_no_code_of_a_module_is_run_to_find_a_type(monkeypatch):
    asked = []
    monkeypatch.setattr(shapes, "__getattr__", asked.append, raising=False)
    with pytest.raises(StoreError, match=r"tests\.store\.shapes has no 'Lazy'"):
        decode('{"~":"dataclass","v":{},"t":"tests.store.shapes:Lazy"}')
    assert asked == []


def test_facts_of_events_and_runs_are_plain_whatever_the_store_says():
    with closing(MemoryStore()) as store:
        asyncio.run(
            _begin(store, {"said": {"~": "dataclass", "v": {"x": 1}, "t": "no.such.module:Thing"}})
        )
        assert store.runs()[0].manifest["said"] == {"x": 1}


async def _begin(store, manifest):
    async with abreast.open_run("x", store=store, manifest=manifest):
        pass


def test_items_read_once_by_an_earlier_version_are_still_the_same_items():
    """Their texts name types as that version did."""
    with closing(MemoryStore()) as store:
        asyncio.run(_read_some(store))
        with store._db.writing() as db:
            changed = db.execute(
                "UPDATE events SET body = replace(body, '\"abreast:Item\"',"
                " '\"abreast.core.item:Item\"')"
                " WHERE kind = 'item-read' AND body LIKE '%\"abreast:Item\"%'"
            )
            assert changed.rowcount > 0
        asyncio.run(_read_all(store, ["a", "b", "c"]))
        assert store.runs()[0].state == "done"


def test_other_items_than_those_read_before_are_still_refused():
    with closing(MemoryStore()) as store:
        asyncio.run(_read_some(store))
        with pytest.raises(InputIncomplete, match="item 1 is not the one read before"):
            asyncio.run(_read_all(store, ["a", "x", "c"]))


async def _read_some(store):
    def broken():
        yield Item("a", 1)
        yield Item("b", 2)
        raise LookupError("the pipe broke")

    with pytest.raises(LookupError):
        async with abreast.open_run("x", store=store) as run:
            await run.map(_number, run.intake("in", broken()), width=1).values()


async def _read_all(store, keys):
    async with abreast.open_run("x", store=store) as run:
        items = [Item(key, number) for number, key in enumerate(keys, 1)]
        assert await run.map(_number, run.intake("in", items), width=1).values() == [1, 2, 3]


async def _number(value):
    return value


def test_commands_for_people_import_nothing_that_a_store_names(shop):
    """Neither a value's type nor that of an error's details."""
    code = """
import abreast, shop
class Odd(Exception):
    details = {"order": shop.Order(7)}
def work(number):
    if number: raise Odd("no")
    return shop.Order(0)
print([one.ok for one in abreast.map(work, [0, 1], width=1, name="orders", store="runs.db")])
"""
    assert in_python(shop, code)[0] == "[True, False]"
    (shop / "imported").unlink()
    shown = [_abreast(shop, *words) for words in _FOR_PEOPLE]
    assert [code for _, code in shown] == [0] * len(shown)
    assert not (shop / "imported").exists()
    rows = [json.loads(line) for line in shown[-1][0].splitlines()]
    assert [row.get("value") for row in rows] == [{"number": 0}, None]


_FOR_PEOPLE = (
    ("runs",),
    ("show", "orders-1"),
    ("show", "orders-1", position_key(1)),
    ("export", "orders-1", "-o", "page.html"),
    ("export", "orders-1"),
)


def _abreast(folder, *words):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *filter(None, sys.path)))}
    ended = subprocess.run(
        [sys.executable, "-m", "abreast", *words, "--store", "runs.db"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.stdout, ended.returncode


def test_the_page_imports_nothing_that_a_store_names(shop, monkeypatch):
    from abreast.views.run_reader import error_of

    monkeypatch.syspath_prepend(shop)
    text = json.dumps(
        {
            "type": "Odd",
            "message": "no",
            "trace": "",
            "details": {"order": {"~": "dataclass", "v": {"number": 7}, "t": "shop:Order"}},
        },
        separators=(",", ":"),
    )
    recorded = dataclasses.make_dataclass("Recorded", ["body"])(text)
    assert error_of(recorded).details == {"order": {"number": 7}}
    assert not (shop / "imported").exists()
    assert "shop" not in sys.modules


def test_a_recorded_item_of_an_own_type_is_not_taken_for_changed(tmp_path):
    with closing(SqliteStore(tmp_path / "runs.db")) as store:
        asyncio.run(_map(store, [REPLY]))
        [recorded] = store.outcomes("x-1")
        assert recorded.data["digest"] == BEFORE[0][2]


async def _map(store, items):
    async with abreast.open_run("x", store=store) as run:
        await run.map(_number, items, width=1).values()
