"""Generated inputs: similar to the recorded ones, reproducible, and shrunk if they differ."""

import datetime as dt
import json
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.candidates.behaviour.traced_run import Tests, watch
from abreast.jobs.candidates.child.trying import Unbuildable, build
from abreast.jobs.candidates.inputs.generate import GeneratedCall, generate, whole_call
from abreast.jobs.candidates.inputs.mutate import SeededRandom, ValueProfile, mutate, smaller
from abreast.jobs.candidates.inputs.plain_values import NotPlain, from_snapshot, from_value
from abreast.jobs.candidates.inputs.probe import prepare
from abreast.jobs.candidates.inputs.unusual import PREFIX
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.values.compare import compare
from abreast.jobs.candidates.values.invocation import observe
from abreast.jobs.candidates.values.take_snapshot import take_snapshot
from abreast.worktrees.confinement import ResourceLimits
from tests.jobs.candidates import things
from tests.jobs.candidates.watched import LIMITS, open_project, use_cache

F = Target("f.py", "f")


def recorded(*calls):
    return [observe(f"test#{at}", lambda *a, **k: None, *args) for at, args in enumerate(calls)]


def arguments(inputs):
    """The arguments of generated calls, made again."""
    return [build(json.loads(json.dumps(call.to_json()["args"]))) for call in inputs.calls]


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.sets(st.integers(), max_size=3),
    ),
    max_leaves=12,
)


@given(values)
def test_a_description_makes_the_same_value_again(value):
    plain = from_snapshot(take_snapshot(value))
    again = build(json.loads(json.dumps(plain.to_json())))
    assert compare(value, again).outcome == "same"


@pytest.mark.parametrize(
    "value",
    [
        things.Point(1, [2]),
        things.Colour.RED,
        Decimal("-1.50"),
        Fraction(1, 3),
        dt.date(2026, 2, 28),
        dt.datetime(2026, 2, 28, 1, 2, 3, 4),  # noqa: DTZ001 - without a zone, on purpose
        dt.timedelta(3, 4, 5),
        Counter("aab"),
        OrderedDict(a=1),
        defaultdict(list, a=[1]),
        deque([1, 2]),
        things.Pair(1, "b"),
        1 + 2j,
        bytearray(b"ab"),
        frozenset({1}),
        range(1, 9, 2),
        PurePosixPath("a/b"),
    ],
    ids=repr,
)
def test_other_values_are_made_again_too(value):
    again = build(json.loads(json.dumps(from_snapshot(take_snapshot(value)).to_json())))
    assert compare(value, again).outcome == "same"


def test_what_cannot_be_made_again_is_said():
    loop = []
    loop.append(loop)
    for value in (loop, lambda: 0, iter([1]), list(range(4_000))):
        with pytest.raises(NotPlain):
            from_snapshot(take_snapshot(value, consume=False))
    for plain in (
        ["nothing", "", []],
        ["instance", "no.such.Class", []],
        ["int", "x", []],
        ["call", "range", []],
    ):
        with pytest.raises(Unbuildable):
            build(plain)


@given(values, st.integers(0, 1_000))
def test_a_changed_value_still_fits_its_kind(value, seed):
    plain = from_snapshot(take_snapshot(value))
    profile = ValueProfile([plain])
    changed = mutate(plain, profile, SeededRandom(seed))
    assert changed.kind == plain.kind
    assert mutate(plain, profile, SeededRandom(seed)) == changed


def test_smaller_ones_are_offered_until_nothing_is_left():
    value = from_value([["abc", 12], {"k": 2.5}])
    seen = [one for one in smaller(value) if one.size < value.size]
    assert from_value([]) in seen
    assert from_value([["", 12], {"k": 2.5}]) in seen
    assert from_value([["abc", 0], {"k": 2.5}]) in seen
    assert not [one for one in smaller(from_value([[], {}, "", 0, 0.0, None])) if one.size < 1]


def test_the_same_recorded_calls_and_seed_give_the_same_inputs():
    calls = recorded(([3, 1, 2], "ab"), ([5, 4], "ba"))
    first, second, other = (
        generate(calls, "def f(items, text): ...", F, count=60, seed=seed) for seed in (1, 1, 2)
    )
    assert first.encode() == second.encode() != other.encode()
    assert len(first.calls) > 40
    assert len({call.whole for call in first.calls}) == len(first.calls)


def test_what_all_recorded_inputs_have_in_common_is_kept():
    graph = {"a": ["b", "c"], "b": ["c"], "c": []}
    calls = recorded(
        ([1, 2, 3], graph, [[1, 2], [3, 4]]), ([2, 5, 9], {"x": ["y"], "y": []}, [[0, 0], [0, 1]])
    )
    made = generate(calls, "def f(items, graph, rows): ...", F)
    inputs = arguments(made)
    assert len(inputs) > 50
    for call, (items, edges, rows) in zip(made.calls, inputs, strict=True):
        assert items == sorted(items)
        assert min(items, default=0) >= 0 or call.name.startswith(PREFIX)
        assert all(node in edges for nodes in edges.values() for node in nodes)
        assert len({len(row) for row in rows}) <= 1
    assert any(not items for items, _, _ in inputs)
    assert len({len(edges) for _, edges, _ in inputs}) > 1


def test_what_only_some_have_is_not_kept():
    inputs = arguments(generate(recorded(([1, 2, 3],), ([3, 3, -1],)), "def f(items): ...", F))
    assert any(items != sorted(items) for (items,) in inputs)
    assert any(len(set(items)) < len(items) for (items,) in inputs)
    assert any(min(items, default=0) < 0 for (items,) in inputs)


HINTED = """
def f(n: int, name: "str", rows: list[tuple[float, bool]], table: dict[str, int | None],
      pair: tuple[int, ...], *, flag: Optional[bool] = None): ...
"""


def test_type_hints_are_enough():
    inputs = generate([], HINTED, F, count=80)
    assert len(inputs.calls) > 60
    for n, name, rows, table, pair in arguments(inputs):
        assert (type(n), type(name)) == (int, str)
        assert all(type(one) is float and type(other) is bool for one, other in rows)
        assert all(
            type(key) is str and type(held) in (int, type(None)) for key, held in table.items()
        )
        assert all(type(one) is int for one in pair)
    assert {build(call.to_json()["kwargs"])["flag"] for call in inputs.calls} == {None, True, False}


@pytest.mark.parametrize(
    "source",
    [
        "def f(a): ...",
        "def f(a: int, *b: int): ...",
        "def f(a: Widget): ...",
        "def f(a: list): ...",
    ],
)
def test_without_calls_or_hints_that_are_understood_there_are_no_inputs(source):
    assert generate([], source, F).calls == ()


def test_a_recorded_call_that_cannot_be_made_again_is_counted():
    inputs = generate(recorded((print,), (lambda: 0,), (3,)), "def f(a): ...", F)
    assert inputs.left_out == 2
    assert inputs.calls


def test_a_call_is_shown_as_one_would_write_it():
    invocation = observe("a", things.Plain(x=1, y=None).method, [1, "b"], by={"k": (2.0,)})
    call = GeneratedCall("x", whole_call(invocation.before))
    assert call.shown("moved") == "Plain(x=1, y=None).moved([1, 'b'], by={'k': (2.0,)})"


# --- with real processes


ORIGINAL = """
def f(items: list[int], k: int) -> list[int]:
    if k < 0:
        raise ValueError("k is 0 or more")
    out = []
    for one in items:
        if one not in out:
            out.append(one)
    return out[:k]
"""
TEST = """
import pytest
from f import f

@pytest.mark.parametrize(("items", "k"), [([], 1), ([3, 1], 1), ([2, 1, 3, 1], 3)])
def test_one(items, k):
    assert len(f(items, k)) <= k

def test_two():
    with pytest.raises(ValueError):
        f([1], -1)
"""
HONEST = """
from functools import cache

def f(items, k):
    if k < 0:
        raise ValueError("k is 0 or more")

    @cache
    def first(n):
        return n if not n or items[n - 1] not in items[: n - 1] else first(n - 1) * 1

    [first(n) for n in range(len(items) + 1)]
    return list(dict.fromkeys(items))[:k]
"""
SLOW_TO_DIFFER = """
def f(items, k):
    if k < 0:
        raise ValueError("k is 0 or more")
    return list(dict.fromkeys(items))[:k] if len(items) < 5 else sorted(set(items))[:k]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Opens a project; runs one side of it with inputs alone."""
    use_cache(monkeypatch, tmp_path)

    def opened(original=ORIGINAL, test=TEST):
        return open_project(
            tmp_path / "p", {"f.py": original, "test_f.py": test}, "f.py::f", ("test_f.py",)
        )

    return opened


def side(project, text=None, limits=LIMITS):
    async def run(inputs):
        await project.slot.reset()
        if text is not None:
            project.slot.write_candidate(project.target.file, dedent(text))
        return await watch(
            project.slot,
            project.target,
            Tests((), python=sys.executable),
            limits=limits,
            inputs=inputs,
        )

    return run


@pytest.mark.usefixtures("unconfined")
async def test_a_difference_that_no_test_shows_is_found_and_made_small(project):
    async with project() as opened:
        assert (await opened.judge(SLOW_TO_DIFFER)).verdict == "same"
        recorded = opened.original.invocations
        probe = await prepare(side(opened), recorded, ORIGINAL, opened.target)
        assert len(probe.inputs.calls) > 100
        assert probe.raises == {"ValueError"}
        behaviour = await probe.check(side(opened, HONEST), side(opened))
        assert (behaviour.verdict, behaviour.reason) == ("same", "")
        behaviour = await probe.check(side(opened, SLOW_TO_DIFFER), side(opened))
        assert behaviour.verdict == "wrong"
        call = behaviour.findings[0].name
        items = json.loads(call[2 : call.index("]") + 1])
        assert len(items) == 5  # the fewest that differ
        assert max(items) == 1
        assert behaviour.reason.startswith(f"{call}: returned")


async def test_what_the_original_itself_cannot_answer_is_dropped_and_counted(project):
    odd = """
    import itertools
    import threading

    TURN = itertools.count()

    def f(items: list[int], k: int):
        if k == 0:
            return object
        if k == 1:
            return iter([1]), id(items) and next(TURN) and threading.local()
        if k == 2:
            return f.__globals__["__file__"] and id(object())
        if k == 3:
            while True:
                pass
        if k == 4:
            raise KeyError(k)
        if k == 5:
            return bytearray(4 << 30)
        return [*items, k]
    """
    test = "from f import f\n\ndef test_f():\n    assert f([1], 9) == [1, 9]\n"
    async with project(odd, test) as opened:
        original = await opened.watch()
        probe = await prepare(side(opened), original.invocations, dedent(odd), opened.target)
        reasons = dict(probe.dropped)
        assert reasons.pop("the original answers differently each time") > 0
        assert reasons.pop("what the original does can't be compared") > 0
        assert reasons.pop("it takes the original too long") > 0
        assert reasons.pop("the original raises KeyError, which no test shows") > 0
        assert reasons.pop("the original raises MemoryError, which no test shows") > 0
        assert reasons == {}
        assert probe.inputs.calls
        assert (await probe.check(side(opened), side(opened))).verdict == "same"


async def test_an_input_without_end_is_a_timeout_that_names_the_call(project):
    hanging = SLOW_TO_DIFFER.replace(
        "    return", "    while len(items) > 6:\n        pass\n    return"
    )
    async with project() as opened:
        original = await opened.watch()
        probe = await prepare(side(opened), original.invocations, ORIGINAL, opened.target)
        limits = ResourceLimits(seconds=60, cpu=3)  # a busy machine takes long to start it
        behaviour = await probe.check(side(opened, hanging, limits), side(opened))
        assert behaviour.verdict == "timeout"
        assert ": f([" in behaviour.reason


METHOD = """
import asyncio

class Shelf:
    def __init__(self, held):
        self.held = held

    async def add(self, book, *, at=0):
        await asyncio.sleep(0)
        self.held.insert(at, book)
        return len(self.held)
"""
TEST_METHOD = """
import asyncio
from f import Shelf

def test_add():
    assert asyncio.run(Shelf(["a"]).add("b", at=1)) == 2
"""


@pytest.mark.usefixtures("unconfined")
async def test_methods_and_async_functions_are_tried_on_what_was_recorded(tmp_path):
    files = {"f.py": METHOD, "test_f.py": TEST_METHOD}
    async with open_project(tmp_path / "p", files, "f.py::Shelf.add", ("test_f.py",)) as opened:
        original = await opened.watch()
        probe = await prepare(side(opened), original.invocations, METHOD, opened.target)
        assert len(probe.inputs.calls) > 10
        assert [reason for reason in probe.dropped if "unusual" not in reason] == []
        wrong = METHOD.replace(
            "self.held.insert(at, book)", "self.held[at:at] = [book] if book else []"
        )
        behaviour = await probe.check(side(opened, wrong), side(opened))
        assert behaviour.verdict == "wrong"
        assert behaviour.findings[0].name == "Shelf(held=['a']).add('', at=0)"
