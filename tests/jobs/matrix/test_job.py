"""Cells: each gets a row however it ends, no lane delays another, and no call is made twice."""

import asyncio
from collections import Counter

import pytest

import abreast
from abreast.core.errors import BudgetSpent, ServerFault, Throttled
from abreast.core.outcome import Usage
from abreast.jobs.matrix.call_notes import CallAttempt, CellNotes
from abreast.jobs.matrix.job import Matrix
from abreast.jobs.matrix.recorded_rows import changes, rows_of
from abreast.jobs.matrix.spec import CellChoice
from abreast.models.port import Reply
from abreast.models.price import FlatPrice
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.jobs.matrix.benches import FakeBench, simple, study
from tests.turns import until


def answer(prompt):
    """The right answer to the plain prompts, a wrong one to the loud."""
    number = prompt[-1]
    return f"T{number}" if prompt.startswith("say") else f"it is t{number}!"


BOTH = {"a/one": answer, "b/two": answer}


async def go(made, bench, store, *, width=2, choice=None, **opening):
    matrix = Matrix(made, bench, choice or CellChoice(), width=width)
    async with abreast.open_run(made.name, store=store, **opening) as run:
        await matrix.run(run)
    return matrix


def rows(store):
    return {row.cell: row for row in rows_of(store, store.newest("s"))}


def telling(store):
    """Rows without what timing decides."""
    timed = {"service_s", "queue_s", "hold_s", "backoff_s", "wall_s", "in_flight"}
    found = [
        {name: value for name, value in row.plain().items() if name not in timed}
        for row in rows(store).values()
    ]
    for row in found:
        row["steps"] = [{**step, "service_s": 0} for step in row["steps"]]
    return found


async def test_every_cell_is_a_row_with_its_scores():
    store, bench = MemoryStore(), FakeBench(BOTH)
    made = simple(more="controls: [empty, echo, truth]")
    matrix = await go(made, bench, store)
    found = rows(store)
    assert len(found) == 2 * 2 * 3 * 2 + 3 * 3 * 2
    assert matrix.tally.done == len(found)
    assert found["a/one~plain~i1~0"].scores == {"exact": 1.0, "contains": 1.0}
    assert found["a/one~loud~i1~0"].scores == {"exact": 0.0, "contains": 1.0}
    assert {row.scores["exact"] for row in found.values() if row.strategy == "truth"} == {1.0}
    assert {row.scores["exact"] for row in found.values() if row.strategy in ("empty", "echo")} == {
        0.0
    }
    assert bench.asked == 24  # and the controls called no model


@pytest.mark.parametrize("width", [1, 4, 64])
async def test_rows_are_the_same_at_any_width(width):
    store, one = MemoryStore(), MemoryStore()
    await go(simple(), FakeBench(BOTH), one, width=1, seed=3)
    await go(simple(), FakeBench(BOTH), store, width=width, seed=3)
    assert telling(store) == telling(one)


async def test_an_error_of_a_provider_or_strategy_is_a_failed_row():
    def breaks(prompt):
        return ValueError("out of order") if prompt.endswith("1") else answer(prompt)

    store = MemoryStore()
    made = study(
        """
matrix:
  name: s
  models: [a/one]
  strategies: {plain: {prompt: "say {{ input.text }}"}, own: {python: "m:f"},
    flow: {workflow: bad.yaml}}
  inputs: [{id: i0, text: text 0, truth: T0}, {id: i1, text: text 1, truth: T1}]
  scores: [exact]
""".replace("workflow: bad.yaml", 'python: "m:g"'),
        codes={"m:f": "f", "m:g": "g"},
    )

    async def own(value, model):
        await model.ask(f"first {value['text']}", step="first")
        raise RuntimeError("my own fault")

    async def fine(value, model):
        return (await model.ask(f"say {value['text']}", step="only")).upper()

    bench = FakeBench(
        {"a/one": breaks}, functions={"m:f": own, "m:g": fine}, retry=abreast.Retry(0)
    )
    matrix = await go(made, bench, store)
    found = rows(store)
    assert len(found) == 6
    assert (matrix.tally.done, matrix.tally.failed) == (2, 4)
    failed = found["a/one~plain~i1~0"]
    assert (failed.state, failed.error, failed.error_type, failed.prompt) == (
        "failed",
        "out of order",
        "ValueError",
        "say text 1",
    )
    mine = found["a/one~own~i0~0"]
    assert (mine.error_type, [step.name for step in mine.steps]) == ("RuntimeError", ["first"])
    assert found["a/one~flow~i0~0"].steps[0].output == "T0"


async def test_an_error_of_a_scorer_is_its_own():
    made = study(
        """
matrix:
  name: s
  models: [a/one]
  strategies: {plain: {prompt: "say {{ input.text }}"}}
  inputs: [{id: i0, text: text 0}]
  scores: [exact, {python: "m:score"}, {judge: "right?"}]
""",
        codes={"m:score": ""},
    )

    def score(row):
        raise ZeroDivisionError("oh")

    store = MemoryStore()
    matrix = await go(
        made, FakeBench({"a/one": lambda _: "perhaps"}, functions={"m:score": score}), store
    )
    [row] = rows(store).values()
    assert (row.state, matrix.tally.failed) == ("done", 0)
    assert (row.output, row.error, [step.output for step in row.steps]) == (
        "perhaps",
        None,
        ["perhaps"],
    )
    assert row.scores == {"exact": None, "python": None, "judge": None}
    assert row.score_errors == {
        "exact": "CannotScore: the input i0 has no truth",
        "python": "ZeroDivisionError: oh",
        "judge": "CannotScore: the judge said neither yes nor no: 'perhaps'",
    }


async def test_scores_that_could_not_be_given_are_counted_with_an_example_also_when_recorded():
    store, made = MemoryStore(), simple(models=["a/one"], inputs=2, repeats=1, more="")
    made = study(made.text.replace(', "truth": "T1"', ""))
    for opening in ({}, {"resume": "must", "run_id": "s-1"}):
        matrix = await go(made, FakeBench({"a/one": answer}), store, **opening)
        found = {name: (one.cells, one.why) for name, one in matrix.tally.unscored.items()}
        assert found == dict.fromkeys(
            ("exact", "contains"), (2, "CannotScore: the input i1 has no truth")
        )
        assert (matrix.tally.done, matrix.tally.failed) == (4, 0)


async def test_what_a_judge_costs_is_apart_from_what_its_cell_costs():
    made = study("""
matrix:
  name: s
  models: [a/one]
  strategies: {plain: {prompt: "say {{ input.text }}"}}
  inputs: [{id: i0, text: text 0, truth: T0}]
  scores: [{judge: "is it right?"}, {name: sure, judge: "are you sure to judge?"}]
""")
    store = MemoryStore()

    def said(prompt):
        judging = "judge" in prompt
        return Reply(
            "yes" if judging else "T0",
            usage=Usage(1, 1000 if judging else 10, 100 if judging else 1),
        )

    await go(made, FakeBench({"a/one": said}, price=FlatPrice(1.0, 10.0)), store)
    [row] = rows(store).values()
    assert (row.input_tokens, row.output_tokens, row.usd) == (10, 1, pytest.approx(20e-6))
    assert (row.judge_input_tokens, row.judge_output_tokens) == (2000, 200)
    assert row.judge_usd == pytest.approx(4000e-6)


async def test_a_judge_judges_and_its_calls_are_not_the_cells():
    made = study("""
matrix:
  name: s
  models: [a/one]
  strategies: {plain: {prompt: "say {{ input.text }}"}}
  inputs: [{id: i0, text: text 0, truth: T0}]
  scores: [{judge: "is it right?"}]
""")
    store = MemoryStore()
    await go(
        made, FakeBench({"a/one": lambda prompt: "Yes." if "judge" in prompt else "T0"}), store
    )
    [row] = rows(store).values()
    assert (row.scores, len(row.steps), row.attempts) == ({"judge": 1.0}, 1, 1)


async def test_a_lane_is_exactly_as_wide_as_it_says_and_lanes_add_up():
    gate = Gate()
    bench = FakeBench(BOTH, limits=[lambda: abreast.Slots(3)], gate=gate.pass_)
    done = asyncio.ensure_future(go(simple(), bench, MemoryStore(), width=3))
    await until(lambda: len(gate.held) == 6)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert len(gate.held) == 6  # and no more come
    gate.open_all()
    await done
    assert [bench.counts[lane].peak for lane in "ab"] == [3, 3]


async def test_a_hung_lane_holds_up_nobody_else():
    gate = Gate()

    async def only_a(who):
        if who.startswith("a/"):
            await gate.pass_(who)

    bench = FakeBench(BOTH, limits=[lambda: abreast.Slots(2)], gate=only_a)
    made = simple()
    matrix = Matrix(made, bench, CellChoice(), width=2)
    async with abreast.open_run("s", store=MemoryStore()) as run:
        done = asyncio.ensure_future(matrix.run(run))
        for _ in range(50_000):
            await asyncio.sleep(0)
            if matrix.tally.lanes and matrix.tally.lanes["b"].done == 12:
                break
        assert (matrix.tally.lanes["a"].done, matrix.tally.lanes["b"].done) == (0, 12)
        gate.open_all()
        await done


async def test_what_is_recorded_is_not_asked_again():
    store, first, again = MemoryStore(), FakeBench(BOTH), FakeBench(BOTH)
    await go(simple(), first, store)
    before = telling(store)
    await go(simple(), again, store, resume="must", run_id="s-1")
    assert (again.asked, telling(store)) == (0, before)


async def test_an_edited_prompt_runs_its_cells_again_and_says_so():
    store, again = MemoryStore(), FakeBench(BOTH)
    await go(simple(), FakeBench(BOTH), store)
    made = study(simple().text.replace("shout", "cry out"))
    row = store.newest("s")
    found = changes(store, row, made, CellChoice())
    assert (found.recorded, found.missing) == (12, 0)
    assert {why: len(keys) for why, keys in found.again.items()} == {
        "the strategy loud changed": 12
    }
    await go(made, again, store, resume="must", run_id="s-1")
    prompts = Counter(
        prompt.split()[0] for model in again.models.values() for prompt in model.prompts
    )
    assert prompts == {"cry": 12}
    assert changes(store, store.newest("s"), made, CellChoice()).recorded == 24


@pytest.mark.parametrize(
    ("old", "new", "why", "cells"),
    [
        (
            '["a/one", "b/two"]',
            '[{name: a/one, max_tokens: 9}, "b/two"]',
            "the parameters of a/one changed",
            12,
        ),
        ('"text": "text 1"', '"text": "text 9"', "the input i1 changed", 8),
    ],
)
async def test_other_parameters_or_another_input_run_their_cells_again(old, new, why, cells):
    store, again = MemoryStore(), FakeBench(BOTH)
    await go(simple(), FakeBench(BOTH), store)
    assert old in simple().text
    made = study(simple().text.replace(old, new))
    found = changes(store, store.newest("s"), made, CellChoice())
    assert ({reason: len(keys) for reason, keys in found.again.items()}, found.recorded) == (
        {why: cells},
        24 - cells,
    )
    await go(made, again, store, resume="must", run_id="s-1")
    assert again.asked == cells


async def test_other_scores_need_no_call():
    store, again = MemoryStore(), FakeBench(BOTH)
    await go(simple(), FakeBench(BOTH), store)
    made = study(simple().text.replace("[exact, contains]", "[{regex: '^it'}]"))
    found = changes(store, store.newest("s"), made, CellChoice())
    assert {why: len(keys) for why, keys in found.again.items()} == {
        "the scores changed (no call is made again)": 24
    }
    await go(made, again, store, resume="must", run_id="s-1")
    assert again.asked == 0
    # The attempts that were recorded with the reply stay.
    assert {row.attempts for row in rows(store).values()} == {1}
    assert {row.strategy: row.scores for row in rows(store).values()} == {
        "plain": {"regex": 0.0},
        "loud": {"regex": 1.0},
    }


async def test_failed_cells_are_kept_until_they_are_to_be_run_again():
    store = MemoryStore()
    await go(simple(), FakeBench({**BOTH, "b/two": lambda _: ValueError("no")}), store)
    again = FakeBench(BOTH)
    await go(simple(), again, store, resume="must", run_id="s-1")
    assert again.asked == 0
    await go(simple(), again, store, resume="retry", run_id="s-1")
    assert again.asked == 12
    assert all(row.state == "done" for row in rows(store).values())


async def test_a_budget_is_not_passed_and_the_rest_comes_later():
    store, bench = MemoryStore(), FakeBench(BOTH)
    with pytest.raises(BudgetSpent):
        await go(simple(), bench, store, budget="10req")
    assert bench.asked == 10
    assert len(rows(store)) == 10
    again = FakeBench(BOTH)
    await go(simple(), again, store, resume="must", run_id="s-1", budget="100req")
    assert (again.asked, len(rows(store))) == (14, 24)


@pytest.mark.parametrize("stop", range(1, 24, 3))
async def test_wherever_it_stops_the_design_is_balanced(stop):
    made = simple(models=["a/one", "a/two"])
    cells = [cell for cell, _ in zip(made.cells("a"), range(stop), strict=False)]
    per_arm = Counter((cell.model.label, cell.strategy.name) for cell in cells)
    counts = [
        per_arm.get((model.label, strategy.name), 0)
        for model in made.models
        for strategy in made.strategies
    ]
    assert max(counts) - min(counts) <= 1
    repeats = Counter(cell.repeat for cell in cells)
    assert repeats[0] == min(stop, 12)  # a repeat is over before the next begins


def test_the_seconds_of_a_cell_are_told_apart():
    notes = CellNotes(10.0)
    notes.attempts = [
        CallAttempt(12.0, 12.5, "throttled", 3, 0.0),
        CallAttempt(15.0, 16.0, "fault", 3, 0.0),
        CallAttempt(18.0, 20.0, "done", 2, 1.75),
        CallAttempt(20.5, 21.5, "done", 1, 1.0),
    ]
    times = notes.times()
    assert times == {
        "queue_s": 2.75,
        "hold_s": 3.0,
        "backoff_s": 3.0,
        "service_s": 2.75,
        "wall_s": 11.5,
    }
    assert (
        sum(times[part] for part in ("queue_s", "hold_s", "backoff_s", "service_s"))
        == times["wall_s"]
    )


async def test_429s_and_faults_are_apart_from_service():
    clock = ManualClock()
    said = [Throttled("slow down", retry_after=4.0), ServerFault("oh"), "T0"]

    class Slow:
        name = "a/one"

        async def complete(self, request, hear=None):
            clock.advance_nowait(1.0)
            found = said.pop(0)
            if isinstance(found, BaseException):
                raise found
            return Reply(found, seconds=1.0, usage=Usage(1, 3, 2))

        async def close(self):
            pass

    bench = FakeBench({"a/one": answer}, retry=abreast.Retry(2, base=2.0, cap=2.0), clock=clock)
    bench.models["a/one"] = Slow()
    made = study("""
matrix:
  name: s
  models: [a/one]
  strategies: {plain: {prompt: "say {{ input.text }}"}}
  inputs: [{id: i0, text: text 0, truth: T0}]
""")
    store = MemoryStore()
    done = asyncio.ensure_future(go(made, bench, store, clock=clock))
    while not done.done():  # its store has a thread of its own, so it may wait while nothing is due
        due = clock.next_due
        await (asyncio.sleep(0) if due is None else clock.advance(max(0.0, due - clock.now())))
    [row] = rows(store).values()
    assert (row.service_s, row.hold_s, row.attempts) == (pytest.approx(1.0), pytest.approx(5.0), 2)
    assert 1.0 <= row.backoff_s <= 3.0
    assert row.queue_s + row.hold_s + row.backoff_s + row.service_s == pytest.approx(row.wall_s)
