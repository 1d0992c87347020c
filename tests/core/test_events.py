"""An event is a frozen record with a kind of its own."""

import pytest

from abreast.core import events
from abreast.core.events import Event


def test_an_event_is_frozen():
    event = Event(1, events.RUN_STARTED, "run", 0.0, 0.0)
    assert (event.lane, dict(event.data), event.body) == (None, {}, None)
    for field in Event._fields:
        with pytest.raises(AttributeError):
            setattr(event, field, None)
    with pytest.raises(TypeError):
        event.data["more"] = 1


def test_every_kind_of_event_has_a_name_of_its_own_written_as_its_constant_is():
    kinds = {name: value for name, value in vars(events).items() if name.isupper()}
    assert len(set(kinds.values())) == len(kinds) >= 16
    assert all(value == name.lower().replace("_", "-") for name, value in kinds.items())
