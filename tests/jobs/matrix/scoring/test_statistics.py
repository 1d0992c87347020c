"""What the rows of a matrix say: scores, comparisons, failures, latencies, costs, balance."""

import math
from dataclasses import asdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.matrix.report import accounts
from abreast.jobs.matrix.report.findings import findings
from abreast.jobs.matrix.scoring import statistics
from abreast.jobs.matrix.scoring.arms import Arm, arms, score_names
from tests.jobs.matrix.made_rows import FACTS, row, study
from tests.properties import tried

EVERYTHING = (
    statistics.summaries,
    statistics.comparisons,
    statistics.controls,
    accounts.failures,
    accounts.score_failures,
    accounts.latencies,
    accounts.loads,
    accounts.costs,
    accounts.totals,
    accounts.balance,
)


def numbers(value):
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers(inner)


def failed(*place, **more):
    return row(*place, state="failed", error="no", error_type="Timeout", **more)


# --- scores


def test_a_failed_cell_and_a_score_error_count_as_0_as_intended_and_not_at_all_as_valid():
    rows = [
        row("m", "s", "a", score=0.8),
        row("m", "s", "b", score=0.4),
        failed("m", "s", "c"),
        row("m", "s", "d", score=None, score_errors={"exact": "ValueError"}),
    ]
    (one,) = statistics.summaries(rows)
    assert (one.arm, one.score) == (Arm("m", "s"), "exact")
    assert (one.intended.n, one.intended.mean) == (4, pytest.approx(0.3))
    assert (one.valid.n, one.valid.mean) == (2, pytest.approx(0.6))


def test_a_failed_cell_counts_as_0_whatever_it_scored_before_it_failed():
    rows = [row("m", "s", "a", score=0.5), failed("m", "s", "b", scores={"exact": 1.0})]
    (one,) = statistics.summaries(rows)
    assert (one.intended.mean, one.valid.n, one.valid.mean) == (0.25, 1, 0.5)


def test_a_score_that_is_no_number_is_no_score():
    rows = [
        row("m", "s", "a", score=math.nan),
        row("m", "s", "b", score=math.inf),
        row("m", "s", "c", score=0.6),
    ]
    (one,) = statistics.summaries(rows)
    assert (one.valid.n, one.valid.mean, one.intended.mean) == (1, 0.6, pytest.approx(0.2))


def test_an_arm_that_always_failed_scores_0_and_one_without_a_score_is_not_in_it():
    rows = [
        row("a", "s", "x", scores={"exact": 1.0, "f1": 0.5}),
        failed("b", "s", "x"),
        row("c", "s", "x", scores={"exact": 1.0}),
    ]
    found = {(one.score, one.arm.model): one for one in statistics.summaries(rows)}
    assert found.keys() == {
        ("exact", "a"),
        ("exact", "b"),
        ("exact", "c"),
        ("f1", "a"),
        ("f1", "b"),
    }
    assert (found["f1", "b"].intended.mean, found["f1", "b"].valid.mean) == (0.0, None)
    assert [
        (one.first.model, one.second.model)
        for one in statistics.comparisons(rows)
        if one.score == "f1"
    ] == [("b", "a")]


def test_arms_are_compared_input_by_input_after_averaging_repeats():
    from scipy import stats

    random = Random(3)
    values = {
        (model, given, repeat): round(random.random() + (model == "b") / 2, 3)
        for model in "ab"
        for given in range(12)
        for repeat in range(3)
    }
    rows = [
        row(model, "s", f"i{given}", repeat, score=v)
        for (model, given, repeat), v in values.items()
    ]
    (one,) = statistics.comparisons(rows)
    means = {
        model: [sum(values[model, given, repeat] for repeat in range(3)) / 3 for given in range(12)]
        for model in "ab"
    }
    reference = stats.wilcoxon(means["b"], means["a"], zero_method="pratt")
    differences = [after - before for before, after in zip(means["a"], means["b"], strict=True)]
    assert (one.first, one.second) == (Arm("a", "s"), Arm("b", "s"))
    assert one.intended.pairs == 12
    assert one.intended.p == pytest.approx(reference.pvalue)
    assert one.intended.adjusted == one.intended.p
    assert one.intended.mean == pytest.approx(sum(differences) / 12)
    ranks = stats.rankdata([abs(value) for value in differences])
    up = sum(rank for rank, value in zip(ranks, differences, strict=True) if value > 0)
    assert one.intended.effect == pytest.approx((2 * up - sum(ranks)) / sum(ranks))


def test_only_inputs_that_both_arms_have_are_compared():
    rows = [row("a", "s", f"i{n}", score=0.1 * n) for n in range(8)]
    rows += [row("b", "s", f"i{n}", score=0.1 * n + 0.05) for n in range(4, 12)]
    (one,) = statistics.comparisons(rows)
    assert one.intended.pairs == 4
    assert "too few inputs" in one.intended.test
    apart = statistics.comparisons([row("a", "s", "x"), row("b", "s", "y")])
    assert (apart[0].intended.mean, apart[0].intended.test) == (None, "no input in common")


def test_all_pairs_of_a_score_are_one_family_and_scores_do_not_mix():
    random = Random(5)
    rows = [
        row(model, "s", f"i{n}", scores={"x": random.random() + lift, "y": random.random()})
        for model, lift in (("a", 0), ("b", 0.3), ("c", 0.6))
        for n in range(10)
    ]
    found = statistics.comparisons(rows)
    assert len(found) == 6
    for score in ("x", "y"):
        family = sorted(
            (one.intended for one in found if one.score == score), key=lambda one: one.p
        )
        expected = []
        for place, one in enumerate(family):
            expected.append(min(1.0, max([(3 - place) * one.p, *expected])))
        assert [one.adjusted for one in family] == pytest.approx(expected)


def test_controls_are_counted_and_never_compared():
    plain = study(120)
    held = [one for one in plain if not one.control]
    assert len(held) < len(plain)
    for work in (
        statistics.summaries,
        statistics.comparisons,
        accounts.latencies,
        accounts.costs,
        accounts.balance,
    ):
        assert work(plain) == work(held), work
    assert all(
        "control" not in (one.first.model, one.second.model)
        for one in statistics.comparisons(plain)
    )
    assert arms(plain) == arms(held)
    assert {(one.strategy, one.mean) for one in statistics.controls(plain)} == {
        ("empty", 0),
        ("echo", 0),
        ("truth", 1),
    }
    assert accounts.totals(plain).controls == len(plain) - len(held)
    assert statistics.controls([row("c", "truth", control=True, score=None)])[0].mean is None


@tried(4)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(random):
    rows = study(50)
    shuffled = random.sample(rows, len(rows))
    for work in (
        statistics.summaries,
        accounts.failures,
        accounts.loads,
        accounts.totals,
        accounts.balance,
    ):
        assert work(shuffled) == work(rows), work
    assert findings(shuffled, FACTS) == findings(rows, FACTS)


def test_a_constant_added_to_every_score_moves_every_mean_and_no_comparison():
    rows = [
        row(m, "s", f"i{n}", score=((n * 7 + ord(m)) % 10) / 10 + 2)
        for m in "abc"
        for n in range(9)
    ]
    moved = [row(one.model, "s", one.input, score=one.scores["exact"] + 5) for one in rows]
    for before, after in zip(statistics.summaries(rows), statistics.summaries(moved), strict=True):
        assert after.intended.mean == pytest.approx(before.intended.mean + 5)
        assert after.intended.high - after.intended.low == pytest.approx(
            before.intended.high - before.intended.low
        )
    pairs = {(one.first, one.second): one.intended for one in statistics.comparisons(rows)}
    for one in statistics.comparisons(moved):
        before = pairs[one.first, one.second]
        assert (one.intended.mean, one.intended.p) == pytest.approx(
            (before.mean, before.p), abs=1e-12
        )


# --- what the cells took


def test_failures_are_counted_by_kind_with_an_example():
    rows = [row("m", "s", "a"), failed("m", "s", "b"), failed("m", "s", "c")]
    rows += [
        row("m", "s", "d", state="failed"),
        row("n", "s", "a", state="failed", error_type="Bad", error="what"),
    ]
    found = [
        (one.arm.model, one.error_type, one.count, one.cells, one.example)
        for one in accounts.failures(rows)
    ]
    assert found == [
        ("m", "Timeout", 2, 4, "no"),
        ("m", accounts.UNNAMED, 1, 4, ""),
        ("n", "Bad", 1, 1, "what"),
    ]
    unscored = [row("m", "s", "a", scores={"f1": None}, score_errors={"f1": "KeyError"})]
    assert accounts.score_failures(unscored) == [(Arm("m", "s"), "f1", 1)]


def test_latencies_are_of_cells_that_were_done():
    rows = [row("m", "s", f"i{n}", service_s=float(n)) for n in range(1, 101)] + [
        failed("m", "s", "x", service_s=9e9)
    ]
    (one,) = accounts.latencies(rows)
    assert (one.n, [held.share for held in one.quantiles]) == (100, [0.5, 0.9, 0.99])
    assert (one.quantiles[0].value, one.quantiles[0].low, one.quantiles[0].high) == (
        50.5,
        40.0,
        61.0,
    )


@pytest.mark.parametrize(
    ("slower", "said", "queued"),
    [(1, "grew with", True), (0, "did not depend", False), (-1, "were faster", False)],
)
def test_a_lane_that_slows_under_load_is_told_from_one_that_does_not(slower, said, queued):
    from scipy import stats

    random = Random(1)
    rows = [
        row(
            "p/m",
            "s",
            f"i{n}",
            in_flight=1 + n % 4,
            service_s=5 + slower * (n % 4) + random.random(),
        )
        for n in range(200)
    ]
    (one,) = accounts.loads(rows)
    reference = stats.spearmanr([r.in_flight for r in rows], [r.service_s for r in rows])
    assert (one.lane, one.found.n, one.queued) == ("p", 200, queued)
    assert (one.found.rho, one.found.p) == pytest.approx((reference.statistic, reference.pvalue))
    assert said in one.sentence


def test_a_trace_of_load_is_called_one():
    rows = [
        row("p/m", "s", f"i{n}", in_flight=1 + n % 4, service_s=n * 997 % 5000 + 75 * (n % 4))
        for n in range(5000)
    ]
    (one,) = accounts.loads(rows)
    assert 0 < one.found.rho < 0.1
    assert one.found.p < 0.05
    assert not one.queued
    assert "hardly depended" in one.sentence


def test_every_lane_is_corrected_for_the_others():
    random = Random(2)
    rows = [
        row(f"{lane}/m", "s", f"i{n}", in_flight=1 + n % 4, service_s=random.random())
        for lane in "abcd"
        for n in range(60)
    ]
    alone = [
        accounts.loads([one for one in rows if one.lane == lane])[0].found.p for lane in "abcd"
    ]
    together = [one.found.p for one in accounts.loads(rows)]
    assert all(after >= before for before, after in zip(alone, together, strict=True))
    assert together[alone.index(min(alone))] == pytest.approx(min(1, 4 * min(alone)))
    assert "cannot be tested" in accounts.loads([row("a/m", "s")])[0].sentence


def test_costs_and_the_best_for_their_price():
    prices = {
        "cheap": (0.001, 0.2),
        "bad": (0.002, 0.1),
        "good": (0.003, 0.9),
        "same": (0.003, 0.9),
        "dear": (0.01, 0.9),
    }
    rows = [
        row(m, "s", f"i{n}", usd=usd, score=mean)
        for m, (usd, mean) in prices.items()
        for n in range(3)
    ]
    rows += [
        row("free", "s", "i0", usd=None, score=1.0),
        row("cheap", "s", "i3", usd=None, score=0.2),
    ]
    costs = {one.arm.model: one for one in accounts.costs(rows)}
    assert (costs["cheap"].cells, costs["cheap"].priced) == (4, 3)
    assert (costs["cheap"].usd, costs["cheap"].per_cell) == pytest.approx((0.003, 0.001))
    assert (costs["free"].usd, costs["free"].per_cell) == (None, None)
    offers = statistics.pareto(rows, statistics.summaries(rows), "exact")
    assert [(one.arm.model, one.front) for one in offers] == [
        ("cheap", True),
        ("bad", False),
        ("good", True),
        ("same", True),
        ("dear", False),
    ]


@pytest.mark.parametrize("usd", [0.0, None])
def test_where_nothing_costs_money_the_price_of_an_arm_is_its_tokens(usd):
    tokens = {"short": (30, 0.5), "long": (90, 0.5), "best": (60, 0.9)}
    rows = [
        row(m, "s", f"i{n}", usd=usd, score=mean, input_tokens=used - 10, output_tokens=10)
        for m, (used, mean) in tokens.items()
        for n in range(3)
    ]
    offers = statistics.pareto(rows, statistics.summaries(rows), "exact")
    assert [(one.arm.model, one.price, one.unit, one.front) for one in offers] == [
        ("short", 30.0, "tokens", True),
        ("best", 60.0, "tokens", True),
        ("long", 90.0, "tokens", False),
    ]
    paid = [*rows, row("dear", "s", "i0", usd=0.5, score=0.1)]
    assert {one.unit for one in statistics.pareto(paid, statistics.summaries(paid), "exact")} == {
        "USD"
    }


def test_totals_count_each_cell_once():
    rows = [
        row("m", "s", "a", input_tokens=10, output_tokens=2, usd=0.25, estimated=True),
        failed("m", "s", "b", input_tokens=5, usd=0.5),
        row("m", "s", "c"),
        row("m", "empty", "a", control=True, usd=99.0),
    ]
    found = accounts.totals(rows)
    assert (found.cells, found.done, found.failed, found.controls) == (3, 2, 1, 1)
    assert (found.input_tokens, found.output_tokens, found.usd, found.unpriced) == (15, 2, 0.75, 1)
    assert found.estimated == pytest.approx(1 / 3)


def test_balance_counts_the_cells_that_are_not_there_too():
    rows = [row(m, "s", given, repeat) for m in "ab" for given in "xy" for repeat in range(2)]
    assert asdict(accounts.balance(rows)) == {
        "arms": 2,
        "inputs": 2,
        "least": 2,
        "most": 2,
        "short": 0,
    }
    found = accounts.balance([one for one in rows if (one.model, one.input) != ("a", "x")])
    assert (found.least, found.most, found.short, found.even) == (0, 2, 1, False)
    assert accounts.balance(rows[:-1]).even


# --- the edges


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row()],
        [failed("m", "s", "a")],
        [failed(m, "s", f"i{n}") for m in "ab" for n in range(9)],
        [row(m, "s", f"i{n}", score=0.5) for m in "ab" for n in range(9)],
        [row(m, "s", f"i{n}", score=1.0) for m in "ab" for n in range(9)],
        [row(m, "s", f"i{n}", scores={}) for m in "ab" for n in range(9)],
        [row(m, "s", f"i{n}", scores={m: 1.0}) for m in "ab" for n in range(9)],
        [row("c", "truth", control=True)],
        study(40),
    ],
    ids=[
        "none",
        "one",
        "one failed",
        "all failed",
        "constant",
        "all right",
        "unscored",
        "other scores",
        "control",
        "study",
    ],
)
def test_whatever_the_rows_are_every_number_is_one(rows):
    for work in EVERYTHING:
        found = work(rows)
        held = [
            asdict(one) if hasattr(one, "__dataclass_fields__") else one
            for one in (found if isinstance(found, list) else [found])
        ]
        assert all(math.isfinite(value) for value in numbers(held)), work
    assert findings(rows, {}).title == "Matrix"
    assert score_names(rows) == sorted(score_names(rows))
