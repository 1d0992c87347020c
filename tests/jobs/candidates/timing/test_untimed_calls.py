"""Calls that are not timed: coarse times find suspects, and a doubtful gain is not accepted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abreast.jobs.candidates.timing.timed_calls import TimedCall, TimedCalls
from abreast.jobs.candidates.timing.timing import Pass, compare_passes, doubt

TIMED = TimedCalls((TimedCall("timed", 0.05, copyable=True),), 3, 1)
SECONDS = st.floats(1e-6, 10)


def passes(*seconds):
    return [Pass(one) for one in seconds]


def compared(original, candidate):
    """Compare passes given as dicts of seconds, for each side."""
    return compare_passes(passes(*original), passes(*candidate), ["timed"])


def test_a_call_that_is_slower_in_every_pass_is_to_be_timed():
    found = compared(
        [{"timed": 9, "a": 0.01, "b": 0.02}] * 3, [{"timed": 1, "a": 0.4, "b": 0.02}] * 3
    )
    assert [one.name for one in found.suspects] == ["a"]
    assert found.worth_timing() == found.suspects
    assert "a seems to take longer" in doubt(found, TIMED, 1.5)
    both = TIMED.beside(found.worth_timing())
    assert [one.name for one in both.chosen] == ["timed", "a"]
    assert doubt(found, both, 1.5) == ""


def test_noise_in_one_pass_makes_nothing_suspicious():
    original = [{"a": 0.01}, {"a": 0.011}, {"a": 0.01}]
    assert compared(original, [{"a": 0.09}, {"a": 0.0101}, {"a": 0.3}]).suspects == ()
    assert (
        compared([{"a": 0.09}, {"a": 0.01}, {"a": 0.3}], [{"a": 0.012}] * 3).suspects[0].name == "a"
    )


def test_what_is_within_the_grain_of_a_single_call_is_not_told_apart():
    assert compared([{"a": 1e-6}] * 2, [{"a": 4e-5}] * 2).suspects == ()
    assert compared([{"a": 1e-6}] * 2, [{"a": 4e-4}] * 2).suspects != ()


def test_many_small_calls_that_are_slower_together_leave_nothing_of_the_gain():
    names = [f"small {number}" for number in range(5000)]
    found = compared([dict.fromkeys(names, 1e-6)] * 3, [dict.fromkeys(names, 2e-5)] * 3)
    assert found.suspects == ()
    said = doubt(found, TIMED, 1.2)  # 50 ms become 42, and 5 ms become 100
    assert "take up to 100 ms instead of 5 ms together" in said
    assert doubt(found, TIMED, 1000.0) != ""
    assert (
        doubt(
            compared([dict.fromkeys(names, 1e-6)] * 3, [dict.fromkeys(names, 1.1e-6)] * 3),
            TIMED,
            1.2,
        )
        == ""
    )


def test_more_slower_calls_than_can_be_timed_are_named():
    names = [f"call {number:02}" for number in range(30)]
    found = compared([dict.fromkeys(names, 0.001)] * 2, [dict.fromkeys(names, 0.002)] * 2)
    both = TIMED.beside(found.worth_timing())
    assert 1 < len(found.worth_timing()) < 30
    assert (
        doubt(found, both, 1.5)
        == "call 12, call 13, call 14 and 15 more seem to take longer, and could not be timed"
    )


def test_the_worst_is_timed_however_long_it_takes():
    found = compared([{"a": 3.0, "b": 2.0}] * 2, [{"a": 90.0, "b": 30.0}] * 2)
    assert [one.name for one in found.worth_timing()] == ["a"]


def test_what_was_not_seen_each_time_is_doubtful():
    assert "did not make the call b" in doubt(
        compared([{"a": 1e-3, "b": 1e-3}] * 2, [{"a": 1e-3}] * 2), TIMED, 1.5
    )
    cut = compare_passes([Pass({"a": 1e-3}, complete=False)], passes({"a": 1e-3}), [])
    assert "more calls than can be compared" in doubt(cut, TIMED, 1.5)


@pytest.mark.parametrize(
    "told",
    [{}, {"calls": 7}, {"calls": [["a"]]}, {"calls": [["a", "soon"]]}, {"calls": [[1, None]]}],
)
def test_what_is_no_pass_is_an_error(told):
    with pytest.raises(ValueError, match="no pass"):
        Pass.of(told)


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), SECONDS, min_size=1),
    st.floats(0.1, 10),
    st.floats(1.02, 50),
    st.lists(st.floats(1.0, 1.3), min_size=4, max_size=4),
)
@settings(max_examples=200)
def test_no_gain_stands_where_all_other_calls_are_slower(seconds, factor, low, noise):
    """With any noise, a slower call is timed, named, or makes the whole slower."""
    ours = [{name: took * noise[at] for name, took in seconds.items()} for at in (0, 1)]
    theirs = [
        {name: took * factor * noise[at + 2] for name, took in seconds.items()} for at in (0, 1)
    ]
    found = compared(ours, theirs)
    inputs = TIMED.beside(found.worth_timing())
    untimed = {
        name: took
        for name, took in seconds.items()
        if name not in {one.name for one in inputs.chosen}
    }
    whole_before = inputs.seconds + sum(untimed.values())
    whole_after = inputs.seconds / low + sum(took * factor for took in untimed.values())
    if not doubt(found, inputs, low):
        # The original's quickest pass may be slower than its true time.
        assert whole_after < whole_before * max(noise)
