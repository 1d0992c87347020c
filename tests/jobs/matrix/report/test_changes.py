"""Two runs of a matrix side by side."""

from dataclasses import replace
from random import Random

import pytest

from abreast.jobs.matrix.report.changes import compare
from abreast.jobs.matrix.report.markdown import changes_markdown
from tests.jobs.matrix.made_rows import row, study


def run(lift=0.0, seed=1, **more):
    random = Random(seed)
    return [
        row(
            model,
            "s",
            f"i{n}",
            repeat,
            score=round(random.random() + (lift if model == "a" else 0), 3),
            **more,
        )
        for model in "ab"
        for n in range(10)
        for repeat in range(2)
    ]


def test_the_same_run_twice_has_changed_nothing():
    rows = study(90)
    changes = compare(rows, rows)
    plain = sum(not one.control for one in rows)
    assert (changes.both, changes.only_before, changes.only_after, changes.clear) == (
        plain,
        0,
        0,
        (),
    )
    assert all(one.before == one.after and one.change.mean == 0 for one in changes.scores)
    assert all(
        (one.mended, one.broken, one.outputs, one.usd, one.service.mean) == (0, 0, 0, 0, 0)
        for one in changes.arms
    )


def test_a_score_that_rose_in_one_arm_is_found_there_and_nowhere_else():
    before, after = run(), run(lift=0.7, seed=1)
    changes = compare(before, after)
    (clear,) = changes.clear
    assert (clear.arm.model, clear.score) == ("a", "exact")
    assert clear.after - clear.before == pytest.approx(0.7)
    assert clear.change.mean == pytest.approx(0.7)
    assert clear.change.pairs == 10


def test_the_test_pairs_inputs_after_averaging_repeats():
    from scipy import stats

    before, after = run(seed=1), run(seed=2)
    one = compare(before, after).scores[0]

    def means(rows):
        held = [r for r in rows if r.model == "a"]
        return [sum(r.scores["exact"] for r in held if r.input == f"i{n}") / 2 for n in range(10)]

    reference = stats.wilcoxon(means(after), means(before), zero_method="pratt")
    assert one.change.p == pytest.approx(reference.pvalue)
    assert one.change.adjusted >= one.change.p


def test_cells_are_paired_by_model_strategy_input_and_repeat_whatever_their_order_and_names():
    before = run()
    after = [replace(one, cell=f"other {one.cell}") for one in reversed(run())]
    changes = compare(before, after[:-3])
    assert (changes.both, changes.only_before, changes.only_after) == (37, 3, 0)
    assert compare(before[3:], after).only_after == 3
    assert all(one.change.mean == 0 for one in changes.scores)


def test_what_was_mended_what_broke_and_what_else_is_said_is_counted():
    old = [
        row("m", "s", "a", state="failed", error_type="T"),
        row("m", "s", "b", output="x", usd=0.1, service_s=1.0),
        row("m", "s", "c", output="y", usd=0.1, service_s=2.0),
        row("m", "s", "d", usd=0.1),
    ]
    new = [
        row("m", "s", "a", usd=0.3),
        row("m", "s", "b", output="z", usd=0.3, service_s=2.0),
        row("m", "s", "c", output="y", usd=0.3, service_s=4.0),
        row("m", "s", "d", state="failed", error_type="T"),
        row("m", "echo", "a", control=True),
    ]
    changes = compare(old, new)
    (one,) = changes.arms
    assert (one.cells, one.mended, one.broken, one.outputs) == (4, 1, 1, 1)
    assert one.usd == pytest.approx(0.4)
    assert one.service.mean == pytest.approx(1.5)
    assert (changes.scores[0].before, changes.scores[0].after) == (0.75, 0.75)


def test_runs_with_nothing_in_common_are_compared_in_nothing():
    changes = compare([row("a", "s")], [row("b", "s", scores={"other": 1.0})])
    assert (
        changes.both,
        changes.only_before,
        changes.only_after,
        changes.scores,
        changes.arms,
    ) == (0, 1, 1, (), ())
    assert compare([], []).both == 0
    assert "0 cells are in both runs" in changes_markdown(changes)


def test_changes_are_written_as_markdown_that_nothing_in_a_name_can_break():
    before = [replace(one, model="a|<b>") if one.model == "a" else one for one in run()]
    after = [replace(one, service_s=2.0) for one in before]
    said = changes_markdown(compare(before, after), "run *1*", "run 2")
    assert said.startswith("# run \\*1\\* to run 2\n")
    assert "a\\|&lt;b&gt;" in said
    assert "+2.00 s" in said
    assert "0 of 2 scores changed clearly" in said
    assert "–" in changes_markdown(compare([row(state="failed")], [row(state="failed")]))  # noqa: RUF001 - a dash
