"""A budget is never exceeded, is used fully, and is spent only when nothing could free it."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import BudgetSpent
from abreast.core.outcome import NO_USAGE, Usage
from abreast.limits.budget import DIMENSIONS, Budget
from abreast.limits.limit import WHENEVER, Need
from abreast.limits.slots import Slots
from tests.limits.desk import GateRecorder
from tests.properties import tried


@st.composite
def works(draw: st.DrawFn) -> list[tuple[Need, Usage | None]]:
    """Pieces of work: what each reserves, and what it uses in the end, never more than that."""
    made: list[tuple[Need, Usage | None]] = []
    for _ in range(draw(st.integers(1, 10))):
        need = Need(
            requests=draw(st.integers(0, 2)),
            tokens=draw(st.integers(0, 20)),
            usd=draw(st.integers(0, 8)) / 8,
        )
        made.append((need, draw(st.none() | st.just(NO_USAGE) | usages(need))))
    return made


@st.composite
def usages(draw: st.DrawFn, need: Need) -> Usage:
    tokens = draw(st.integers(0, need.tokens))
    heard = draw(st.integers(0, tokens))
    usd = draw(st.none() | st.integers(0, int(need.usd * 8)).map(lambda eighths: eighths / 8))
    return Usage(draw(st.integers(0, need.requests)), heard, tokens - heard, usd)


def used_up(need: Need, used: Usage | None) -> dict[str, float]:
    """What a piece of work costs in the end; if unknown, what was reserved."""
    if used is None:
        return {"requests": need.requests, "tokens": need.tokens, "usd": need.usd}
    return {
        "requests": need.requests if used is NO_USAGE else used.requests,
        "tokens": used.input_tokens + used.output_tokens,
        "usd": need.usd if used.usd is None else used.usd,
    }


def fits_one_after_the_other(
    caps: dict[str, float], pieces: list[tuple[Need, Usage | None]]
) -> bool:
    spent = dict.fromkeys(DIMENSIONS, 0.0)
    for need, used in pieces:
        if any(spent[name] + getattr(need, name) > cap for name, cap in caps.items()):
            return False
        for name, amount in used_up(need, used).items():
            spent[name] += amount
    return True


CAPS = st.fixed_dictionaries(
    {},
    optional={
        "requests": st.integers(1, 12),
        "tokens": st.integers(1, 120),
        "usd": st.integers(1, 40).map(lambda e: e / 8),
    },
).filter(bool)


@given(caps=CAPS, pieces=works(), seed=st.integers(0, 2**32), width=st.integers(1, 10))
@tried(300)
def test_under_every_interleaving_spent_and_reserved_stay_below_the_cap(caps, pieces, seed, width):
    recorder, budget, room, schedule = GateRecorder(), Budget(**caps), Slots(width), Random(seed)
    fits = fits_one_after_the_other(caps, pieces)
    coming = list(enumerate(pieces))
    spent = dict.fromkeys(DIMENSIONS, 0.0)

    def check() -> None:
        for name in DIMENSIONS:
            assert budget.spent[name] == spent[name]
            assert budget.spent[name] + budget.reserved[name] <= caps.get(name, math.inf)
            assert budget.reserved[name] == sum(
                getattr(pieces[held][0], name) for held in recorder.holding
            )
        recorder.check(budget, room)

    while coming or recorder.holding:
        if coming and (not recorder.holding or schedule.random() < 0.5):
            name, (need, _) = coming.pop(0)
            recorder.ask(name, room, (budget, need))
        else:
            name = schedule.choice(sorted(recorder.holding))
            used = pieces[name][1]
            for dimension, amount in used_up(pieces[name][0], used).items():
                spent[dimension] += amount
            recorder.give(name, used)
        check()
    assert not recorder.waiting, "no ticket waits for ever"
    assert len(recorder.granted) + len(recorder.failed) == len(pieces)
    if fits:
        assert not recorder.failed, "what fits one after the other fits at any width"
        assert recorder.granted == list(range(len(pieces)))


def test_all_that_fits_beside_each_other_runs_beside_each_other():
    recorder, budget = GateRecorder(), Budget(tokens=100)
    assert all(recorder.ask(name, (budget, Need(tokens=25))) for name in range(4))
    assert not recorder.ask("fifth", (budget, Need(tokens=1)))
    assert budget.reserved["tokens"] == 100


def test_requests_are_exact():
    recorder, budget = GateRecorder(), Budget(requests=5)
    for name in range(9):
        recorder.ask(name, budget)
    assert len(recorder.holding) == 5
    while recorder.holding:
        recorder.give(min(recorder.holding), NO_USAGE)
    assert recorder.granted == [0, 1, 2, 3, 4]
    assert sorted(recorder.failed) == [5, 6, 7, 8]
    assert budget.spent["requests"] == 5


def test_it_is_spent_only_when_nothing_in_flight_could_make_room():
    recorder, budget = GateRecorder(), Budget(tokens=100)
    recorder.ask("one", (budget, Need(tokens=60)))
    recorder.ask("two", (budget, Need(tokens=40)))
    assert not recorder.ask("three", (budget, Need(tokens=50)))
    assert not recorder.failed
    # 60 spent, 40 in flight: even if those use nothing, it does not fit.
    recorder.give("one", Usage(1, 60))
    assert "three" in recorder.failed
    assert (
        str(recorder.failed["three"])
        == "the budget is spent: 60 of 100 tokens used, and the next call asks for 50"
    )


def test_a_settlement_that_makes_room_lets_the_next_go():
    recorder, budget = GateRecorder(), Budget(usd=1.0)
    recorder.ask("one", (budget, Need(usd=0.8)))
    assert not recorder.ask("two", (budget, Need(usd=0.5)))
    recorder.give("one", Usage(1, 0, 0, 0.3))
    assert recorder.granted == ["one", "two"]


def test_a_need_that_could_never_fit_is_refused_at_once():
    recorder, budget = GateRecorder(), Budget(requests=10, tokens=100)
    recorder.ask("big", (budget, Need(tokens=101)))
    assert "big" in recorder.failed
    assert budget.reserved == {"requests": 0, "tokens": 0, "usd": 0}
    assert recorder.ask("small", (budget, Need(tokens=100)))


def test_what_was_used_beyond_its_reservation_ends_the_budget_and_nobody_waits_for_ever():
    recorder, budget = GateRecorder(), Budget(tokens=100)
    recorder.ask("item", budget)  # an item starts before it is known what its calls will use
    recorder.give("item", Usage(1, 100, 50))
    recorder.ask("next", budget)
    assert "next" in recorder.failed
    assert not recorder.waiting


def test_a_dimension_without_a_cap_is_counted_and_never_refuses():
    recorder, budget = GateRecorder(), Budget(requests=10)
    assert recorder.ask("one", (budget, Need(tokens=10**12, usd=1e9)))
    recorder.give("one", Usage(1, 3, 4, 5.0))
    assert budget.spent == {"requests": 1, "tokens": 7, "usd": 5.0, "seconds": 0}


def test_an_unknown_price_is_settled_at_what_was_reserved():
    recorder, budget = GateRecorder(), Budget(usd=1.0)
    recorder.ask("one", (budget, Need(usd=0.5)))
    recorder.give("one", Usage(1, 10, 10, None))
    assert budget.spent["usd"] == 0.5


def test_many_small_sums_of_money_fill_the_cap_in_spite_of_their_rounding():
    recorder, budget = GateRecorder(), Budget(usd=1.0)
    for name in range(10):
        assert recorder.ask(name, (budget, Need(usd=0.1)))
    for name in range(10):
        recorder.give(name)
    assert budget.reserved["usd"] == pytest.approx(0.0)
    recorder.ask("one more", (budget, Need(usd=0.1)))
    assert "one more" in recorder.failed


def test_the_clock_of_a_budget_starts_with_its_first_use():
    recorder, budget = GateRecorder(1000.0), Budget(seconds=10)
    assert budget.deadline() is None
    recorder.clock.advance_nowait(100)
    assert recorder.ask("one", budget)
    assert budget.deadline() == 1110.0
    recorder.clock.advance_nowait(9.5)
    assert recorder.ask("two", budget)
    recorder.clock.advance_nowait(0.5)
    recorder.ask("three", budget)
    assert str(recorder.failed["three"]) == "the budget of 10 seconds is spent"


def test_the_clock_is_started_once():
    budget = Budget(seconds=10)
    budget.begin(5.0)
    budget.begin(9.0)
    assert budget.deadline() == 15.0
    assert Budget(requests=1).deadline() is None


def test_who_waits_when_the_time_runs_out_is_told_at_the_next_turn():
    recorder, budget, slots = GateRecorder(), Budget(seconds=10), Slots(1)
    recorder.ask("one", slots, budget)
    recorder.ask("two", slots, budget)
    recorder.clock.advance_nowait(11)
    recorder.give("one")
    assert "two" in recorder.failed
    recorder.check(slots, budget)


def test_a_resumed_budget_goes_on_from_what_was_spent():
    recorder, budget = GateRecorder(50.0), Budget(requests=10, tokens=100, seconds=60)
    budget.restore({"requests": 4, "tokens": 90, "seconds": 45})
    budget.begin(50.0)
    assert budget.deadline() == 65.0
    recorder.ask("too big", (budget, Need(tokens=11)))
    assert "too big" in recorder.failed
    assert recorder.ask("small", (budget, Need(tokens=10)))


def test_a_snapshot_counts_what_is_reserved_and_the_time_that_runs():
    recorder, budget = GateRecorder(5.0), Budget(requests=10, seconds=60)
    assert budget.snapshot(5.0) == {}
    recorder.ask("one", (budget, Need(tokens=7)))
    recorder.ask("two", budget)
    recorder.give("two", Usage(1, 1, 1, 0.5))
    assert budget.snapshot(8.0) == {"requests": 2, "tokens": 9, "usd": 0.5, "seconds": 3.0}
    again = Budget(requests=10, seconds=60)
    again.restore(budget.snapshot(8.0))
    assert again.snapshot(99.0) == budget.snapshot(8.0)


def test_a_refusal_names_no_time():
    budget = Budget(tokens=10)
    budget.take(Need(tokens=6), 0.0)
    assert budget.refusal(Need(tokens=4), 0.0) is None
    assert budget.refusal(Need(tokens=5), 0.0) == WHENEVER
    with pytest.raises(BudgetSpent):
        budget.refusal(Need(tokens=11), 0.0)


# --- text form


@pytest.mark.parametrize(
    ("text", "caps", "seconds"),
    [
        ("50req", {"requests": 50}, None),
        ("50requests", {"requests": 50}, None),
        ("2Mtok", {"tokens": 2_000_000}, None),
        ("3ktokens", {"tokens": 3000}, None),
        ("3Ktok", {"tokens": 3000}, None),
        ("1.5ktok", {"tokens": 1500}, None),
        ("2.3Mtok", {"tokens": 2_300_000}, None),
        ("20usd", {"usd": 20.0}, None),
        ("0.5$", {"usd": 0.5}, None),
        ("10s", {}, 10.0),
        ("10sec", {}, 10.0),
        ("10min", {}, 600.0),
        ("1.5h", {}, 5400.0),
        (
            " 500 req , 2 Mtok,20usd,10min ",
            {"requests": 500, "tokens": 2_000_000, "usd": 20.0},
            600.0,
        ),
    ],
)
def test_a_budget_is_read_from_its_units(text, caps, seconds):
    budget = Budget.parse(text)
    assert budget.caps == caps
    assert budget.seconds == seconds


@given(requests=st.integers(1, 10**12), thousandths=st.integers(1, 10**9))
def test_every_whole_number_is_read_exactly(requests, thousandths):
    budget = Budget.parse(f"{requests}req,{thousandths // 1000}.{thousandths % 1000:03}ktok")
    assert budget.caps == {"requests": requests, "tokens": thousandths}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "50",
        "req",
        "50req,",
        "-3usd",
        "1e6tok",
        "50reqs",
        "$20",
        "20 USD",
        "2mtok",
        "1,000tok",
        "nanusd",
    ],
)
def test_what_is_no_amount_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="is no amount; write 50req, 2Mtok, 20usd or 10min"):
        Budget.parse(text)


@pytest.mark.parametrize(
    "text", ["0req", "0tok", "0usd", "0min", "0.0usd", f"1{'0' * 400}usd", f"1{'0' * 400}tok"]
)
def test_an_amount_of_nothing_or_without_end_is_refused(text):
    with pytest.raises(
        ValueError,
        match=r"a budget's (requests|tokens|usd|seconds) must be a (positive|whole) number",
    ):
        Budget.parse(text)


@pytest.mark.parametrize("text", ["1.5req", "0.5tok", "0.0001ktok"])
def test_a_part_of_a_request_or_token_is_refused_rather_than_rounded(text):
    with pytest.raises(ValueError, match="must be a whole number"):
        Budget.parse(text)


@pytest.mark.parametrize("text", ["1req,2requests", "5$,5usd", "1min,30s", "1ktok,1tok"])
def test_a_dimension_named_twice_is_refused(text):
    with pytest.raises(ValueError, match=r"the budget names (requests|usd|seconds|tokens) twice"):
        Budget.parse(text)


@pytest.mark.parametrize("name", ["requests", "tokens", "usd", "seconds"])
@pytest.mark.parametrize("cap", [0, -1, True, math.nan, math.inf, "3"])
def test_a_cap_is_a_positive_number(name, cap):
    with pytest.raises(ValueError, match=f"a budget's {name} must be a positive number, not "):
        Budget(**{name: cap})


def test_a_budget_caps_something():
    with pytest.raises(ValueError, match="at least one of requests, tokens, usd, seconds"):
        Budget()


def test_its_repr_says_what_is_spent_and_reserved_of_each_cap():
    budget = Budget(requests=10, usd=2.5, seconds=60)
    budget.take(Need(), 0.0)
    budget.take(Need(), 0.0)
    budget.give(Need(), None, None, 0.0)
    assert repr(budget) == "<Budget 1+1/10 requests, 0+0/2.5 usd, 60 s>"
    assert repr(Budget(tokens=2_000_000)) == "<Budget 0+0/2e+06 tokens>"
