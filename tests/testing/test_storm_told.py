"""The headers of a storm about its limits, true and false."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.testing.storm import Settings, World, WorldRequest

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()


def empty(**settings):
    """A world with nothing left for the next ten seconds."""
    world = World(Settings(rpm=6, burst=1, **settings), wall=NOON)
    assert world.arrive(0, WorldRequest("a")).admitted
    return world


@pytest.mark.parametrize(
    ("mode", "value"),
    [
        ("right", "10"),
        ("absent", None),
        ("long", "40"),
        ("short", "3"),
        (89, "89"),
        ("date", "12:00:10 GMT"),
    ],
)
def test_retry_after_is_what_was_asked_for(mode, value):
    verdict = empty(retry_after=mode).arrive(0, WorldRequest("b"))
    assert verdict.ready_at == pytest.approx(10.0)
    assert verdict.retry_after == (f"Sun, 15 Nov 2026 {value}" if mode == "date" else value)


@pytest.mark.parametrize(
    ("mode", "value"), [("right", "0.500"), ("long", "2.000"), ("short", "0.125"), (89, "4.450")]
)
def test_in_a_shorter_minute_it_is_told_in_thousandths(mode, value):
    assert empty(retry_after=mode, minute=3).arrive(0, WorldRequest("b")).retry_after == value


@given(st.floats(0, 9.9), st.sampled_from([3, 60]), st.sampled_from(["right", "date"]))
def test_who_waits_as_long_as_it_is_told_is_never_too_early(now, minute, mode):
    world = empty(minute=minute, retry_after=mode)
    now *= minute / 60
    verdict = world.arrive(now, WorldRequest("b"))
    if mode == "date":
        again = parsedate_to_datetime(verdict.retry_after).timestamp() - NOON
    else:
        again = now + float(verdict.retry_after)
    assert again >= verdict.ready_at - 1e-6
    assert world.arrive(again + 1e-6, WorldRequest("b")).admitted


@pytest.mark.parametrize("name", ["429-bare", "429-concurrency", "401", "context"])
def test_these_faults_tell_no_time(name):
    assert World().arrive(0, WorldRequest("a", model=f"fault-{name}")).retry_after is None


def test_the_other_faults_do():
    world = World(wall=NOON)
    assert world.arrive(0, WorldRequest("a", model="fault-429")).retry_after == "1"
    assert (
        world.arrive(0, WorldRequest("a", model="fault-429-date")).retry_after
        == "Sun, 15 Nov 2026 12:00:01 GMT"
    )
    assert world.arrive(0, WorldRequest("a", model="fault-quota")).kind == "per_day"


def test_honest_headers_as_openai_writes_them():
    world = World(Settings(rpm=600, burst=10, tpm=6000))
    headers = world.arrive(0, WorldRequest("a", input_tokens=40, output_tokens=20)).headers
    assert headers == {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "100ms",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5940",
        "x-ratelimit-reset-tokens": "600ms",
    }
    assert (
        world.arrive(0, WorldRequest("b", input_tokens=5000, output_tokens=0)).headers[
            "x-ratelimit-reset-tokens"
        ]
        == "50.6s"
    )
    assert (
        World(Settings(rpm=1, window="fixed"))
        .arrive(0, WorldRequest("a"))
        .headers["x-ratelimit-reset-requests"]
        == "1m0s"
    )


@pytest.mark.parametrize(
    ("minute", "reset"), [(60, "2026-11-15T12:00:10Z"), (3, "2026-11-15T12:00:00.500Z")]
)
def test_honest_headers_as_anthropic_writes_them(minute, reset):
    world = World(Settings(rpm=6, input_tpm=60, output_tpm=60, minute=minute), wall=NOON)
    headers = world.arrive(
        0, WorldRequest("a", input_tokens=10, output_tokens=10, lane="anthropic")
    ).headers
    expected = {}
    for name, limit, left in (
        ("requests", "6", "5"),
        ("input-tokens", "60", "50"),
        ("output-tokens", "60", "50"),
    ):
        expected[f"anthropic-ratelimit-{name}-limit"] = limit
        expected[f"anthropic-ratelimit-{name}-remaining"] = left
        expected[f"anthropic-ratelimit-{name}-reset"] = reset
    assert headers == expected


def remaining(world, now):
    return world.arrive(now, WorldRequest("a")).headers["x-ratelimit-remaining-requests"]


def test_late_headers_tell_how_it_was_a_while_ago():
    world = World(Settings(rpm=60, window="sliding", headers="late", lag=5))
    assert [remaining(world, now) for now in (0, 1, 2, 6, 7)] == ["59", "59", "59", "58", "57"]


def test_lying_headers_promise_more_than_there_is():
    world = empty(headers="lying")
    verdict = world.arrive(0, WorldRequest("b"))
    assert not verdict.admitted
    assert (
        verdict.headers["x-ratelimit-limit-requests"]
        == verdict.headers["x-ratelimit-remaining-requests"]
        == "12"
    )


def test_absent_headers_are_absent_and_gemini_has_none():
    assert empty(headers="absent").arrive(0, WorldRequest("b")).headers == {}
    assert empty().arrive(0, WorldRequest("b", lane="gemini")).headers == {}
