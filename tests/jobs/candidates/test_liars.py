"""Values that misreport themselves, hide their content or can't be read: none is misjudged."""

import asyncio
import collections
import contextlib
import functools
import io
import itertools
import pathlib
import socket
import sys
import threading
import types
import weakref

import pytest

from abreast.jobs.candidates.rules import LOOSE
from abreast.jobs.candidates.values import stdlib_types
from abreast.jobs.candidates.values import take_snapshot as take_snapshot_module
from abreast.jobs.candidates.values.compare import compare
from abreast.jobs.candidates.values.take_snapshot import take_snapshot
from tests.jobs.candidates.things import Plain, Point


class Asked(BaseException):
    """A method of a value was called."""


def refuse(*args, **kwargs):
    raise Asked


def forever(*args, **kwargs):
    while True:
        pass


METHODS = (
    *(
        "__eq__",
        "__ne__",
        "__hash__",
        "__len__",
        "__iter__",
        "__next__",
        "__getattribute__",
        "__getattr__",
        "__repr__",
    ),
    *(
        "__str__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__bool__",
        "__contains__",
        "__getitem__",
        "__float__",
    ),
    *(
        "__int__",
        "__index__",
        "__complex__",
        "__dir__",
        "__copy__",
        "__deepcopy__",
        "__format__",
        "__sizeof__",
        "items",
    ),
    *(
        "keys",
        "values",
        "__get__",
        "__call__",
        "__lt__",
        "__instancecheck__",
        "__buffer__",
        "__fspath__",
        "__conform__",
    ),
)


def liar(base, answer=refuse):
    """A class of which every special method raises or never returns."""
    lying = {name: answer for name in METHODS if name != "__hash__" or base is not object}
    return type(
        "Liar",
        (base,),
        {
            **lying,
            "__class__": property(answer),
            "__module__": __name__,
            "__slots__": ("held",) if base is object else (),
        },
    )


def lie(base, answer, *args):
    found = base.__new__(liar(base, answer), *args)
    if base is object:
        liar_slot(found).__set__(found, args)
    return found


def liar_slot(found):
    return type.__getattribute__(type(found), "held")


@pytest.mark.parametrize("answer", [refuse, forever])
@pytest.mark.parametrize("base", [int, float, str, bytes, tuple, frozenset])
def test_no_method_of_a_value_is_called(base, answer):
    content = {
        int: (5,),
        float: (2.5,),
        str: ("a",),
        bytes: (b"a",),
        tuple: ((1,),),
        frozenset: ((1,),),
    }[base]
    kind = liar(base, answer)
    one, same = base.__new__(kind, *content), base.__new__(kind, *content)
    other = base.__new__(kind)
    assert compare(one, same).outcome == "same"
    assert compare([one], [other]).outcome == "different"
    assert compare(one, base(*content)).outcome == "different"


@pytest.mark.parametrize("base", [list, dict, set, collections.deque, collections.defaultdict])
def test_no_method_of_a_container_is_called(base):
    kind = liar(base)
    one, same, other = base.__new__(kind), base.__new__(kind), base.__new__(kind)
    fill = {list: list.append, set: set.add, collections.deque: collections.deque.append}
    put = fill.get(base, lambda held, value: dict.__setitem__(held, value, value))
    put(one, 1)
    put(same, 1)
    put(other, 2)
    assert compare(one, same).outcome == "same"
    assert compare(one, other).outcome == "different"


class Equal:
    """Equals everything."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    def __repr__(self):
        return "Equal()"


class Unequal(Equal):
    def __eq__(self, other):
        return False

    __hash__ = Equal.__hash__


def test_a_lying_equality_is_not_asked():
    assert compare(Equal(1), Equal(2)).outcome == "different"
    assert compare({Equal(1)}, {Equal(2)}).outcome == "different"
    assert compare({Equal(1): 1}, {Equal(2): 1}).outcome == "different"
    assert compare(Unequal(1), Unequal(1)).outcome == "same"
    assert compare(Equal(1), 1).outcome == "different"


class Pretender:
    """Claims to be an int."""

    @property
    def __class__(self):
        return int


def test_a_class_that_a_value_claims_is_not_its_class():
    assert compare(Pretender(), 5).outcome == "different"
    assert compare(Pretender(), Pretender()).outcome == "same"
    assert isinstance(Pretender(), int)


def test_a_name_that_a_class_claims_is_called_false():
    false = type("int", (int,), {"__module__": "builtins", "__qualname__": "int"})
    assert compare(false(1), 1).outcome == "different"
    assert "a false builtins.int" in compare(false(1), 1).reason
    deque = type(
        "deque", (collections.deque,), {"__module__": "collections", "__qualname__": "deque"}
    )
    assert compare(deque(), collections.deque()).outcome == "different"


class Hidden:
    """Replaces its `__dict__` by something else."""

    __dict__ = property(lambda self: {})

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


def test_state_behind_a_dict_that_is_hidden_is_beyond_comparison():
    one, other = Hidden(), Hidden()
    one.a, other.a = 1, 2
    verdict = compare(one, other)
    assert verdict.outcome == "cannot_compare"
    assert "hides" in verdict.reason


def test_a_slot_whose_descriptor_is_gone_is_found_by_its_size():
    class Box:
        __slots__ = ("a", "b")

    slot, one, other = Box.a, Box(), Box()
    slot.__set__(one, 1)
    slot.__set__(other, 2)
    assert compare(one, other).outcome == "different"
    del Box.a
    assert compare(one, other).outcome == "cannot_compare"


def test_a_slot_under_two_names_counts_once():
    class Box:
        __slots__ = ("a",)

    Box.b = Box.a
    one, other = Box(), Box()
    one.a = other.a = 1
    assert compare(one, other).outcome == "same"
    other.a = 2
    assert compare(one, other).outcome == "different"


def test_slots_of_one_name_in_two_classes_both_count():
    class Upper:
        __slots__ = ("a",)

    class Lower(Upper):
        __slots__ = ("a",)

    one, other = Lower(), Lower()
    Upper.a.__set__(one, 1)
    Upper.a.__set__(other, 2)
    one.a = other.a = 0
    assert compare(one, other).outcome == "different"


def test_an_attribute_beside_a_slot_of_its_name_counts():
    class Box(Point):
        __slots__ = ("extra",)

    one, other = Box(1), Box(1)
    one.extra = other.extra = 0
    one.__dict__["extra"] = 1
    assert compare(one, other).outcome == "different"


class Meta(type):
    """Misreports its classes."""

    __module__ = property(refuse)
    __mro__ = property(refuse)
    __base__ = property(refuse)
    __flags__ = property(refuse)
    __dict__ = property(refuse)

    __getattribute__ = refuse
    __subclasscheck__ = refuse
    __instancecheck__ = refuse
    __eq__ = refuse
    __bool__ = refuse
    __hash__ = refuse


class Mask(type):
    """Its classes hash and compare as if they were `int`."""

    def __hash__(cls):
        return hash(int)

    def __eq__(cls, other):
        return True


def test_a_class_that_passes_for_another_in_every_table_is_told_apart():
    kind = Mask("Kind", (), {"__init__": lambda self, held: setattr(self, "held", held)})
    assert {int: "int"}[kind] == "int"
    assert compare(kind(1), kind(2)).outcome == "different"
    assert compare(kind(1), kind(1)).outcome == "same"


def test_a_lying_metaclass_is_not_asked():
    kind = Meta("Kind", (), {})
    one, other = object.__new__(kind), object.__new__(kind)
    assert compare(one, other).outcome == "same"
    object.__setattr__(one, "a", 1)
    assert compare(one, other).outcome == "different"
    assert compare(kind, kind).outcome == "same"


def test_a_class_whose_module_is_gone_or_no_text():
    kind = type("Kind", (), {"__module__": 5})
    assert compare(kind(), kind()).outcome == "same"
    space = {}
    exec("found = type('Kind', (), {})", space)
    kind = space["found"]
    assert compare(kind(), kind()).outcome == "same"
    assert compare(kind, int).outcome == "different"


def test_a_class_that_is_half_hidden_is_taken_apart():
    kind = type("Kind", (), {"__module__": "math", "__qualname__": "pi.real.x"})
    other = type("Kind", (), {"__module__": "math", "__qualname__": "pi.real.x", "a": 1})
    assert compare(kind, other).outcome == "different"
    assert compare(kind(), other()).outcome == "different"


def test_an_attribute_that_is_no_text_is_beyond_comparison():
    one = Plain()
    one.__dict__[Equal(1)] = 1
    assert compare(one, one).outcome == "cannot_compare"


# --- beyond comparison


@contextlib.contextmanager
def an_open(make):
    found = make()
    try:
        yield found
    finally:
        found.close()


PLAIN = Plain()


async def coroutine():
    await asyncio.sleep(0)


async def async_generator():
    yield 1


def halting():
    """A generator that is running while its snapshot is taken can't be advanced."""
    found = []

    def look():
        found.append(compare(itself, itself).outcome)
        yield 1

    itself = look()
    next(itself)
    return found[0]


@pytest.mark.parametrize(
    "make",
    [
        threading.Thread,
        threading.local,
        sys._getframe,
        async_generator,
        lambda: functools.lru_cache(Plain),
        lambda: weakref.proxy(PLAIN),
        lambda: weakref.WeakMethod(PLAIN.method),
        lambda: memoryview(b"a").__enter__().release() or released(),
        lambda: collections.OrderedDict({Equal(1): 1}),
        lambda: type("Own", (type(pathlib.Path()),), {})("a"),
        lambda: types.ModuleType("a").__dict__.clear() or nameless(),
        itertools.count,
        lambda: itertools.repeat(1),
        lambda: (i for i in iter(int, 1)),
    ],
    ids=range(14),
)
def test_what_cannot_be_known_is_said_and_never_passed(make):
    for one, other in (
        (make(), make()),
        ([1, make()], [1, make()]),
        ({"a": make()}, {"a": make()}),
    ):
        verdict = compare(one, other, bound=100)
        assert verdict.outcome == "cannot_compare"
        assert verdict.reason
        assert compare(one, other, rules=LOOSE, bound=100).outcome == "cannot_compare"


def released():
    view = memoryview(b"a")
    view.release()
    return view


def nameless():
    module = types.ModuleType("a")
    del module.__name__
    return module


def test_sockets_and_coroutines_are_beyond_comparison():
    with (
        an_open(socket.socket) as one,
        an_open(pathlib.Path(__file__).open) as two,
        an_open(coroutine) as three,
    ):
        for value in (one, three, Plain(held=one)):
            assert compare(value, value).outcome == "cannot_compare"
        assert compare(one, two).outcome == "different"


def test_a_file_is_not_read():
    with pathlib.Path(__file__).open() as stream:
        assert compare(stream, stream).outcome == "same"
        assert stream.tell() == 0


def test_a_definite_difference_outweighs_a_doubt():
    thread = threading.Thread()
    assert compare([thread, 1], [thread, 2]).path == "$[1]"
    assert compare([thread, 1], [thread, 1]).path == "$[0]"
    assert compare(thread, 1).outcome == "different"
    assert compare(thread, threading.local()).outcome == "different"


def test_the_prefix_of_what_does_not_end_still_counts():
    assert compare(itertools.count(), itertools.count(), bound=50).outcome == "cannot_compare"
    assert compare(itertools.count(), itertools.count(1), bound=50).outcome == "different"
    assert compare(itertools.count(), iter(range(5)), bound=50).outcome == "different"
    assert (
        compare(itertools.repeat(1, 50), itertools.repeat(1, 50), bound=50).outcome
        == "cannot_compare"
    )
    assert compare(itertools.repeat(1, 49), itertools.repeat(1, 49), bound=50).outcome == "same"


def test_doubt_in_a_set_is_doubt_not_a_difference():
    one, other = {Plain(lock=threading.local(), a=1)}, {Plain(lock=threading.local(), a=1)}
    assert compare(one, other).outcome == "cannot_compare"
    more = {Plain(lock=threading.local(), a=1), Plain(lock=threading.local(), a=2)}
    assert compare(one, more).outcome == "cannot_compare"
    assert compare({Plain(lock=one): 1}, {Plain(lock=2): 1}).outcome in (
        "different",
        "cannot_compare",
    )


def test_too_many_parts_are_too_many():
    assert [node.kind for node in take_snapshot([1, [2], [3, 4]], nodes=4).nodes].count(
        "unknown"
    ) == 1
    from abreast.jobs.candidates.values.compare import compare_snapshots

    cut = take_snapshot(list(range(100)), nodes=50)
    assert compare_snapshots(cut, cut).outcome == "cannot_compare"
    cut = take_snapshot(iter(range(100)), nodes=50)
    assert compare_snapshots(cut, cut).outcome == "cannot_compare"


def test_a_value_half_made_raises_nothing(monkeypatch):
    import uuid

    half = uuid.UUID.__new__(uuid.UUID)
    verdict = compare(half, half)
    assert verdict.outcome == "cannot_compare"
    assert "AttributeError" in verdict.reason
    monkeypatch.setattr(take_snapshot_module, "describe", refuse_plainly)
    assert compare([], []).outcome == "cannot_compare"


def refuse_plainly(value):
    if type(value) is tuple:
        return stdlib_types.describe(value)
    raise RecursionError


def test_a_running_generator_shows_its_error():
    assert halting() == "same"


def test_alike_members_that_are_also_elsewhere_are_matched_or_doubted():
    def make(first):
        one, two = Plain(), Plain()
        return [{one, two}, one if first else two]

    for first in (True, False):
        assert compare(make(first), make(True)).outcome in ("same", "cannot_compare")
    assert compare(make(True), [{Plain(), Plain()}, Plain()]).outcome in (
        "different",
        "cannot_compare",
    )


def test_more_alike_members_than_can_be_tried_are_doubted():
    def make(last):
        return {Plain(nan=float("nan"), i=[0]) for _ in range(70)} | {Plain(last=last)}

    assert compare(make(1), make(1)).outcome == "cannot_compare"
    assert compare(make(1), make(2)).outcome in ("different", "cannot_compare")


def test_streams_of_c_with_a_state_of_python():
    class Noted(io.StringIO):
        pass

    one, other = Noted("a"), Noted("a")
    assert compare(one, other).outcome == "same"
    other.note = 1
    assert compare(one, other).outcome == "different"
