"""Comparisons of every kind of value in both directions: equal, and with each difference."""

import array
import collections
import datetime as dt
import decimal
import fractions
import functools
import io
import itertools
import math
import operator
import pathlib
import random
import re
import struct
import sys
import textwrap
import types
import uuid
import weakref
import zoneinfo

import pytest

from abreast.jobs.candidates.rules import LOOSE, RELAXABLE, STRICT, Rules
from abreast.jobs.candidates.values.compare import ValueVerdict, compare, compare_snapshots
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.take_snapshot import take_snapshot
from tests.jobs.candidates import things
from tests.jobs.candidates.snapshots import unpack
from tests.jobs.candidates.things import (
    Both,
    Classic,
    Colour,
    Mode,
    More,
    Number,
    Pair,
    Plain,
    Point,
    Row,
    Shade,
    Slotted,
    Still,
    Table,
    Trouble,
    Whole,
    Word,
    buffer,
    caused,
    closed,
    ending,
    failing,
    knot,
    local_class,
    moved,
    nested,
    noted,
    plus_one,
    plus_one_again,
    raised,
    ring,
    twice,
)

NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
UTC = dt.UTC
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")

# A maker of each value, called once for each side, and makers of values that differ from it.
CASES = {
    "none": (lambda: None, [lambda: False, lambda: 0, lambda: "None"]),
    "bool": (lambda: True, [lambda: False, lambda: 1, lambda: 1.0]),
    "int": (lambda: 10**30, [lambda: 10**30 + 1, lambda: -(10**30), lambda: 1e30]),
    "int of 20,000 digits": (lambda: 10**20_000, [lambda: 10**20_000 + 1]),
    "float": (lambda: 0.1 + 0.2, [lambda: 0.3, lambda: NAN, lambda: "0.30000000000000004"]),
    "zero": (lambda: 0.0, [lambda: -0.0, lambda: 0, lambda: 5e-324]),
    "infinity": (lambda: math.inf, [lambda: -math.inf, lambda: NAN, lambda: 1.7e308]),
    "nan": (lambda: NAN, [lambda: 0.0, lambda: None, lambda: decimal.Decimal("NaN")]),
    "complex": (
        lambda: complex(NAN, -0.0),
        [lambda: complex(NAN, 0.0), lambda: complex(0, -0.0), lambda: NAN],
    ),
    "decimal": (lambda: decimal.Decimal("1.10"), [lambda: decimal.Decimal("1.1"), lambda: 1.10]),
    "decimal nan": (
        lambda: decimal.Decimal("NaN"),
        [lambda: decimal.Decimal("sNaN"), lambda: decimal.Decimal("NaN12")],
    ),
    "fraction": (lambda: fractions.Fraction(2, 4), [lambda: fractions.Fraction(1, 3), lambda: 0.5]),
    "str": (lambda: "é", [lambda: "e\u0301", lambda: b"\xe9", lambda: "E"]),
    "emoji": (lambda: "\U0001f600", [lambda: "\ud83d\ude00"]),
    "bytes": (lambda: b"ab\xff", [lambda: bytearray(b"ab\xff"), lambda: b"ab", lambda: "ab\xff"]),
    "bytearray": (lambda: bytearray(b"ab"), [lambda: bytearray(b"ac"), lambda: b"ab"]),
    "ellipsis": (lambda: ..., [lambda: NotImplemented, lambda: None]),
    "list": (
        lambda: [1, [2]],
        [lambda: [1, [3]], lambda: (1, [2]), lambda: [1], lambda: [1, [2], 3], lambda: [[2], 1]],
    ),
    "tuple": (lambda: (1, 2), [lambda: (2, 1), lambda: [1, 2], lambda: Pair(1, 2)]),
    "named tuple": (lambda: Pair(1, 2), [lambda: Pair(1, 3), lambda: Classic(1, 2)]),
    "dict": (
        lambda: {"a": 1, "b": 2},
        [lambda: {"a": 1}, lambda: {"a": 1, "b": 3}, lambda: {"b": 2, "a": 1}],
    ),
    "dict of 1": (lambda: {1: "x"}, [lambda: {True: "x"}, lambda: {1.0: "x"}, lambda: {"1": "x"}]),
    "dict of nan": (
        lambda: {NAN: 1},
        [lambda: {1: NAN}, lambda: {NAN: 2}, lambda: {NAN: 1, OTHER_NAN: 1}],
    ),
    "ordered dict": (
        lambda: collections.OrderedDict(a=1, b=2),
        [lambda: collections.OrderedDict(b=2, a=1), lambda: {"a": 1, "b": 2}],
    ),
    "default dict": (
        lambda: collections.defaultdict(list, a=1),
        [
            lambda: collections.defaultdict(set, a=1),
            lambda: collections.defaultdict(None, a=1),
            lambda: {"a": 1},
        ],
    ),
    "counter": (
        lambda: collections.Counter("aab"),
        [lambda: collections.Counter("abb"), lambda: {"a": 2, "b": 1}],
    ),
    "chain map": (
        lambda: collections.ChainMap({"a": 1}, {"b": 2}),
        [
            lambda: collections.ChainMap({"a": 1, "b": 2}),
            lambda: collections.ChainMap({"b": 2}, {"a": 1}),
        ],
    ),
    "user dict": (
        lambda: collections.UserDict(a=1),
        [lambda: collections.UserDict(a=2), lambda: {"a": 1}],
    ),
    "proxy": (
        lambda: types.MappingProxyType({"a": 1}),
        [lambda: types.MappingProxyType({"a": 2}), lambda: {"a": 1}],
    ),
    "keys": ({"a": 1}.keys, [{"b": 1}.keys, {"a": 1}.values, lambda: ["a"]]),
    "values": ({"a": 1}.values, [{"a": 2}.values]),
    "items": ({"a": 1}.items, [{"a": 2}.items]),
    "set": (
        lambda: {1, "b", (2, 3)},
        [lambda: {1, "b"}, lambda: {1, "b", (2, 4)}, lambda: frozenset({1, "b", (2, 3)})],
    ),
    "set of 1": (lambda: {1}, [lambda: {True}, lambda: {1.0}]),
    "set of nan": (
        lambda: {NAN, 1.0},
        [lambda: {NAN}, lambda: {0.0, 1.0}, lambda: {NAN, OTHER_NAN, 1.0}],
    ),
    "set of two nans": (lambda: {NAN, OTHER_NAN}, [lambda: {NAN}, lambda: {NAN, 2.0}]),
    "set of sets": (
        lambda: {frozenset({1, 2}), frozenset()},
        [lambda: {frozenset({1, 3}), frozenset()}],
    ),
    "set of objects": (
        lambda: {Plain(a=1), Plain(a=2)},
        [lambda: {Plain(a=1), Plain(a=3)}, lambda: {Plain(a=1)}],
    ),
    "set of alike": (
        lambda: {Plain(), Plain()},
        [lambda: {Plain()}, lambda: {Plain(), Plain(a=1)}],
    ),
    "deque": (
        lambda: collections.deque([1, 2], 5),
        [
            lambda: collections.deque([1, 2], 4),
            lambda: collections.deque([2, 1], 5),
            lambda: collections.deque([1, 2]),
        ],
    ),
    "array": (
        lambda: array.array("d", [1.0, NAN]),
        [
            lambda: array.array("d", [1.0, 2.0]),
            lambda: array.array("f", [1.0, NAN]),
            lambda: array.array("d", [1.0]),
        ],
    ),
    "array of ints": (
        lambda: array.array("i", [1, 2]),
        [lambda: array.array("i", [1, 3]), lambda: array.array("I", [1, 2])],
    ),
    "array of text": (lambda: array.array("u", "ab"), [lambda: array.array("u", "ac")]),
    "memoryview": (
        lambda: memoryview(b"abcd")[1:3],
        [
            lambda: memoryview(b"abcd")[:2],
            lambda: memoryview(bytearray(b"abcd"))[1:3],
            lambda: b"bc",
        ],
    ),
    "memoryview of floats": (
        lambda: memoryview(array.array("d", [NAN])),
        [lambda: memoryview(array.array("d", [1.0])), lambda: memoryview(array.array("f", [NAN]))],
    ),
    "range": (
        lambda: range(0, 10, 2),
        [lambda: range(0, 9, 2), lambda: range(10), lambda: [0, 2, 4, 6, 8]],
    ),
    "slice": (lambda: slice(1, None), [lambda: slice(1), lambda: slice(1, None, 1)]),
    "date": (
        lambda: dt.date(2026, 1, 2),
        [lambda: dt.date(2026, 1, 3), lambda: dt.datetime(2026, 1, 2, tzinfo=UTC)],
    ),
    "datetime": (
        lambda: dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
        [
            lambda: dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
            lambda: dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
            lambda: dt.datetime(2026, 10, 25, 2, 30),  # noqa: DTZ001 - without a zone
            lambda: dt.datetime(2026, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Rome")),
        ],
    ),
    "time": (
        lambda: dt.time(1, 2, 3, 4),
        [lambda: dt.time(1, 2, 3, 5), lambda: dt.time(1, 2, 3, 4, tzinfo=UTC)],
    ),
    "timedelta": (
        lambda: dt.timedelta(1, 2, 3),
        [lambda: dt.timedelta(1, 2, 4), lambda: 86402.000003],
    ),
    "timezone": (
        lambda: dt.timezone(dt.timedelta(hours=1), "x"),
        [
            lambda: dt.timezone(dt.timedelta(hours=1)),
            lambda: dt.timezone(dt.timedelta(hours=2), "x"),
        ],
    ),
    "path": (
        lambda: pathlib.Path("a/b"),
        [lambda: pathlib.Path("a/c"), lambda: pathlib.PurePosixPath("a/b"), lambda: "a/b"],
    ),
    "pattern": (
        lambda: re.compile("a+"),
        [lambda: re.compile("a*"), lambda: re.compile("a+", re.IGNORECASE), lambda: "a+"],
    ),
    "match": (
        lambda: re.search("b+", "abbc"),
        [lambda: re.search("b", "abbc"), lambda: re.search("b+", "xbbc")],
    ),
    "uuid": (lambda: uuid.UUID(int=5), [lambda: uuid.UUID(int=6), lambda: 5]),
    "text stream": (
        lambda: moved(io.StringIO("abc"), 1),
        [
            lambda: moved(io.StringIO("abc"), 2),
            lambda: moved(io.StringIO("abd"), 1),
            lambda: closed(io.StringIO("abc")),
        ],
    ),
    "byte stream": (
        lambda: moved(io.BytesIO(b"abc"), 1),
        [
            lambda: moved(io.BytesIO(b"abc"), 0),
            lambda: moved(io.BytesIO(b"abd"), 1),
            lambda: closed(io.BytesIO()),
        ],
    ),
    "closed stream": (lambda: closed(io.StringIO("a")), [lambda: io.StringIO("a")]),
    "enum": (lambda: Colour.RED, [lambda: Colour.BLUE, lambda: Shade.RED, lambda: 1]),
    "int enum": (lambda: Number.ONE, [lambda: 1]),
    "flags": (lambda: Mode.READ | Mode.WRITE, [lambda: Mode.READ, lambda: 3]),
    "object": (
        lambda: Plain(a=1, b=[2]),
        [lambda: Plain(a=1), lambda: Plain(a=1, b=[3]), lambda: Point(1, [2])],
    ),
    "slots": (lambda: Slotted(a=1), [lambda: Slotted(a=2), Slotted, lambda: Slotted(a=1, b=None)]),
    "slots and dict": (lambda: both(1, 2), [lambda: both(1, 3), lambda: both(2, 2)]),
    "inherited slots": (
        lambda: More(a=1, c=2),
        [lambda: More(a=1, c=3), lambda: More(a=2, c=2), lambda: Slotted(a=1)],
    ),
    "dataclass": (
        lambda: Point(NAN, 1, ["x"]),
        [lambda: Point(NAN, 1, ["y"]), lambda: Point(0.0, 1, ["x"])],
    ),
    "frozen": (lambda: Still(NAN), [lambda: Still(1), lambda: Still(None)]),
    "list with state": (
        lambda: row([1], "a"),
        [lambda: row([1], "b"), lambda: row([2], "a"), lambda: Row([1]), lambda: [1]],
    ),
    "str subclass": (lambda: Word("a"), [lambda: Word("b"), lambda: "a"]),
    "int subclass": (
        lambda: whole(3, "m"),
        [lambda: whole(3, "kg"), lambda: whole(4, "m"), lambda: 3],
    ),
    "dict subclass": (
        lambda: table("t"),
        [lambda: table("u"), lambda: Table(a=1), lambda: {"a": 1}],
    ),
    "namespace": (
        lambda: types.SimpleNamespace(a=1),
        [lambda: types.SimpleNamespace(a=2), types.SimpleNamespace],
    ),
    "random": (lambda: random.Random(1), [lambda: random.Random(2)]),
    "lambda": (
        lambda: lambda x: x + 1,
        [lambda: lambda x: x + 2, lambda: lambda x: x - 1, lambda: lambda y: y + 1],
    ),
    "function": (lambda: plus_one, [lambda: plus_one_again, lambda: math.sqrt]),
    "closure": (lambda: closure(1), [lambda: closure(2), lambda: closure([1])]),
    "defaults": (lambda: defaults(1, 2), [lambda: defaults(2, 2), lambda: defaults(1, 3)]),
    "partial": (
        lambda: functools.partial(plus_one, 1, y=2),
        [
            lambda: functools.partial(plus_one, 2, y=2),
            lambda: functools.partial(plus_one, 1, y=3),
            lambda: functools.partial(plus_one_again, 1, y=2),
        ],
    ),
    "bound method": (
        lambda: Plain(a=1).method,
        [lambda: Plain(a=2).method, lambda: Plain(a=1).other],
    ),
    "built-in": (lambda: len, [lambda: sum, lambda: math.sqrt]),
    "built-in method": (lambda: [1].append, [lambda: [2].append, lambda: [1].pop]),
    "method of a type": (lambda: str.upper, [lambda: str.lower, lambda: bytes.upper]),
    "slot of a type": (
        lambda: (1).__add__,
        [lambda: (2).__add__, lambda: (1).__sub__, lambda: int.__add__],
    ),
    "getters": (
        lambda: operator.itemgetter(1, 2),
        [lambda: operator.itemgetter(1), lambda: operator.attrgetter("a")],
    ),
    "caller": (
        lambda: operator.methodcaller("f", 1, k=2),
        [lambda: operator.methodcaller("f", 1, k=3)],
    ),
    "class": (lambda: Plain, [lambda: Slotted, lambda: int]),
    "local class": (lambda: local_class(0), [lambda: local_class(1)]),
    "instance of a local class": (local_class(0), [local_class(1)]),
    "module": (lambda: math, [lambda: operator]),
    "property": (lambda: property(plus_one), [lambda: property(plus_one_again)]),
    "static method": (
        lambda: staticmethod(plus_one),
        [lambda: classmethod(plus_one), lambda: staticmethod(len)],
    ),
    "alias": (lambda: list[int], [lambda: list[str], lambda: set[int]]),
    "union": (lambda: int | str, [lambda: int | bytes]),
    "weak reference": (lambda: weak(1), [lambda: weak(2)]),
    "dead reference": (lambda: [None, weakref.ref(Plain())], [lambda: weak(1)]),
    "generator": (
        lambda: (i for i in range(3)),
        [lambda: (i for i in range(4)), lambda: (i for i in (0, 2, 1)), lambda: range(3)],
    ),
    "generator that fails": (
        lambda: failing([1]),
        [lambda: failing([2]), lambda: (i for i in [1])],
    ),
    "generator with an end": (
        lambda: ending([1], 2),
        [lambda: ending([1], 3), lambda: ending([1], None)],
    ),
    "state of a buffer in between": (
        lambda: buffer([[1], [2], [0]]),
        [lambda: buffer([[1], [3], [0]]), lambda: buffer([[2], [2], [0]])],
    ),
    "generator of one buffer": (
        lambda: buffer([[1], [2]]),
        [lambda: buffer([[2], [2]]), lambda: buffer([[1], [2], [2]])],
    ),
    "iterator": (lambda: iter([1, 2]), [lambda: iter([1]), lambda: iter((1, 2)), lambda: [1, 2]]),
    "map": (lambda: map(abs, [-1, 2]), [lambda: map(abs, [-1, 3]), lambda: iter([1, 2])]),
    "zip": (lambda: zip([1], [2], strict=True), [lambda: zip([1], [3], strict=True)]),
    "chain": (lambda: itertools.chain([1], [2]), [lambda: itertools.chain([1], [3])]),
    "exception": (
        lambda: ValueError("a", 1),
        [
            lambda: ValueError("a"),
            lambda: ValueError("a", 2),
            lambda: TypeError("a", 1),
            lambda: "a",
        ],
    ),
    "os error": (
        lambda: OSError(2, "no", "f"),
        [lambda: OSError(2, "no", "g"), lambda: OSError(13, "no", "f")],
    ),
    "own exception": (
        lambda: Trouble("a", code=1),
        [lambda: Trouble("a", code=2), lambda: Trouble("a")],
    ),
    "notes": (lambda: noted(ValueError(), "n"), [lambda: noted(ValueError(), "m"), ValueError]),
    "cause": (
        lambda: caused(ValueError(), KeyError("k")),
        [lambda: caused(ValueError(), KeyError("l")), ValueError],
    ),
    "context": (
        lambda: caused(ValueError(), None, KeyError("k")),
        [lambda: caused(ValueError(), None, KeyError("l")), ValueError],
    ),
    "group": (
        lambda: ExceptionGroup("g", [ValueError(1), KeyError(2)]),
        [
            lambda: ExceptionGroup("g", [ValueError(1)]),
            lambda: ExceptionGroup("h", [ValueError(1), KeyError(2)]),
        ],
    ),
    "unicode error": (lambda: raised(b"\xff".decode), [lambda: raised(b"\xfe".decode)]),
    "import error": (lambda: ImportError("m", name="a"), [lambda: ImportError("m", name="b")]),
    "stop": (lambda: StopIteration(1), [lambda: StopIteration(2)]),
    "cycle": (lambda: ring(1), [lambda: ring(2), lambda: [[]]]),
    "longer cycle": (lambda: ring(3), [lambda: ring(1), lambda: ring(2)]),
    "cycle in an object": (knot, [lambda: Plain(me=Plain(me=None)), lambda: Plain(me=None)]),
    "set in a cycle": (lambda: owner(1), [lambda: owner(2)]),
    "sharing": (lambda: twice(list), [lambda: [[], []]]),
    "sharing of bytes": (lambda: twice(bytearray), [lambda: [bytearray(), bytearray()]]),
    "sharing of objects": (lambda: twice(object), [lambda: [object(), object()]]),
    "wide of the same": (
        lambda: nested(60, 1, lambda one: (one, one)),
        [lambda: nested(60, 2, lambda one: (one, one))],
    ),
}


def both(a, extra):
    found = Both(a=a)
    found.extra = extra
    return found


def row(items, title):
    found = Row(items)
    found.title = title
    return found


def whole(number, unit):
    found = Whole(number)
    found.unit = unit
    return found


def table(title):
    found = Table(a=1)
    found.title = title
    return found


def closure(value):
    return lambda: value


def defaults(first, second):
    def function(a=first, *, b=second):
        return a, b

    return function


def weak(value):
    """A reference, and what keeps its object alive."""
    held = Plain(a=value)
    return [held, weakref.ref(held)]


def owner(value):
    """A set whose members lead back to it."""
    found = Plain(value=value, members=set())
    found.members |= {Plain(owner=found, at=0), Plain(owner=found, at=value)}
    return found


def both_ways(one, other, **options):
    """Return the outcome, which must be the same if sides are swapped or snapshots are packed."""
    there, back = compare(one(), other(), **options), compare(other(), one(), **options)
    assert there.outcome == back.outcome, (there, back)
    if not options:
        assert over_the_wire(one(), other()).outcome == there.outcome
    return there


def over_the_wire(one, other, rules=STRICT):
    return compare_snapshots(
        unpack(pack(take_snapshot(one))), unpack(pack(take_snapshot(other))), rules=rules
    )


@pytest.mark.parametrize("make", [case[0] for case in CASES.values()], ids=CASES)
def test_what_is_made_the_same_way_is_the_same(make):
    assert both_ways(make, make) == ValueVerdict("same")
    assert both_ways(
        lambda: [make(), {"a": make()}], lambda: [make(), {"a": make()}]
    ) == ValueVerdict("same")
    assert compare(make(), make(), rules=LOOSE).outcome == "same"


@pytest.mark.parametrize(
    ("make", "other"),
    [(make, other) for make, others in CASES.values() for other in others],
    ids=[f"{name}-{at}" for name, (_, others) in CASES.items() for at in range(len(others))],
)
def test_what_is_not_the_same_is_different(make, other):
    verdict = both_ways(make, other)
    assert verdict.outcome == "different"
    assert verdict.path.startswith("$")
    assert verdict.reason
    assert 0 < len(verdict.original) <= 100
    assert both_ways(lambda: Point(make()), lambda: Point(other())).outcome == "different"


def test_equal_snapshots_of_what_cannot_be_compared_are_not_the_same():
    frame = sys._getframe()
    first, second = (unpack(pack(take_snapshot([1, one]))) for one in (frame, frame))
    assert first == second
    assert compare_snapshots(first, second).outcome == "cannot_compare"
    first, second = (unpack(pack(take_snapshot({"a": [1, (2.0, None)]}))) for _ in range(2))
    assert compare_snapshots(first, second).outcome == "same"


@pytest.mark.parametrize(
    ("levels", "kind"),
    [
        (10_000, lambda one: [one]),
        (10_000, lambda one: frozenset([one, 0])),
        (5_000, lambda one: {"a": one}),
        (5_000, Still),
        (5_000, lambda one: iter([one])),
    ],
    ids=["list", "set", "dict", "object", "iterator"],
)
def test_ten_thousand_levels_are_as_good_as_one(levels, kind):
    assert compare(nested(levels, 1, kind), nested(levels, 1, kind)).outcome == "same"


def test_a_difference_is_found_ten_thousand_levels_down():
    assert compare(nested(10_000, 1), nested(10_000, 2)).path == "$" + "[0]" * 10_000


def sets_in_sets(width, depth, numbers):
    if depth == 0:
        return frozenset({next(numbers)})
    return frozenset(sets_in_sets(width, depth - 1, numbers) for _ in range(width))


def test_sets_that_could_belong_together_in_too_many_ways_are_given_up_soon():
    close = Rules(relative=1e-9)  # no float is decided by its value alone, so all pairs are tried
    few = [sets_in_sets(3, 3, itertools.count(1.0)) for _ in range(2)]
    assert compare(*few, rules=close).outcome == "same"
    many = [sets_in_sets(8, 4, itertools.count(1.0)) for _ in range(2)]
    verdict = compare(*many, rules=close)  # 64 ** 4 trials without a limit
    assert verdict.outcome == "cannot_compare"
    assert "too many ways" in verdict.reason


# --- the place of the first difference


@pytest.mark.parametrize(
    ("original", "candidate", "path", "shown"),
    [
        (
            {"items": [1, 2, {"price": 3}]},
            {"items": [1, 2, {"price": 4}]},
            '$["items"][2]["price"]',
            ("3", "4"),
        ),
        (Plain(items=[1]), Plain(items=[2]), "$.items[0]", ("1", "2")),
        ([1, 2], [1, 2, 3], "$[2]", ("nothing", "3")),
        ([1, 2, 3], [1, 9], "$[1]", ("2", "9")),
        ({1, 2}, {1, 3}, "${2}", ("2", "nothing")),
        ({1}, {1, 3}, "${…}", ("nothing", "3")),
        ({"a": 1}, {"b": 1}, "$[0]", ("'a'", "'b'")),
        (Plain(a=1), Plain(), "$.a", ("1", "nothing")),
        (Plain(), Plain(a=1), "$.a", ("nothing", "1")),
        (
            array.array("i", [1, 2]),
            array.array("i", [1, 3]),
            "$[1]",
            ("array.array(1, 2)", "array.array(1, 3)"),
        ),
        (ValueError("a"), ValueError("b"), "$.args[0]", ("'a'", "'b'")),
        ({(1, 2): [0]}, {(1, 2): [1]}, "$[(1, 2)][0]", ("0", "1")),
        ([1, [2], (3, 4)], [1, [2], (3, 5)], "$[2][1]", ("4", "5")),
    ],
)
def test_the_first_difference_is_named_with_both_sides(original, candidate, path, shown):
    verdict = compare(original, candidate)
    assert (verdict.path, (verdict.original, verdict.candidate)) == (path, shown)


def test_long_values_are_shortened():
    verdict = compare("x" * 10_000, ["y" * 10_000] * 1_000)
    assert len(verdict.original) <= 100
    assert len(verdict.candidate) <= 100
    assert "…" in verdict.original
    assert compare(list(range(100)), 0).original == "[0, 1, 2, 3, 4, 5, …]"
    assert compare(dict.fromkeys(range(100)), 0).original.endswith("5: None, …}")
    assert compare(10**500, 0).reason


def test_the_order_of_keys_is_told_from_other_keys():
    assert "order" in compare({1: 1, 2: 2}, {2: 2, 1: 1}).reason
    assert "differ" in compare({1: 1, 2: 2}, {1: 1, 3: 2}).reason


def test_what_shares_is_said():
    assert "$[0]" in compare(twice(list), [[], []]).reason
    assert "original" in compare(twice(list), [[], []]).reason
    assert "candidate" in compare([[], []], twice(list)).reason


def test_a_verdict_is_no_yes_or_no():
    with pytest.raises(TypeError, match="three outcomes"):
        bool(compare(1, 1))
    assert str(compare(1, 1)) == "same"
    assert str(compare(1, 2)) == "different at $: the values differ (original 1, candidate 2)"


# --- rules


RELAXED = {
    "dict_order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "signed_zero": ({0.0: [0.0]}, {-0.0: [-0.0]}),
    "sharing": ([[], []], twice(list)),
    "cause": (caused(ValueError(), KeyError()), ValueError()),
    "context": (caused(ValueError(), None, KeyError()), ValueError()),
    "notes": (noted(ValueError(), "n"), ValueError()),
    "class_identity": (
        type("Same", (), {"__module__": "tests"}),
        type("Same", (), {"__module__": "tests"}),
    ),
    "function_names": (plus_one, plus_one_again),
    "iterator_type": (None, None),
}


@pytest.mark.parametrize("name", RELAXABLE)
def test_each_rule_is_relaxed_by_its_own_name_and_by_no_other(name, monkeypatch):
    one, other = RELAXED[name]
    if name == "class_identity":
        one, other = two_classes_of_one_name(monkeypatch)
    make = (
        (lambda: iter([1]), lambda: (i for i in [1]))
        if name == "iterator_type"
        else (lambda: one, lambda: other)
    )
    assert compare(make[0](), make[1]()).outcome == "different"
    assert compare(make[0](), make[1](), rules=STRICT.without(name)).outcome == "same"
    assert compare(make[0](), make[1](), rules=LOOSE).outcome == "same"
    others = STRICT.without(*(one for one in RELAXABLE if one != name))
    assert compare(make[0](), make[1](), rules=others).outcome == "different"


def two_classes_of_one_name(monkeypatch):
    """Instances of two classes of one name: as when a module was loaded twice."""
    first = things.Plain
    second = type("Plain", (), {"__module__": first.__module__, "__qualname__": "Plain"})

    monkeypatch.setattr(
        "abreast.jobs.candidates.values.take_snapshot.is_local_class", lambda cls: False
    )
    return first(), second()


def test_a_rule_that_there_is_not_is_an_error():
    with pytest.raises(ValueError, match="no such rule: colour"):
        STRICT.without("colour")
    with pytest.raises(ValueError, match="tolerance"):
        Rules(relative=-1)
    with pytest.raises(ValueError, match="tolerance"):
        Rules(absolute=NAN)
    with pytest.raises(ValueError, match="args, message or type"):
        Rules(exceptions="all")


CLOSE = Rules(relative=1e-6)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x,
        lambda x: [x],
        lambda x: {x},
        lambda x: {x: 1},
        lambda x: {"a": x},
        lambda x: complex(x, x),
        Point,
        lambda x: {Still(x), Still(-x), Still(2 * x)},
        lambda x: frozenset({frozenset({x, 7.0}), frozenset({x, 8.0})}),
        lambda x: array.array("d", [x]),
        ValueError,
        lambda x: (i for i in [x]),
        lambda x: {x, 2 * x, 3 * x, NAN},
    ],
)
def test_floats_are_close_everywhere_or_nowhere(wrap):
    near, far = 1.0 + 1e-9, 1.0 + 1e-3
    assert both_ways(lambda: wrap(1.0), lambda: wrap(near)).outcome == "different"
    assert both_ways(lambda: wrap(1.0), lambda: wrap(near), rules=CLOSE).outcome == "same"
    assert both_ways(lambda: wrap(1.0), lambda: wrap(far), rules=CLOSE).outcome == "different"
    assert (
        both_ways(lambda: wrap(1.0), lambda: wrap(near), rules=Rules(absolute=1e-6)).outcome
        == "same"
    )


def test_every_nan_is_the_same_whatever_its_bits():
    one, other = array.array("d", [1.0, NAN]), array.array("d", [1.0, OTHER_NAN])
    assert one.tobytes() != other.tobytes()
    assert compare(one, other).outcome == "same"
    assert compare(one, array.array("d", [NAN, 1.0])).outcome == "different"
    assert compare({Plain(a=one)}, {Plain(a=other)}).outcome == "same"


def test_a_tolerance_is_for_floats_alone():
    assert compare(10**9, 10**9 + 1, rules=CLOSE).outcome == "different"
    assert compare(decimal.Decimal(1), decimal.Decimal("1.0"), rules=CLOSE).outcome == "different"
    assert compare(NAN, 1.0, rules=CLOSE).outcome == "different"
    assert compare(-0.0, 0.0, rules=CLOSE).outcome == "different"


def test_an_ordered_dict_keeps_its_order_by_every_rule():
    one, other = collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)
    assert compare(one, other, rules=LOOSE).outcome == "different"
    one.move_to_end("a")
    assert compare(one, other).outcome == "same"
    assert compare({Plain(d=one)}, {Plain(d=other)}, rules=LOOSE).outcome == "same"


def test_dicts_in_sets_without_order():
    one, other = {Plain(d={1: 2, 3: 4})}, {Plain(d={3: 4, 1: 2})}
    assert compare(one, other).outcome == "different"
    assert compare(one, other, rules=LOOSE).outcome == "same"
    assert compare({1: 1, 2: 2}, {2: 1, 1: 2}, rules=LOOSE).path == "$[1]"
    assert compare({1: 1, 2: 2}, {1: 1, 3: 2}, rules=LOOSE).outcome == "different"


@pytest.mark.parametrize(
    ("one", "other", "same_by"),
    [
        (ValueError("a"), ValueError("a"), {"args", "message", "type"}),
        (ValueError("a"), ValueError("b"), {"type"}),
        (ValueError("1"), ValueError(1), {"message", "type"}),
        (ValueError("a"), TypeError("a"), set()),
        (Trouble("a", code=1), Trouble("a", code=2), {"message", "type"}),
        (noted(ValueError("a"), "n"), ValueError("b"), set()),
        (KeyError("a"), KeyError("'a'"), {"type"}),
    ],
)
def test_exceptions_by_args_message_or_type(one, other, same_by):
    same = {
        how
        for how in ("args", "message", "type")
        if compare(one, other, rules=Rules(exceptions=how)).outcome == "same"
    }
    assert same == same_by


def test_a_message_of_more_than_plain_values_is_beyond_comparison():
    by_message = Rules(exceptions="message")
    assert compare(ValueError([1]), ValueError([2]), rules=by_message).outcome == "cannot_compare"
    broken = UnicodeDecodeError("utf-8", b"a", 0, 1, "x")
    broken.object = "no bytes"
    assert compare(broken, broken, rules=by_message).outcome == "same"


def test_functions_of_the_standard_library_are_their_names():
    assert compare(textwrap.dedent, textwrap.dedent).outcome == "same"
    assert compare(textwrap.dedent, textwrap.indent).outcome == "different"


def test_what_a_function_names_counts_with_it():
    def made(helper):
        space = {"helper": helper, "__name__": "somewhere"}
        exec("def function(x):\n    return [helper(one) for one in x]", space)
        return space["function"]

    assert compare(made(plus_one), made(plus_one)).outcome == "same"
    assert compare(made(plus_one), made(len)).path.startswith("$.<global>.helper")


def test_a_cell_that_is_empty_is_like_another():
    def made(*, full):
        def function():
            return held

        if full:
            held = 1
        return function

    assert compare(made(full=False), made(full=False)).outcome == "same"
    assert compare(made(full=True), made(full=False)).outcome == "different"


def test_a_class_with_names_that_are_no_text_is_beyond_comparison():
    def made():
        return type("Local", (), {Word("a"): 1})

    assert compare(made(), made()).outcome == "cannot_compare"


# --- what is left of it


def test_iterators_are_consumed_and_no_more_than_that():
    values = iter([1, 2, 3])
    compare(values, [1])
    assert list(values) == []
    held = [1, 2]
    compare(held, held)
    assert held == [1, 2]


def test_an_iterator_that_both_hold_is_consumed_once():
    values = (i for i in range(3))
    assert compare([values], [values]).outcome == "same"
    shared = iter([1])
    assert compare((shared, [shared]), (shared, [shared])).outcome == "same"


def test_sharing_between_what_an_iterator_yields_and_the_rest_counts():
    def make(*, share):
        held = []
        return [held, iter([held if share else []])]

    assert compare(make(share=True), make(share=True)).outcome == "same"
    assert compare(make(share=True), make(share=False)).outcome == "different"


def test_a_generator_that_yields_itself_ends():
    def make():
        def forever():
            yield found
            yield found

        found = forever()
        return found

    assert compare(make(), make()).outcome == "same"
