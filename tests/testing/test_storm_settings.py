"""Invalid settings are refused in one sentence that names them and what is allowed."""

from __future__ import annotations

from dataclasses import fields

import pytest

from abreast.testing.storm import Settings, SettingsStep
from abreast.testing.storm.settings import StormSettings, make_settings

NAN = float("nan")


def test_the_keywords_of_a_storm_are_its_settings():
    typed = StormSettings.__annotations__
    assert [one.name for one in fields(Settings)] == list(typed)
    assert all(one.type == typed[one.name].__forward_arg__ for one in fields(Settings)[:-1])


def test_a_neighbour_needs_no_limit_of_requests_whatever_the_window():
    assert make_settings({"window": "sliding", "concurrency": 3, "neighbour": 0.6}).rpm is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rpm": -1}, "rpm is a positive number, not -1"),
        ({"rpm": 0}, "rpm is a positive number, not 0"),
        ({"rpm": NAN}, "rpm is a positive number, not nan"),
        ({"tpm": float("inf")}, "tpm is a positive number, not inf"),
        ({"rpm": "600"}, "rpm is a number, not '600'"),
        ({"rpm": True}, "rpm is a number, not True"),
        ({"latency": -0.1}, "latency is a number of at least 0, not -0.1"),
        ({"latency": NAN}, "latency is a number of at least 0, not nan"),
        ({"latency": "slow"}, "latency is a number, not 'slow'"),
        ({"concurrency": 2.5}, "concurrency is a whole number of at least 1, not 2.5"),
        ({"chunks": 0}, "chunks is a whole number of at least 1, not 0"),
        ({"minute": 0}, "a minute lasts longer than 0 seconds"),
        ({"neighbour": 1}, "neighbour is a share below 1, not 1"),
        ({"window": "square"}, "window is one of bucket, fixed, sliding, not 'square'"),
        ({"window": "fixed", "burst": 3}, "a burst belongs to the bucket"),
        ({"window": "fixed", "rpm": 1, "neighbour": 0.5}, "nothing would ever be admitted"),
        ({"burst": 0.5}, "burst is at least 1"),
        ({"output_min": 9, "output_max": 3}, r"output_min \(9\) is more than output_max \(3\)"),
        (
            {"retry_after": "soon"},
            "retry_after is one of right, absent, long, short, date or a number",
        ),
        ({"retry_after": NAN}, "retry_after is a number of at least 0, not nan"),
        ({"faults": {"nope": 0.1}}, "there is no fault 'nope'; there are 500, "),
        ({"faults": {"500": 1.5}}, "the rates of faults are from 0 to 1"),
        ({"faults": {"500": NAN}}, "the rates of faults are from 0 to 1"),
        ({"faults": {"500": 0.6, "503": 0.6}}, "no more than 1 together"),
        ({"faults": 3}, "faults is a mapping, as in"),
        ({"faults": {"500": "often"}}, "faults is a mapping, as in"),
        ({"fault_at": {0: "500"}}, "fault_at counts requests from 1"),
        ({"fault_at": {"one": "500"}}, "fault_at is a mapping, as in"),
        ({"steps": 3}, "steps are a list, as in"),
        ({"steps": [3]}, "a step is a time and what changes then"),
        ({"steps": [(-1, {"rpm": 3})]}, "the time of a step is a number of at least 0, not -1"),
        ({"steps": [("soon", {"rpm": 3})]}, "the time of a step is a number, not 'soon'"),
        (
            {"steps": [(1, {"minute": 3})]},
            "a step can't change minute; it can change batch_fault_at, ",
        ),
        ({"steps": [(1, {"rpm": -3})]}, "rpm is a positive number, not -3"),
        ({"rmp": 3}, "there is no setting rmp; there are batch_fault_at, "),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options, said):
    with pytest.raises(ValueError, match=said) as caught:
        make_settings(options)
    assert "\n" not in str(caught.value)


def test_steps_are_sorted_by_time_and_may_be_pairs():
    settings = Settings(steps=((9, {"rpm": 1}), SettingsStep(3, {"rpm": 2})))
    assert settings.steps == (SettingsStep(3, {"rpm": 2}), SettingsStep(9, {"rpm": 1}))
