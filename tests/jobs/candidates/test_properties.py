"""Laws of the comparison for any values: copies are equal, it is symmetric, it sees any change."""

import array
import collections
import copy
import datetime as dt
import decimal
import fractions

from hypothesis import given, settings
from hypothesis import strategies as st

from abreast.jobs.candidates.rules import LOOSE, STRICT, Rules
from abreast.jobs.candidates.values.compare import compare, compare_snapshots
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.take_snapshot import take_snapshot
from tests.jobs.candidates.snapshots import unpack
from tests.jobs.candidates.things import Pair, Plain, Point, Row, Slotted, Still

plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.complex_numbers(),
    st.decimals().filter(lambda number: not number.is_snan()),  # which has no hash
    st.fractions(),
    st.datetimes(),
    st.characters(categories=("Cs",)),
)


def hashable(inner):
    return st.one_of(
        st.frozensets(inner, max_size=4),
        st.tuples(inner, inner),
        st.builds(Still, inner),
        st.builds(Pair, inner, inner),
    )


keys = st.recursive(plain, hashable, max_leaves=4)


def deeper(inner):
    return st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=4),
        st.builds(Point, inner, inner, st.lists(inner, max_size=2)),
        st.builds(lambda a: Slotted(a=a), inner),
        st.builds(lambda a, b: Plain(a=a, b=b), inner, inner),
        st.builds(Row, st.lists(inner, max_size=3)),
        st.builds(collections.deque, st.lists(inner, max_size=3)),
        st.builds(lambda values: array.array("d", values), st.lists(st.floats(), max_size=3)),
        st.builds(ValueError, inner),
        st.builds(lambda one: [one, one], inner),
    )


values = st.recursive(plain, deeper, max_leaves=12)


def shape(value):
    """All values that differ from this one in one place."""
    return list(changes(value, lambda new: new))


def changes(value, put):  # noqa: C901, PLR0912 - one branch for each type
    """Yield every value that differs from this one in one place.

    `put` builds the whole value from a changed part.
    """
    yield put(different(value))
    if type(value) in (list, Row):
        yield put(type(value)([*value, None]))
        for at, one in enumerate(value):
            yield from changes(
                one, lambda new, at=at: put(type(value)([*value[:at], new, *value[at + 1 :]]))
            )
    elif type(value) is tuple:
        for at, one in enumerate(value):
            yield from changes(one, lambda new, at=at: put((*value[:at], new, *value[at + 1 :])))
    elif type(value) is dict:
        yield put({**value, object: 1})
        for key, one in value.items():
            yield from changes(
                one, lambda new, key=key: put({k: new if k is key else v for k, v in value.items()})
            )
    elif type(value) in (set, frozenset):
        yield put(type(value)([*value, object]))
        if value:
            yield put(type(value)(list(value)[1:]))
    elif type(value) in (Point, Plain):
        for name, one in vars(value).items():
            yield from changes(one, lambda new, name=name: put(changed(value, name, new)))
    elif type(value) is Slotted:
        yield from changes(value.a, lambda new: put(Slotted(a=new)))
    elif type(value) is Still:
        yield from changes(value.x, lambda new: put(Still(new)))
    elif type(value) is ValueError:
        yield from changes(value.args[0], lambda new: put(ValueError(new)))


def changed(value, name, new):
    found = copy.copy(value)
    setattr(found, name, new)
    return found


def different(value):
    """Another value of the same type, if there is a near one."""
    near = {
        bool: lambda: not value,
        int: lambda: value + 1,
        float: lambda: 1.0 if value != 1.0 else 2.0,
        str: lambda: value + "x",
        bytes: lambda: value + b"x",
        complex: lambda: 1j if value != 1j else 2j,
        decimal.Decimal: lambda: decimal.Decimal(7) if str(value) != "7" else decimal.Decimal(8),
        fractions.Fraction: lambda: value + 1,
        dt.datetime: lambda: value.replace(fold=1 - value.fold),
    }
    return near.get(type(value), lambda: Ellipsis)()


@given(values)
def test_a_deep_copy_is_the_same_here_and_over_the_wire(value):
    twin = copy.deepcopy(value)
    assert compare(value, value).outcome == "same"
    for rules in (STRICT, LOOSE, Rules(relative=1e-9, absolute=1e-9)):
        assert compare(value, twin, rules=rules).outcome == "same"
    assert (
        compare_snapshots(unpack(pack(take_snapshot(value))), take_snapshot(twin)).outcome == "same"
    )


@given(values, values, st.sampled_from([STRICT, LOOSE, Rules(relative=0.1)]))
def test_sides_do_not_matter(one, other, rules):
    there, back = compare(one, other, rules=rules), compare(other, one, rules=rules)
    assert there.outcome == back.outcome
    assert (
        compare_snapshots(
            take_snapshot(one), unpack(pack(take_snapshot(other))), rules=rules
        ).outcome
        == there.outcome
    )


@given(values, values)
def test_strict_is_stricter_than_loose(one, other):
    if compare(one, other).outcome == "same":
        assert compare(one, other, rules=LOOSE).outcome == "same"
        assert compare(one, other, rules=Rules(relative=0.1)).outcome == "same"


@settings(max_examples=200)
@given(st.data())
def test_any_change_of_any_part_is_seen(data):
    value = data.draw(values)
    ways = shape(value)
    other = data.draw(st.sampled_from(ways))
    assert compare(value, copy.deepcopy(other)).outcome == "different"
    assert compare(copy.deepcopy(other), value, rules=LOOSE).outcome == "different"


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=6), st.randoms()
)
def test_a_set_that_is_close_is_close_in_any_order(numbers, shuffler):
    rules = Rules(relative=1e-6, absolute=1e-6, signed_zero=False)
    moved = [number * (1 + 1e-8) for number in numbers]
    shuffler.shuffle(moved)
    one, other = {Still(number) for number in numbers}, {Still(number) for number in moved}
    if len(one) == len(other):
        assert compare(one, other, rules=rules).outcome == "same"
