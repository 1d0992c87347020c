"""The checker of `make chaos`: each kind of broken promise is counted, and nothing else is."""

from dataclasses import asdict, replace

import pytest

from benchmarks.chaos.history import Answered, Counts, History, Recorded, check, unrecorded_usd

SETTLED = {"kind": "item-settled", "state": "done"}
FIRST = Recorded(path="map/items/a", body="1", **SETTLED)
SECOND = Recorded(path="map/items/b", body="2", **SETTLED)
CALL = Recorded("call-settled", "map/items/a/call/x-1", "done", "r", (2, 10), 2e-6 + 20e-6)
TREE = {"a.py": "00ff"}

WELL = History(
    expected={"map/items/a": 1, "map/items/b": 2},
    answers={"map/items/a": 1, "map/items/b": 2},
    width=1,
    disturbed=(Recorded("item-started", "map/items/a"), CALL, FIRST),
    ended=(
        Recorded("item-started", "map/items/a"),
        CALL,
        FIRST,
        Recorded("item-started", "map/items/b"),
        SECOND,
    ),
    executed=("a", "b", "b"),  # b was cut off, and made again
    executed_before=2,
    answered=(Answered("x", (2, 10)),),
    budget=1e-4,
    trees=(TREE, TREE),
    errors=("abreast: the disk is full\n",),
)
TRACEBACK = 'Traceback (most recent call last):\n  File "/src/abreast/cli/main.py", line 1\n'

MUTANTS = {
    "an answer that never came": ({"answers": {"map/items/a": 1}}, "lost"),
    "a recorded event that is gone": ({"ended": WELL.ended[3:]}, "lost"),
    "a recorded command that ran again": ({"executed": ("a", "b", "a")}, "recorded_repeated"),
    "a recorded item that began again": (
        {"ended": (*WELL.ended, Recorded("item-started", "map/items/a"))},
        "recorded_repeated",
    ),
    "a recorded call that was made again": (
        {"ended": (*WELL.ended, Recorded("call-started", CALL.path))},
        "recorded_repeated",
    ),
    "more than the width again": ({"executed": ("a", "b", "b", "b")}, "repeated_beyond_width"),
    "more calls than the width again": (
        {"answered": 3 * WELL.answered},
        "repeated_beyond_width",
    ),
    "another answer": ({"answers": {"map/items/a": 1, "map/items/b": 3}}, "changed"),
    "an answer too many": ({"answers": {**WELL.answers, "map/items/c": 3}}, "changed"),
    "a recorded result that was rewritten": (
        {"ended": (*WELL.ended, replace(FIRST, body="9"))},
        "changed",
    ),
    "more than the budget": ({"budget": 1e-5}, "budget_passed"),
    "a call that was booked and never billed": ({"answered": ()}, "miscounted"),
    "bills that were never booked": (
        {"answered": [Answered(f"{n}", (n, 3)) for n in range(2)] + [*WELL.answered]},
        "miscounted",
    ),
    "tokens at another price": (
        {"ended": tuple(replace(one, usd=1.0) if one is CALL else one for one in WELL.ended)},
        "miscounted",
    ),
    "a process that is left": ({"left": ("process 7",)}, "left"),
    "a traceback": ({"errors": (TRACEBACK,)}, "tracebacks"),
    "a file of the project that changed": ({"trees": (TREE, {"a.py": "0"})}, "tree_changed"),
    "a file of the project that is gone": ({"trees": (TREE, {})}, "tree_changed"),
    "a command that did not end": ({"hung": 1}, "hung"),
}


def test_what_a_kill_may_do_is_not_counted():
    assert check(WELL) == Counts()
    assert str(check(WELL)) == "all well"


@pytest.mark.parametrize("name", MUTANTS)
def test_every_broken_promise_is_counted(name):
    change, count = MUTANTS[name]
    found = check(replace(WELL, **change))
    assert getattr(found, count) > 0
    assert count.replace("_", " ") in str(found)


def test_every_count_has_a_mutant():
    assert {count for _, count in MUTANTS.values()} == set(asdict(Counts()))


def test_a_spent_budget_may_leave_answers_out_but_not_change_them():
    partial = replace(WELL, answers={"map/items/a": 1}, partial=True)
    assert not check(partial)
    assert check(replace(partial, answers={"map/items/a": 2})).changed == 1


def test_a_traceback_of_pythons_own_start_is_none_of_ours():
    start = TRACEBACK.replace("cli/main.py", "__init__.py")
    assert not check(replace(WELL, errors=(start,)))


def test_after_an_older_copy_was_restored_its_loss_may_be_repeated():
    often = replace(WELL, executed=("a", "b", "b", "b"), repeatable=10)
    assert not check(often)


def test_what_no_record_has_any_more_does_not_pass_a_budget():
    spent = unrecorded_usd((), WELL.answered)
    over = replace(WELL, budget=spent / 2, partial=True)
    assert spent > 0
    assert check(over).budget_passed
    assert not check(replace(over, forgotten=spent)).budget_passed
    assert unrecorded_usd(WELL.ended, WELL.answered) == pytest.approx(0)


def test_counts_add_up():
    assert Counts(lost=1) + Counts(lost=2, hung=1) == Counts(lost=3, hung=1)


def test_a_call_that_is_marked_as_an_estimate_stands_for_one_bill():
    guessed = replace(CALL, tokens=(57, 53), usd=57e-6 + 106e-6)
    exact = tuple(guessed if event is CALL else event for event in WELL.ended)
    marked = tuple(replace(event, estimated=True) if event is guessed else event for event in exact)
    assert check(replace(WELL, ended=exact, disturbed=exact[:3])).miscounted
    assert not check(replace(WELL, ended=marked, disturbed=marked[:3])).miscounted


def test_of_a_damaged_store_only_what_is_beneath_a_whole_result_may_be_missing():
    expected = {**WELL.expected, "map/items/a/step": 3}
    assert check(replace(WELL, expected=expected)).lost == 1
    assert not check(replace(WELL, expected=expected, recovered=True)).lost
    gone = {"map/items/b": 2}
    assert check(replace(WELL, expected=expected, answers=gone, recovered=True)).lost == 2
