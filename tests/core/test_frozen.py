"""Records that are quick to make are what a frozen dataclass is, in every other way."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from abreast.core.frozen import quickly


@quickly
@dataclass(frozen=True, slots=True)
class Quick:
    """One with all kinds of fields."""

    name: str
    size: int = 3
    tags: dict[str, int] = field(default_factory=dict)


def test_its_fields_defaults_and_type_are_those_of_a_plain_one():
    one = Quick("a", tags={"x": 1})
    assert (type(one), one.name, one.size, one.tags) == (Quick, "a", 3, {"x": 1})
    assert Quick("a").tags == {}
    assert Quick("a").tags is not Quick("a").tags
    assert repr(one) == "Quick(name='a', size=3, tags={'x': 1})"
    assert one == Quick("a", 3, {"x": 1})
    assert list(inspect.signature(Quick).parameters) == ["name", "size", "tags"]


def test_it_is_frozen_once_it_is_made():
    with pytest.raises(FrozenInstanceError):
        Quick("a").size = 4
    with pytest.raises(TypeError):
        Quick()


def test_it_can_be_replaced_copied_and_pickled():
    one = Quick("a", 1)
    assert replace(one, size=2) == Quick("a", 2)
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
