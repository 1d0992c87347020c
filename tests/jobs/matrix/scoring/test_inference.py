"""Statistics, against formulas written out here and examples with published answers."""

import math
import statistics as standard
import subprocess
import sys
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.matrix.report import figures
from abreast.jobs.matrix.scoring import inference
from abreast.jobs.matrix.scoring.inference import (
    FEWEST,
    Correlation,
    NeedsReport,
    corrected,
    correlation,
    estimate,
    holm,
    paired,
    quantiles,
)

# Darwin's maize: heights of crossed less self-fertilised plants, in eighths of an inch, as Fisher
# printed them.
DARWIN = [6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75]
CASES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=FEWEST, max_size=12)


def t_interval(values):
    from scipy.special import stdtrit

    half = stdtrit(len(values) - 1, 0.975) * standard.stdev(values) / math.sqrt(len(values))
    return standard.fmean(values) - half, standard.fmean(values) + half


def signed_ranks(differences):
    """The exact two-sided p of Wilcoxon's test, by trying every sign.

    For differences without ties or zeros.
    """
    ranks = {abs(value): place + 1 for place, value in enumerate(sorted(map(abs, differences)))}
    least = min(sum(ranks[abs(v)] for v in differences if v * way > 0) for way in (1, -1))
    sums = [
        sum(rank for rank, up in zip(ranks.values(), signs, strict=True) if up)
        for signs in product((0, 1), repeat=len(ranks))
    ]
    return min(1.0, 2 * sum(one <= least for one in sums) / len(sums))


# --- one list of numbers


@pytest.mark.parametrize(  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
    ("successes", "count", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_a_proportion_has_wilsons_interval(successes, count, low, high):
    found = estimate([[1.0]] * successes + [[0.0]] * (count - successes))
    assert (found.n, found.inputs, found.method) == (count, count, "Wilson")
    assert found.mean == pytest.approx(successes / count)
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)


def test_a_mean_has_students_interval_over_the_inputs_averages():
    blocks = [[1.0, 3.0], [5.0], [2.0, 2.0, 5.0], [9.0]]
    found = estimate(blocks)
    assert (found.n, found.inputs, found.method) == (7, 4, "t")
    assert found.mean == pytest.approx(4.75)
    assert (found.low, found.high) == pytest.approx(t_interval([2, 5, 3, 9]))


def test_an_interval_of_scores_between_0_and_1_stays_there():
    values = [0.9, 1.0, 1.0, 0.5]
    assert t_interval(values)[1] > 1
    assert estimate([[value] for value in values]).high == 1.0
    assert estimate([[1 - value] for value in values]).low == 0.0


def test_repeats_of_an_input_are_not_counted_as_inputs():
    once = estimate([[1.0], [0.0], [1.0], [0.0], [1.0], [1.0]])
    often = estimate([[value] * 50 for value in (1.0, 0.0, 1.0, 0.0, 1.0, 1.0)])
    assert often.n == 50 * once.n
    assert often.high - often.low > 0.6  # as wide as six inputs are, not as narrow as 300 cells


@pytest.mark.parametrize(
    ("blocks", "mean", "method"),
    [
        ([], None, "nothing to average"),
        ([[]], None, "nothing to average"),
        ([[0.5]], 0.5, "no interval: one input"),
        ([[0.5], [0.5], [0.5]], 0.5, "no interval: every input alike"),
        ([[3.0, 5.0]], 4.0, "no interval: one input"),
    ],
)
def test_where_there_is_no_interval_it_says_why(blocks, mean, method):
    found = estimate(blocks)
    assert (found.mean, found.low, found.high, found.method) == (mean, None, None, method)


def test_what_always_went_well_has_an_interval_all_the_same():
    found = estimate([[1.0, 1.0]] * 10)
    assert (found.mean, found.high, found.method) == (1.0, pytest.approx(1.0), "Wilson")
    assert found.low == pytest.approx(0.7225, abs=1e-4)  # of ten inputs, not of twenty cells


# --- pairs


def test_darwins_maize_is_as_the_books_have_it():
    found = paired([0.0] * 15, DARWIN)
    assert found.test == "Wilcoxon"
    assert found.p == pytest.approx(0.041259765625)
    assert found.p == pytest.approx(signed_ranks(DARWIN))
    assert found.effect == pytest.approx((96 - 24) / 120)
    assert found.mean == pytest.approx(314 / 15)
    assert (found.low, found.high) == pytest.approx((0.03120, 41.83547), abs=1e-4)


def test_two_readings_of_0_or_1_are_tested_by_mcnemar():
    before = [0] * 9 + [1] + [1] * 10
    after = [1] * 9 + [0] + [1] * 10
    found = paired(before, after)
    assert found.test == "McNemar"
    assert found.p == pytest.approx(2 * (math.comb(10, 0) + math.comb(10, 1)) / 2**10)  # 0.0215
    assert (found.mean, found.effect) == pytest.approx((0.4, 0.8))


def test_too_few_pairs_are_not_tested_and_it_says_so():
    found = paired([0.0] * 5, [0.1, 0.2, 0.3, 0.4, 0.5])
    assert found.p is None
    assert found.adjusted is None
    assert not found.clear
    assert found.test == "too few inputs to test: 5 of at least 6"
    assert found.mean == pytest.approx(0.3)
    assert signed_ranks([1, 2, 3, 4, 5]) > 0.05 > signed_ranks([1, 2, 3, 4, 5, 6])  # why six


def test_pairs_that_never_differ_are_no_difference():
    found = paired([0.5] * 8, [0.5] * 8)
    assert (found.mean, found.p, found.effect, found.test, found.low) == (
        0.0,
        1.0,
        0.0,
        "no pair differs",
        None,
    )
    assert paired([], []).test == "no input in common"


def test_a_shift_that_is_the_same_everywhere_has_a_test_but_no_interval():
    found = paired([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    assert (found.low, found.high, found.effect) == (None, None, 1.0)
    assert found.mean == pytest.approx(0.2)
    assert found.p == pytest.approx(2 / 2**7)


@given(CASES, st.sampled_from([-3.0, 0.5, 10.0]))
def test_a_constant_added_to_both_changes_no_test_and_added_to_one_moves_the_mean(values, shift):
    before, after = values, values[::-1]
    # Scores of 0 and 1 are tested in another way, which a shift would end.
    before, after = [one + 2 for one in before], [one + 2 for one in after]
    found = paired(before, after)
    both = paired([one + shift for one in before], [one + shift for one in after])
    assert (both.p, both.effect) == pytest.approx((found.p, found.effect))
    assert both.mean == pytest.approx(found.mean)
    assert paired(before, [one + shift for one in after]).mean == pytest.approx(found.mean + shift)


@pytest.mark.parametrize(("count", "seed"), [(6, 1), (8, 2), (9, 0), (25, 3), (40, 4)])
def test_ties_and_zeros_are_as_scipy_has_them(count, seed):
    from scipy.stats import wilcoxon

    random = Random(seed)
    differences = [round(random.gauss(0.3, 1) * 2) / 2 for _ in range(count)]
    assert len(set(map(abs, differences))) < count
    found = paired([5.0] * count, [5.0 + value for value in differences])
    assert found.p == pytest.approx(wilcoxon(differences, zero_method="pratt").pvalue)


def test_few_that_differ_among_many_are_tested_exactly():
    """By a normal approximation p would be below 0.05."""
    from scipy.stats import wilcoxon

    differences = [0.5] * 5 + [0.0] * 25
    assert wilcoxon(differences, zero_method="pratt").pvalue < 0.05
    assert paired([0.0] * 30, differences).p == pytest.approx(2 / 2**5)
    assert paired([0.0] * 30, [0.5] + [0.0] * 29).p == 1.0


@given(CASES)
def test_what_is_turned_round_has_the_same_p_and_the_other_sign(values):
    found, turned = paired(values, values[::-1]), paired(values[::-1], values)
    assert turned.p == pytest.approx(found.p)
    assert (turned.mean, turned.effect) == pytest.approx((-found.mean, -found.effect))


@given(st.lists(st.lists(st.floats(-5, 5), max_size=4), max_size=8))
def test_no_estimate_is_ever_not_a_number(blocks):
    found = estimate(blocks)
    assert all(one is None or math.isfinite(one) for one in (found.mean, found.low, found.high))
    if found.low is not None:
        assert found.low <= found.mean + 1e-9
        assert found.mean <= found.high + 1e-9


def test_many_tests_are_corrected_by_holm():
    from statsmodels.stats.multitest import multipletests

    assert corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert corrected([None, 0.04, None]) == [None, 0.04, None]
    assert corrected([]) == []
    drawn = Random(7)
    many = [round(drawn.random() ** 3, 2) for _ in range(40)]  # ties, and some that reach 1
    assert corrected(many) == pytest.approx(list(multipletests(many, method="holm")[1]))
    clear, beside = paired([0.0] * 15, DARWIN), paired([0.0] * 4, [1.0, 2.0, 3.0, 4.0])
    assert [one.clear for one in holm([clear, beside])] == [True, False]
    assert [one.clear for one in holm([clear, clear, beside])] == [False, False, False]  # 2 x 0.041
    assert holm([clear, beside])[1] == beside


# --- quantiles and correlation


def test_quantiles_have_intervals_from_their_ranks():
    (median,) = quantiles([float(n) for n in range(1, 101)], [0.5])
    # The interval of the median of 100 in every table of order statistics: the 40th to the 61st
    # value.
    assert (median.value, median.low, median.high) == (50.5, 40.0, 61.0)
    (last,) = quantiles([3.0, 4.0], [0.99])
    assert last.high is None  # two numbers don't say how long the slowest takes


def test_hours_of_television_and_intelligence_are_as_the_example_has_them():
    intelligence = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    television = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]
    found = correlation(intelligence, television)
    assert found.rho == pytest.approx(-29 / 165)
    assert found.p == pytest.approx(0.627188, abs=1e-6)
    assert not found.clear


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 9])
def test_a_correlation_of_nothing_or_of_what_never_changes_is_none(values):
    assert correlation(values, [float(n) for n, _ in enumerate(values)]) == Correlation(
        len(values), None, None
    )
    assert correlation([float(n) for n, _ in enumerate(values)], values) == Correlation(
        len(values), None, None
    )


def test_a_trace_that_many_numbers_make_certain_is_not_called_clear():
    assert not Correlation(9_000, 0.05, 1e-6).clear
    assert Correlation(100, 0.5, 1e-6).clear
    assert not Correlation(10, 0.5, 0.2).clear


# --- without the extra


@pytest.mark.parametrize(
    ("missing", "call"),
    [
        ("scipy.stats", lambda: estimate([[0.1], [0.4]])),
        ("statsmodels.stats.proportion", lambda: estimate([[0.0], [1.0]])),
        (
            "statsmodels.stats.contingency_tables",
            lambda: paired([0.0] * FEWEST, [1.0] * FEWEST),
        ),
        ("plotly.offline", figures.plotly_js),
    ],
)
def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch, missing, call):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(NeedsReport, match=r"pip install .*\[report\]'"):
        call()


def test_nothing_heavy_is_imported_before_it_is_used():
    code = (
        "import sys, abreast.jobs.matrix.report.report, abreast.jobs.matrix.report.changes\n"
        "heavy = ('numpy', 'scipy', 'statsmodels', 'pandas', 'plotly', 'jinja2')\n"
        "print([one for one in heavy if one in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
    assert inference.NeedsReport.__mro__[1] is ImportError
