"""JSON by orjson: the same text as `json` writes, or the same value, or None."""

import dataclasses
import datetime as dt
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.system.quick_json import equal_json, same_json

_LONG = 1 << 64
floatless = st.recursive(
    st.none() | st.booleans() | st.integers(-2 * _LONG, 2 * _LONG) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
plain = st.recursive(
    floatless | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _by_json(value: object, *, sort_keys: bool) -> bytes:
    return json.dumps(
        value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys
    ).encode()


@given(floatless, st.booleans())
def test_the_same_text_as_that_of_json(value: object, sort_keys: bool) -> None:
    """A digest, and so what a resumed run finds again, does not depend on who wrote the text."""
    quick = same_json(value, sort_keys=sort_keys)
    assert quick is None or quick == _by_json(value, sort_keys=sort_keys)


@given(plain)
def test_it_is_read_as_the_same_value(value: object) -> None:
    quick = equal_json(value)
    assert quick is None or json.loads(quick) == value


@pytest.mark.parametrize("text", ["", "é\u2028\x7f", '"\\/\b\f\n\r\t\x00\x1f', "😀" * 300])
def test_texts_are_written_quickly(text: str) -> None:
    assert same_json({"text": text}) == _by_json({"text": text}, sort_keys=False)
    assert equal_json({"text": text}) == _by_json({"text": text}, sort_keys=False)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_left_to_json(number: float) -> None:
    assert equal_json({"usd": [number]}) is None


@dataclasses.dataclass
class _Point:
    x: int = 1


class _Word(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    ["\ud800", _LONG, {1: 2}, _Point(), dt.date(2026, 1, 2), _Word("x"), b"x", object()],
    ids=lambda value: type(value).__name__,
)
def test_what_json_knows_otherwise_or_not_at_all_is_left_to_it(value: object) -> None:
    for write in (same_json, equal_json):
        assert write([value]) is None
