"""A record behaves as a dataclass in every way, and differs only in speed."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.frozen import record
from abreast.core.outcome import Done, Usage

T = TypeVar("T")


@record(frozen=True, slots=True)
class Quick(Generic[T]):
    """A record with all kinds of fields."""

    kind: ClassVar[str] = "a class's own"

    name: str
    value: T
    size: int = 3
    tags: list[int] = field(default_factory=list)
    times: tuple[int, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Plain(Generic[T]):
    """The same made by dataclasses."""

    kind: ClassVar[str] = "a class's own"

    name: str
    value: T
    size: int = 3
    tags: list[int] = field(default_factory=list)
    times: tuple[int, ...] = field(default=(), compare=False, repr=False)


@record(slots=True)
class Open:
    """A record that is not frozen."""

    name: str
    tags: list[int] = field(default_factory=list)


@record(frozen=True)
class Checked:
    """A record without slots, with `__post_init__` and a repr of its own."""

    name: str

    def __post_init__(self) -> None:
        """Do nothing."""
        if not self.name:
            raise ValueError("a name is missing")

    def __repr__(self) -> str:
        """Return its name."""
        return f"<{self.name}>"


@record(frozen=True, slots=True)
class Empty:
    """A record without fields."""


NAMES = st.sampled_from(["a", "b"])
GIVEN = st.fixed_dictionaries(
    {"name": NAMES, "value": st.integers(0, 1)},
    optional={
        "size": st.integers(3, 4),
        "tags": st.lists(st.integers(0, 1), max_size=1),
        "times": st.just((1,)),
    },
)


@given(one=GIVEN, other=GIVEN)
def test_it_does_what_a_plain_one_does(one, other):
    quick, plain = Quick(**one), Plain(**one)
    assert dataclasses.asdict(quick) == dataclasses.asdict(plain)
    assert repr(quick) == repr(plain).replace("Plain", "Quick")
    assert (quick == Quick(**other)) == (plain == Plain(**other))
    assert quick != plain
    assert type(quick) is Quick
    assert not hasattr(quick, "__dict__")
    for again in (
        copy.copy(quick),
        copy.deepcopy(quick),
        pickle.loads(pickle.dumps(quick)),
        replace(quick),
    ):
        assert (again, again.times) == (quick, quick.times)
    assert replace(quick, size=9) == Quick(**{**one, "size": 9})


def test_its_class_says_of_itself_what_a_plain_one_does():
    assert str(inspect.signature(Quick)) == str(inspect.signature(Plain))
    assert [part.name for part in dataclasses.fields(Quick)] == [
        part.name for part in dataclasses.fields(Plain)
    ]
    assert Quick.__match_args__ == Plain.__match_args__
    assert Quick.__slots__ == Plain.__slots__
    assert Quick.__dataclass_params__.frozen


def test_equal_ones_have_the_same_hash_and_others_mostly_another():
    one, same, other = Checked("a"), Checked("a"), Checked("b")
    assert hash(one) == hash(same) != hash(other)
    assert hash(Usage(requests=1)) != hash(Usage())
    assert len({Done(0, "a", "b", times=(1.0,)), Done(0, "a", "b", times=(2.0,))}) == 1
    assert Empty() == Empty()
    assert len({Empty(), Empty()}) == 1


def test_every_one_gets_defaults_of_its_own():
    assert Quick("a", 1).tags is not Quick("a", 1).tags
    assert Open("a").tags is not Open("a").tags


@pytest.mark.parametrize("one", [Quick("a", 1), Checked("a")], ids=["slots", "none"])
def test_it_is_frozen_once_it_is_made(one):
    for part in (*dataclasses.fields(one), None):
        name = part.name if part else "another"
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(one, name, None)
        with pytest.raises(FrozenInstanceError, match=name):
            delattr(one, name)


def test_an_open_one_may_be_written_to_and_has_no_hash():
    one = Open("a")
    one.name = "b"
    assert one == Open("b")
    assert repr(one) == "Open(name='b', tags=[])"
    assert copy.deepcopy(one) == one
    with pytest.raises(TypeError):
        hash(one)


def test_what_a_class_says_itself_stays():
    assert repr(Checked("a")) == "<a>"
    with pytest.raises(ValueError, match="missing"):
        Checked("")


def test_one_that_is_part_of_itself_can_be_shown():
    one = Open("a")
    one.tags.append(one)
    assert repr(one) == "Open(name='a', tags=[...])"


@pytest.mark.parametrize("arguments", [(), ("a",), ("a", 1, 2, [], (), 6)])
def test_too_few_and_too_many_arguments_are_refused(arguments):
    with pytest.raises(TypeError, match=r"Quick\.__init__"):
        Quick(*arguments)


@pytest.mark.parametrize("how", [{"kw_only": True}, {"init": False, "default": 1}, {"hash": False}])
def test_what_it_can_not_do_is_refused_where_it_is_defined(how):
    class Odd:
        name: str
        size: int = field(**how)

    with pytest.raises(TypeError, match=r"Odd\.size"):
        record(frozen=True, slots=True)(Odd)
