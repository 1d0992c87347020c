"""The storm in virtual time: exact limits, repeatable random choices, and a true log."""

from __future__ import annotations

from copy import deepcopy
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.testing.storm import FAULTS, Settings, World, WorldRequest

MINUTE = 60.0
WINDOWS = ("bucket", "fixed", "sliding")
# Quarters of a second add up without rounding, so that the counts here are exact too.
gaps = st.integers(0, 160).map(lambda quarters: quarters / 4)
arrivals = st.lists(st.tuples(gaps, st.integers(1, 12)), min_size=1, max_size=60)


def admitted(world, arrivals, **fields):
    """The arrival times and sizes of the admitted requests."""
    now, seen = 0.0, []
    for number, (gap, size) in enumerate(arrivals):
        now += gap
        if world.arrive(
            now, WorldRequest(str(number), input_tokens=size, output_tokens=size, **fields)
        ).admitted:
            seen.append((now, size))
    return seen


def most_in_a_window(window, seen, cost, limit, hold):
    """By how much the fullest window exceeds its limit: never above zero."""
    if window == "fixed":
        minutes = {floor(at / MINUTE) for at, _ in seen}
        return (
            max(sum(cost(size) for at, size in seen if floor(at / MINUTE) == m) for m in minutes)
            - limit
        )
    worst = float("-inf")
    for first, (start, _) in enumerate(seen):
        total = 0
        for at, size in seen[first:]:
            if window == "sliding" and at >= start + MINUTE:
                break
            total += cost(size)
            allowed = limit if window == "sliding" else hold + limit * (at - start) / MINUTE
            worst = max(worst, total - allowed)
    return worst


@pytest.mark.parametrize("window", WINDOWS)
@given(arrivals=arrivals, rpm=st.integers(1, 12), burst=st.integers(1, 5))
def test_no_window_sees_more_requests_than_the_limit(window, arrivals, rpm, burst):
    world = World(Settings(rpm=rpm, window=window, burst=burst if window == "bucket" else None))
    seen = admitted(world, arrivals)

    assert seen  # the first always fits
    assert most_in_a_window(window, seen, lambda _: 1, rpm, burst) <= 1e-6


@pytest.mark.parametrize(("limit", "factor"), [("input_tpm", 1), ("output_tpm", 1), ("tpm", 2)])
@pytest.mark.parametrize("window", WINDOWS)
@given(arrivals=arrivals, tpm=st.integers(12, 40))
def test_no_window_sees_more_tokens_than_the_limit(window, limit, factor, arrivals, tpm):
    seen = admitted(World(Settings(window=window, **{limit: tpm * factor})), arrivals)

    assert seen
    cost = factor.__mul__
    assert most_in_a_window(window, seen, cost, tpm * factor, tpm * factor) <= 1e-6


@pytest.mark.parametrize("window", WINDOWS)
@given(arrivals=arrivals, rpm=st.integers(1, 6), tpm=st.integers(12, 40))
def test_who_comes_back_at_the_time_it_was_told_is_admitted_and_not_a_moment_before(
    window, arrivals, rpm, tpm
):
    world = World(Settings(rpm=rpm, input_tpm=tpm, window=window))
    now = 0.0
    for gap, size in arrivals:
        now += gap
        request = WorldRequest("a", input_tokens=size)
        verdict = world.arrive(now, request)
        if not verdict.admitted:
            early, right = deepcopy(world), deepcopy(world)
            assert not early.arrive(verdict.ready_at - 0.001, request).admitted
            assert right.arrive(verdict.ready_at, request).admitted


@pytest.mark.parametrize("window", WINDOWS)
@given(rpm=st.integers(1, 30))
def test_a_client_that_always_comes_as_soon_as_it_may_gets_all_of_the_limit(window, rpm):
    world = World(Settings(rpm=rpm, window=window))
    now, count = 0.0, 0
    while now < 10 * MINUTE - 1e-6:
        verdict = world.arrive(now, WorldRequest("a"))
        count += verdict.admitted
        now = now if verdict.admitted else verdict.ready_at

    full_bucket = rpm if window == "bucket" else 0
    assert 10 * rpm - 1 <= count - full_bucket <= 10 * rpm


@given(st.lists(st.sampled_from(["arrive", "finish", "leave"]), max_size=80), st.integers(1, 5))
def test_so_many_are_in_flight_at_once_and_no_more(moves, cap):
    world = World(Settings(concurrency=cap))
    flying, peak = [], 0
    for now, move in enumerate(moves):
        if move == "arrive":
            verdict = world.arrive(now, WorldRequest(str(now)))
            assert verdict.admitted is (len(flying) < cap)
            assert verdict.admitted or (verdict.kind, verdict.status) == ("concurrency", 429)
            flying += [verdict.id] if verdict.admitted else []
        elif flying:
            getattr(world, move)(now, flying.pop(0))
        peak = max(peak, len(flying))
        assert world.stats().in_flight == len(flying)
    assert world.stats().peak_in_flight == peak


def test_what_was_rejected_is_charged_to_no_limit():
    world = World(Settings(rpm=6, burst=6, input_tpm=10, window="bucket"))
    assert world.arrive(0, WorldRequest("a", input_tokens=9)).admitted
    assert [world.arrive(0, WorldRequest("b", input_tokens=9)).kind for _ in range(20)] == [
        "input_tpm"
    ] * 20
    assert [world.arrive(0, WorldRequest("c", input_tokens=0)).admitted for _ in range(6)] == [
        True
    ] * 5 + [False]


def test_the_limit_that_lasts_longest_is_the_one_that_is_named():
    world = World(Settings(rpm=60, burst=1, input_tpm=60, token_burst=60))
    world.arrive(0, WorldRequest("a", input_tokens=60))
    verdict = world.arrive(0, WorldRequest("b", input_tokens=30))
    assert (verdict.kind, verdict.ready_at, verdict.retry_after) == ("input_tpm", 30.0, "30")
    verdict = world.arrive(0.5, WorldRequest("b", input_tokens=0))
    assert (verdict.kind, verdict.ready_at, verdict.retry_after) == ("rpm", 1.0, "1")


@pytest.mark.parametrize("window", WINDOWS)
def test_a_request_too_big_for_any_bucket_is_rejected_for_good_or_admitted_alone(window):
    big, small = WorldRequest("big", input_tokens=500), WorldRequest("small", input_tokens=1)
    world = World(Settings(input_tpm=100, window=window))
    verdict = world.arrive(0, big)
    assert (verdict.kind, verdict.ready_at, verdict.retry_after) == ("oversize", None, None)

    world = World(Settings(input_tpm=100, window=window, oversize="admit"))
    assert world.arrive(0, small).admitted
    assert not world.arrive(0, big).admitted
    assert world.arrive(60, big).admitted
    assert not world.arrive(60, small).admitted


def test_a_quota_of_the_day_ends_with_the_day():
    world = World(Settings(per_day=3))
    assert [world.arrive(0, WorldRequest("a")).admitted for _ in range(5)] == [True] * 3 + [
        False
    ] * 2
    verdict = world.arrive(10, WorldRequest("a"))
    assert (verdict.kind, verdict.ready_at) == ("per_day", 86_400.0)
    assert world.arrive(86_400, WorldRequest("a")).admitted


@pytest.mark.parametrize("window", WINDOWS)
def test_a_neighbour_leaves_only_the_rest(window):
    world = World(Settings(rpm=20, window=window, neighbour=0.5))
    assert sum(world.arrive(0, WorldRequest("a")).admitted for _ in range(30)) == 10
    assert world.arrive(0, WorldRequest("a")).headers["x-ratelimit-limit-requests"] == "20"
    assert sum(world.arrive(60, WorldRequest("a")).admitted for _ in range(30)) == 10


@pytest.mark.parametrize("window", WINDOWS)
def test_limits_step_at_their_time(window):
    world = World(Settings(rpm=10, window=window, steps=((120, {"rpm": 20}), (60, {"rpm": 2}))))

    def burst(now):
        return sum(world.arrive(now, WorldRequest("a")).admitted for _ in range(30))

    assert burst(0) == 10
    assert burst(60) == 2
    # A bucket has filled at the old rate until then.
    assert burst(120) in ((2,) if window == "bucket" else (20,))
    assert burst(180) == 20


def test_what_a_step_brings_or_takes_away_holds_from_then_on():
    world = World(Settings(steps=((10, {"concurrency": 1}), (20, {"concurrency": None, "rpm": 1}))))
    assert [world.arrive(5, WorldRequest("a")).admitted for _ in range(3)] == [True] * 3
    assert world.arrive(10, WorldRequest("a")).kind == "concurrency"
    assert world.arrive(20, WorldRequest("a")).admitted
    assert world.arrive(20, WorldRequest("a")).kind == "rpm"
    world.change(21, rpm=None)
    assert world.arrive(21, WorldRequest("a")).admitted
    with pytest.raises(ValueError, match="'minute' can't change"):
        world.change(22, minute=3)


@pytest.mark.parametrize("window", WINDOWS)
@given(arrivals=arrivals, factor=st.sampled_from([0.25, 0.5, 4.0]))
def test_a_shorter_minute_shrinks_every_time_and_changes_no_verdict(window, arrivals, factor):
    common = {
        "rpm": 5,
        "input_tpm": 30,
        "window": window,
        "latency": 2.0,
        "per_token": 0.5,
        "noise": 1.0,
    }
    plain = World(Settings(**common, steps=((64, {"rpm": 2}),)))
    scaled = World(Settings(**common, steps=((64, {"rpm": 2}),), minute=MINUTE * factor))
    now = 0.0
    for number, (gap, size) in enumerate(arrivals):
        now += gap
        request = WorldRequest(str(number), input_tokens=size)
        one, other = plain.arrive(now, request), scaled.arrive(now * factor, request)
        assert (one.admitted, one.kind) == (other.admitted, other.kind)
        assert other.latency == pytest.approx(one.latency * factor)
        assert one.ready_at is None or other.ready_at == pytest.approx(one.ready_at * factor)


def test_the_latency_is_the_first_token_and_so_much_for_each_and_a_noise_that_is_bounded():
    world = World(Settings(latency=2.0, per_token=0.5, noise=1.0), seed=3)
    drawn = [world.arrive(0, WorldRequest(str(n), output_tokens=10)) for n in range(200)]
    assert all(7.0 <= verdict.latency < 8.0 for verdict in drawn)
    assert all(verdict.latency - verdict.first == pytest.approx(5.0) for verdict in drawn)
    assert max(v.latency for v in drawn) > 7.9
    assert min(v.latency for v in drawn) < 7.1


@given(
    st.integers(0, 2**62),
    st.integers(1, 40),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(1, 60)),
)
def test_a_reply_has_as_many_tokens_as_the_settings_and_the_request_allow(seed, least, more, most):
    world = World(Settings(output_min=least, output_max=least + more), seed)
    verdict = world.arrive(0, WorldRequest("a", max_tokens=most))
    natural = (
        World(Settings(output_min=least, output_max=least + more), seed)
        .arrive(0, WorldRequest("a"))
        .output_tokens
    )
    assert least <= natural <= least + more
    assert verdict.output_tokens == (natural if most is None else min(natural, most))
    assert verdict.cut is (verdict.output_tokens < natural)


# --- faults and random choices


@given(arrivals=arrivals, seed=st.integers(0, 2**62))
def test_the_same_seed_gives_the_same_verdicts_and_the_same_log(arrivals, seed):
    def play():
        world = World(Settings(rpm=20, noise=2.0, faults={"500": 0.2, "stall": 0.2}), seed)
        now, said = 0.0, []
        for gap, size in arrivals:
            now += gap
            said.append(world.arrive(now, WorldRequest(str(size), input_tokens=size)))
            if said[-1].admitted and size % 2:
                world.finish(now, said[-1].id)
        return said, world.ledger.entries

    assert play() == play()


def test_another_seed_gives_other_draws():
    def drawn(seed):
        world = World(Settings(noise=1.0, faults={"500": 0.5}), seed)
        return [
            (v.latency, v.fault, v.output_tokens)
            for n in range(20)
            for v in [world.arrive(0, WorldRequest(str(n)))]
        ]

    assert drawn(1) != drawn(2)


@given(st.permutations([(key, turn) for key in "abcd" for turn in range(3)]))
def test_what_happens_to_a_request_does_not_depend_on_what_came_in_between(order):
    def play(order):
        world = World(Settings(noise=1.0, faults={"500": 0.3, "429": 0.2}), seed=5)
        fates = {key: [] for key in "abcd"}
        for key, _ in order:
            verdict = world.arrive(0, WorldRequest(key))
            fates[key].append((verdict.fault, verdict.latency, verdict.output_tokens))
        return fates

    assert play(order) == play(sorted(order))


def test_faults_come_as_often_as_their_rates_say():
    world = World(Settings(faults={"500": 0.1, "stall": 0.05, "429": 0.2}), seed=1)
    verdicts = [world.arrive(0, WorldRequest(str(n))) for n in range(4000)]
    names = [verdict.fault.name for verdict in verdicts if verdict.fault]
    for name, rate in (("500", 0.1), ("stall", 0.05), ("429", 0.2)):
        assert names.count(name) / 4000 == pytest.approx(rate, rel=0.2)


def test_a_request_that_broke_by_chance_may_succeed_the_next_time():
    world = World(Settings(faults={"500": 0.5}), seed=1)
    tries = [[world.arrive(0, WorldRequest(str(n))).fault for _ in range(8)] for n in range(20)]
    assert all(None in fates for fates in tries)


def test_the_nth_request_to_arrive_is_the_one_that_breaks():
    world = World(Settings(fault_at={2: "503", 3: "401"}))
    verdicts = [world.arrive(0, WorldRequest(str(n))) for n in range(4)]
    assert [verdict.status for verdict in verdicts] == [200, 503, 401, 200]


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_can_be_asked_for_in_the_model_or_in_the_prompt(name):
    for request in (
        WorldRequest("a", model=f"fault-{name}"),
        WorldRequest("b", prompt=f"now do fault-{name}, please"),
    ):
        verdict = World().arrive(0, request)
        assert verdict.fault == FAULTS[name]
        assert verdict.admitted is not FAULTS[name].early
        assert World(Settings(markers=False)).arrive(0, request).fault is None


@pytest.mark.parametrize(
    "prompt", ["default-500", "a page-fault-500 handler", "fault-5000", "fault-nonsense", "fault"]
)
def test_what_only_looks_like_a_marker_is_none(prompt):
    assert World().arrive(0, WorldRequest("a", prompt=prompt)).fault is None


@pytest.mark.parametrize("name", ["500", "reset-body", "429-date"])
def test_a_marker_with_a_number_breaks_only_so_often(name):
    world = World()
    request = WorldRequest("a", prompt=f"fault-{name}x2")
    assert [world.arrive(0, request).fault is not None for _ in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert world.arrive(0, WorldRequest("b", prompt=f"fault-{name}x2")).fault is not None


def test_what_is_refused_at_the_door_is_charged_nothing_and_a_failure_inside_is():
    world = World(Settings(rpm=2, burst=2))
    for name in (name for name, fault in FAULTS.items() if fault.early):
        assert not world.arrive(0, WorldRequest("a", model=f"fault-{name}")).admitted
    assert world.arrive(0, WorldRequest("a", model="fault-500")).admitted
    assert world.arrive(0, WorldRequest("b")).admitted
    assert world.arrive(0, WorldRequest("c")).kind == "rpm"


# --- the log


def test_the_log_says_what_became_of_each():
    world = World(Settings(rpm=60, burst=4, latency=2.0), start=100.0)
    done, gone, broken, open_ = (
        world.arrive(100.0 + n, WorldRequest(str(n), model=m))
        for n, m in enumerate(["m", "m", "fault-500", "m"])
    )
    world.arrive(103.0, WorldRequest("d", lane="gemini", model="fault-401"))
    world.first(102.0, done.id)
    world.finish(105.0, done.id)
    world.leave(106.0, gone.id)
    world.leave(107.0, gone.id)
    world.finish(107.0, broken.id)

    log = world.ledger.entries
    assert [entry.outcome for entry in log] == ["ok", "disconnected", "fault", "", "fault"]
    assert [entry.in_flight for entry in log] == [0, 1, 2, 3, 4]
    assert [entry.t_arrive for entry in log] == [0.0, 1.0, 2.0, 3.0, 3.0]
    assert [entry.service for entry in log] == [5.0, 5.0, 5.0, None, 0.0]
    assert (log[0].t_first, log[4].lane, log[4].kind, log[2].fault) == (2.0, "gemini", "401", "500")
    stats = world.stats()
    assert (stats.arrived, stats.admitted, stats.rejected) == (5, 4, 0)
    assert (stats.ok, stats.faults, stats.disconnects, stats.in_flight) == (1, 2, 1, 1)
    assert open_.admitted
    assert repr(world) == "<World 1 in flight, 4 admitted, 0 rejected>"
