"""The governor in virtual time, against the storm's state machine: utilisation and safety."""

import statistics
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abreast.limits.governor.governor import Governor, KnownLimits
from abreast.limits.governor.rate_estimate import HeaderFacts
from abreast.testing.storm.settings import make_settings
from benchmarks.limits.__main__ import LIMITERS, courses, lanes_played
from benchmarks.limits.plots import PLOTS, picture
from benchmarks.limits.random_worlds import draw_world
from benchmarks.limits.scenarios import requests, scenarios
from benchmarks.limits.virtual import play
from benchmarks.limits.world_lane import play_world
from benchmarks.limits.world_server import best_time
from tests.properties import tried

ONE = {"requests": 1.0, "tokens": 100.0}
SCENARIOS = courses()


def governor_of(world, **options):
    return Governor(minute=world.minute, **options)


def play_random(seed, make=Governor, most=10_000, **options):
    world = draw_world(seed)
    world = replace(world, calls=world.calls[:most])
    return play_world(world, make(**options), best_time(world), cut=50)


def sent(governor, now, most=10_000):
    """Send all calls that may go now."""
    permits = []
    while len(permits) < most and governor.refusal(ONE, now) is None:
        permits.append(governor.send(ONE, now))
    return permits


# --- what it reaches


@cache
def score(name, limiter="abreast"):
    return lanes_played(SCENARIOS[name], limiter)


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_uses_what_there_is_and_is_hardly_ever_turned_away(name):
    assert score(name).lost == 0
    assert score(name).utilisation >= 0.95
    assert score(name).rejected < 0.01


@pytest.mark.parametrize("name", SCENARIOS)
def test_of_all_that_are_hardly_ever_turned_away_it_is_the_best(name):
    for limiter in LIMITERS.keys() - {"abreast"}:
        other = score(name, limiter)
        assert other.rejected >= 0.01 or other.utilisation <= score(name).utilisation + 0.01, (
            limiter
        )


def test_other_worlds_than_those_are_used_well_too():
    found = [play_random(seed, most=500) for seed in range(12)]
    assert [each.lost for each in found] == [0] * 12
    assert statistics.median(each.share for each in found) >= 0.8


@pytest.mark.parametrize("seed", [4711000133, 3101000166])
def test_no_call_is_lost_where_a_minute_seemed_to_allow_nothing(seed):
    assert play_random(seed).share > 0.5  # calls went at one a minute


@pytest.mark.parametrize(
    ("seed", "share"),
    [(3102000326, 0.3), (5302000317, 0.25), (5302000992, 0.2)],
)
def test_unnamed_rejections_that_come_only_beside_many_calls_are_about_their_number(seed, share):
    found = play_random(seed)
    assert found.lost == 0
    assert found.share > share  # it crept at a rate that was never the limit


def test_an_unnamed_rejection_with_a_wait_is_about_a_rate_though_headers_show_enough_left():
    assert play_random(7001000174).share > 0.8  # it went on with one call in flight


def test_a_rate_without_an_upper_bound_is_not_below_what_was_accepted():
    assert play_random(31003000424).share > 0.5  # it went on at one call a minute


def test_a_tiny_minute_is_not_taken_for_one_with_a_call_more():
    assert play_random(20003000358).rejected_share < 0.1  # it was 0.7: some in every minute


@pytest.mark.parametrize("seed", [7001000084, 7002000009])
def test_a_wait_that_is_always_the_same_is_not_waited_for_once_the_limit_is_known(seed):
    assert play_random(seed).share > 0.85  # it waited half a minute for a second's worth


@pytest.mark.parametrize(("seed", "share"), [(7001000008, 0.85), (7002000117, 0.65)])
def test_a_minute_in_which_one_call_more_is_accepted_is_tried_larger_at_once(seed, share):
    assert play_random(seed).share > share  # it took a minute for each hundredth more


@pytest.mark.parametrize(
    ("seed", "rejected"), [(6001000143, 0.02), (6001000149, 0.02), (6001000068, 0.08)]
)
def test_a_part_that_others_use_is_seen_although_answers_are_older_than_rejections(seed, rejected):
    found = play_random(seed)
    assert found.rejected_share < rejected
    assert found.share > 0.88


@pytest.mark.parametrize(
    ("seed", "share", "rejected"),
    [
        (7001000001, 0.95, 0.015),
        (7002000036, 0.85, 0.015),
        (7001000143, 0.9, 0.03),
        (7002000010, 0.95, 0.025),
        (7001000022, 0.8, 0.03),
    ],
)
def test_what_was_learned_of_a_limit_is_given_up_when_it_changes(seed, share, rejected):
    found = play_random(seed)
    assert found.share > share
    assert found.rejected_share < rejected


@pytest.mark.parametrize("seed", [7002000067, 7001000005, 7001000186])
def test_a_limit_that_old_headers_tell_costs_few_rejections(seed):
    assert play_random(seed).rejected_share < 0.005


def test_a_bucket_is_not_taken_for_a_minute_that_explains_no_more():
    assert play_random(7001000158).rejected_share < 0.01


def test_a_reserve_costs_no_call_of_a_small_minute():
    assert play_random(3101000204).share > 0.95  # five a minute, of which four were used


@pytest.mark.parametrize("window", ["bucket", "fixed", "sliding"])
@pytest.mark.parametrize("headers", ["honest", "absent", "late", "lying"])
@pytest.mark.parametrize("told", ["right", "absent", "short"])
def test_every_call_gets_through_whatever_the_server_says(window, headers, told):
    world = make_settings(
        {
            "rpm": 120,
            "tpm": 60_000,
            "window": window,
            "headers": headers,
            "retry_after": told,
            "latency": 0.5,
            "noise": 0.5,
            "faults": {"500": 0.05},
        }
    )
    found = play(world, requests(400, 3, (50, 500)), governor_of, cut=30)
    assert found.lost == 0
    assert found.utilisation > 0.5


def test_the_same_world_gives_the_same_score():
    one, other = (play_random(5, most=400) for _ in range(2))
    assert one == other


# --- what it never does


def test_the_first_goes_alone_and_the_others_when_it_got_through():
    governor = Governor()
    (first,) = sent(governor, 0.0)
    # By then it has been accepted, or there is no answer at all.
    assert governor.refusal(ONE, 0.1) == 4.0
    governor.answered(first, 0.2, ONE, {})
    assert governor.refusal(ONE, 0.2) is not None  # not all at once
    assert sent(governor, 0.5, 1)


def test_who_is_not_turned_away_within_a_second_was_let_in():
    governor, now = Governor(), 0.0
    while governor.search.limit < 200:
        sent(governor, now)
        now += 0.05
        assert now < 30  # though there was no answer at all


@given(cap=st.integers(1, 9), seed=st.integers(0, 40))
@tried(10)
def test_the_users_cap_is_never_passed(cap, seed):
    flying, most = set(), 0

    class Watched(Governor):
        def send(self, costs, now):
            nonlocal most
            permit = super().send(costs, now)
            flying.add(permit.serial)
            most = max(most, len(flying))
            return permit

        def failed(self, permit, now):
            flying.discard(permit.serial)
            super().failed(permit, now)

        def rejected(self, permit, *args):
            flying.discard(permit.serial)
            return super().rejected(permit, *args)

        def withdraw(self, permit):
            flying.discard(permit.serial)
            super().withdraw(permit)

    play_random(seed, Watched, most=150, cap=cap)
    assert most <= cap


@given(rate=st.integers(30, 600), seed=st.integers(0, 40))
@example(rate=64, seed=18)
@example(rate=30, seed=10)
@tried(10)
def test_the_users_rate_is_never_passed_whatever_the_server_says(rate, seed):
    sent_at = {}

    class Watched(Governor):
        def send(self, costs, now):
            permit = super().send(costs, now)
            sent_at[permit.serial] = now
            return permit

        def withdraw(self, permit):
            del sent_at[permit.serial]  # the server was down: it counts for nothing
            super().withdraw(permit)

    play_random(seed, Watched, most=200, rates={"requests": float(rate)})
    times, burst = sorted(sent_at.values()), max(1.0, rate / 60)
    for start in range(len(times)):
        for end in range(start, len(times), 7):
            assert end - start + 1 <= burst + rate / 60 * (times[end] - times[start]) + 1e-6


def test_the_speed_at_the_start_doubles_in_the_time_of_two_answers():
    governor, flying, count, now = Governor(), [], 0, 0.0
    while now < 2.0:
        now += 0.01
        while flying and flying[0].sent <= now - 0.2:
            governor.answered(flying.pop(0), now, ONE, {})
        new = sent(governor, now)
        flying, count = flying + new, count + len(new)
    assert count > 180  # 117 if it took three


def test_a_herd_of_rejections_is_one_cut_and_one_probe_follows():
    governor, now = Governor(), 0.0
    (first,) = sent(governor, now)
    governor.answered(first, now, ONE, {"requests": HeaderFacts(600, 599, 0.1)})
    permits = []
    while len(permits) < 20:
        now += 0.05
        permits += sent(governor, now)
    news = [governor.rejected(permit, now, "requests", 5.0, {}) for permit in permits]
    assert news == [True] + [False] * (len(permits) - 1)
    assert governor.refusal(ONE, now) == now + 5.0
    (probe,) = sent(governor, now + 5.0)
    assert governor.refusal(ONE, now + 5.1) == now + 6.0  # the others wait for its result
    governor.answered(probe, now + 5.2, ONE, {"requests": HeaderFacts(600, 30, 57)})
    assert governor.refusal(ONE, now + 5.2) is None


def test_calls_sent_after_a_rejected_one_do_not_count_as_accepted():
    governor = Governor(known=KnownLimits(flying=20))
    permits = []
    for number in range(200):
        permits += sent(governor, now=0.02 * number, most=20 - len(permits))
    assert len(permits) == 20
    assert governor.rejected(permits[12], 4.1, "concurrency", None, {})  # others are on their way
    assert governor.search.limit == 12


def one_more_is_tried():
    """A governor that knows that two at once are accepted, and its calls as it tries a third."""
    governor = Governor(known=KnownLimits(flying=2))
    first, second = sent(governor, 0.0, 1) + sent(governor, 1.0, 1)
    assert governor.rejected(governor.send(ONE, 1.1), 1.2, "concurrency", None, {})
    now = 2.0
    while governor.search.limit == 2:
        now += 1.0
        governor.answered(first, now, ONE, {})
        first, second = second, sent(governor, now, 1)[0]
        governor.refusal(ONE, now)  # the limit is reached
    return governor, first, second, now


def test_if_one_more_is_too_many_it_is_as_many_as_before():
    governor, first, _, now = one_more_is_tried()
    third = sent(governor, now + 0.01, 1)[0]
    governor.answered(first, now + 0.02, ONE, {})  # it had ended before the third arrived, but
    late = third._replace(beside=1)  # calls overtake each other
    assert governor.rejected(late, now + 0.05, "concurrency", None, {})
    assert governor.search.limit == 2


def test_a_call_is_rejected_beside_those_in_flight_when_it_was_sent():
    governor = Governor(known=KnownLimits(flying=9))
    permits = [sent(governor, 0.5 * number, 1)[0] for number in range(9)]
    for permit in permits[:4]:
        governor.answered(permit, 5.0, ONE, {})
    assert governor.rejected(permits[8], 5.1, "concurrency", None, {})
    assert governor.search.limit == 8


def test_a_minute_that_allows_no_more_than_was_rejected_is_given_up():
    found = play_random(9605000260)
    assert found.lost == 0
    assert found.share > 0.5
    assert found.rejected < 20


def test_calls_larger_than_thought_are_not_turned_away_again_and_again():
    found = play_random(9420000290)
    assert found.lost == 0
    assert found.share > 0.85
    assert found.rejected < 40


def told(left, reset=30.0):
    """Headers of one rate of 60 a minute."""
    return {"requests": HeaderFacts(60, left, reset)}


@pytest.mark.parametrize(("left", "hit"), [(40, "concurrency"), (1, "requests")])
def test_a_rejection_without_a_name_is_not_about_a_rate_of_which_headers_show_enough(left, hit):
    governor = Governor(known=KnownLimits(flying=9))
    for number in range(20):
        permit = sent(governor, number * 1.0, 1)[0]
        now = number + 0.5
        governor.answered(permit, now, ONE, told(59 - number, 20.0 - number))
    permit = sent(governor, 20.0, 1)[0]
    assert governor.resolve(None, permit, told(left), 7.0) == hit


def test_a_call_that_was_overtaken_is_not_taken_for_one_beside_few():
    hits = []
    for later in (10.01, 10.5):  # when two more calls were sent
        governor = Governor(known=KnownLimits(flying=3))
        first = [sent(governor, number * 0.2, 1)[0] for number in range(3)]
        governor.rejected(first[2], 0.7, "concurrency", None, {})
        for permit in first[:2]:
            governor.answered(permit, 1.0, ONE, {})
        permit = governor.send(ONE, 10.0)
        governor.send(ONE, later)
        governor.send(ONE, later)
        hits.append(governor.resolve(None, permit, {}, None))
    assert hits == ["concurrency", "requests"]


def test_what_a_rejected_call_would_have_taken_is_known_when_it_is_answered():
    costs = {"requests": 1.0, "tokens": 200.0, "input": 100.0, "output": 100.0}
    governor = Governor(known=KnownLimits(flying=9))
    permit = governor.send(costs, 0.0)
    enough = {"tokens": HeaderFacts(6_000, 2_000, 40.0)}
    governor.rejected(permit, 0.1, "tokens", 1.0, enough)
    assert not governor.paces["tokens"].trusted
    again = governor.send(costs, 2.0)
    governor.answered(again, 3.0, {**costs, "tokens": 2_500.0}, {})
    assert governor.paces["tokens"].trusted


def test_a_limit_that_is_named_is_believed_beside_headers_that_are_not():
    governor = Governor(known=KnownLimits(flying=9))
    wrong = {"requests": HeaderFacts(60, 50, 5.0), "tokens": HeaderFacts(9_000, 50.0, 5.0)}
    permit = governor.send(ONE, 0.0)
    assert governor.resolve("requests", permit, wrong, 1.0) == "tokens"
    lie = {"tokens": HeaderFacts(9_000, 9_000, 0.0)}
    governor.rejected(permit, 0.1, "tokens", 1.0, lie)
    permit = governor.send(ONE, 2.0)
    assert governor.resolve("requests", permit, wrong, 1.0) == "requests"


def test_a_rejection_that_names_no_limit_but_a_wait_is_about_a_rate():
    governor = Governor(known=KnownLimits(flying=9))
    permit = sent(governor, 0.0, 1)[0]
    assert governor.resolve(None, permit, {}, 7.0) == "requests"
    other = Governor(known=KnownLimits(flying=9))
    permit = sent(other, 0.0, 1)[0]
    assert other.resolve(None, permit, {}, None) == "concurrency"


def test_rejections_without_a_name_are_told_apart_by_the_waits_that_they_ask_for():
    governor = Governor(known=KnownLimits(flying=9))
    hits = [
        governor.resolve(None, sent(governor, 1.0 * number, 1)[0], {}, wait)
        for number, wait in enumerate([7.0, None, 3.0, None, 7.0])
    ]
    assert hits == ["requests", "concurrency", "requests", "concurrency", "requests"]


@pytest.mark.parametrize(("size", "hit"), [(250.0, "tokens"), (150.0, "requests")])
def test_a_rejection_without_a_name_of_the_largest_call_by_far_is_about_tokens(size, hit):
    governor = Governor(known=KnownLimits(flying=9))
    for number in range(6):
        permit = sent(governor, number * 1.0, 1)[0]
        governor.answered(permit, number + 0.5, ONE, {})
    permit = governor.send({**ONE, "tokens": size}, 9.0)
    assert governor.resolve(None, permit, {}, 7.0) == hit


def test_a_call_larger_than_a_minute_that_is_rejected_without_a_name_slows_no_others_for_good():
    assert play_random(9431000236, most=200).share > 0.2


def test_a_rate_that_shows_late_knows_what_was_sent_before():
    governor = Governor(known=KnownLimits(flying=50))
    costs = {"requests": 1.0, "tokens": 100.0, "input": 80.0, "output": 20.0}
    permits = []
    for number in range(300):
        if governor.refusal(costs, 0.05 * number) is None:
            permits.append(governor.send(costs, 0.05 * number))
    governor.rejected(permits[-1], permits[-1].sent + 0.1, "input", 20.0, {})
    used = 80.0 * (len(permits) - 1)
    assert governor.paces["input"].copy.sent.used == pytest.approx(used)


def test_only_what_was_hit_is_held():
    governor = Governor()
    (first,) = sent(governor, 0.0)
    governor.rejected(first, 0.1, "tokens", 9.0, {})
    assert governor.refusal({"requests": 1.0}, 0.1) == pytest.approx(9.1)  # any call takes tokens
    assert governor.paces["requests"].hold == -inf
    assert governor.search.limit == 1


def test_a_number_in_flight_that_was_too_many_is_not_tried_again_soon():
    world = make_settings({"concurrency": 7, "latency": 1.0, "headers": "absent"})
    found = play(world, requests(1200, 1), governor_of)
    assert found.utilisation > 0.95
    assert found.rejected < 0.01


def test_a_cap_that_rises_is_found():
    world = make_settings(
        {
            "concurrency": 5,
            "latency": 1.0,
            "headers": "absent",
            "steps": [(30, {"concurrency": 40})],
        }
    )
    found = play(world, requests(3000, 1), governor_of)
    assert found.lost == 0
    assert found.utilisation > 0.6


class Watched(Governor):
    """Records when calls were sent, and how many were allowed in flight."""

    def __init__(self, **options):
        super().__init__(**options)
        self.times, self.limits = [], []

    def send(self, costs, now):
        self.times.append(now)
        self.limits.append(self.search.limit)
        return super().send(costs, now)


def watched(world, count):
    seen = []

    def make(made):
        seen.append(Watched(minute=made.minute))
        return seen[0]

    found = play(make_settings(world), requests(count, 1), make)
    return found, seen[0]


def test_latency_that_triples_is_not_taken_for_congestion():
    world = {"rpm": 6000, "burst": 100, "latency": 1.0}
    calm = play(make_settings(world), requests(3000, 1), governor_of)
    slow, governor = watched({**world, "steps": [(5, {"latency": 3.0})]}, 3000)
    assert slow.rejected == calm.rejected == 0
    assert slow.utilisation > 0.85  # it needs 300 in flight then
    assert governor.limits == sorted(governor.limits)  # and was never reduced


@pytest.mark.parametrize(("headers", "after"), [("honest", 10), ("late", 90), ("absent", 90)])
def test_a_neighbour_that_leaves_is_noticed_in_ten_seconds_or_in_ninety_if_headers_are_silent(
    headers, after
):
    world = {"rpm": 600, "burst": 20, "latency": 0.5, "neighbour": 0.5, "headers": headers}
    found, governor = watched({**world, "steps": [(60, {"neighbour": 0.0})]}, 1500)

    def sent_in(start, end):
        return sum(start <= when < end for when in governor.times) / (end - start)

    assert sent_in(40, 60) == pytest.approx(5.0, rel=0.15)  # a second
    assert sent_in(60 + after, 70 + after) > 0.9 * 10.0
    assert found.rejected < 0.02


def test_headers_that_a_rejection_belies_are_not_believed_any_more():
    governor = Governor()
    (first,) = sent(governor, 0.0)
    lie = {"requests": HeaderFacts(6000, 6000, 0.0)}
    governor.answered(first, 0.1, ONE, lie)
    (second, *_) = sent(governor, 1.0)
    governor.rejected(second, 1.1, "requests", None, lie)
    assert not governor.paces["requests"].trusted


# --- the pictures of docs/limits.md


def test_the_plots_in_the_docs_are_those_that_the_command_draws():
    images = Path(__file__).parents[3] / "docs/images"
    known = {scenario.name: scenario for scenario in scenarios()}
    for name, of in PLOTS.items():
        assert (images / f"{name}.svg").read_text() == picture(known[of]), (
            "python -m benchmarks.limits.plots docs/images"
        )


def test_a_rate_that_is_first_heard_of_in_a_header_counts_the_calls_before():
    governor = Governor()
    costs = {"requests": 1.0, "tokens": 300.0, "input": 200.0, "output": 100.0}
    first, second = governor.send(costs, 0.0), governor.send(costs, 0.1)
    told = {"input": HeaderFacts(6_000, 5_800, 2.0)}
    governor.answered(first, 1.0, {"input": 200.0}, told)
    estimate = governor.paces["input"]
    assert estimate.per_minute == pytest.approx(6_000)
    assert estimate.copy.sent.cost_of(second.serial) == 200.0
