"""Samples: which draws are made, which one wins, what is counted, what is raised."""

import asyncio
import dataclasses
import json
import logging
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import abreast
from abreast.core.errors import (
    BranchesFailed,
    BudgetSpent,
    CheckBroken,
    ConnectionLost,
    KeyRefused,
    NoSuchModel,
    ServerFault,
    Throttled,
)
from abreast.jobs.sample.checks import check, is_json, regex, words
from abreast.jobs.sample.draw_context import DrawFilter, current_draw
from abreast.jobs.sample.job import SameAnswers
from abreast.jobs.sample.strategies import BestOf, Escalate, MultiTurn, Rejection, Repair, Vote
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.jobs.sample.drawing import PASS, Table, at, passes

NO_RETRY = abreast.Retry(0)


def model_of(table, *limits):
    return Caller(table, ModelLane("test", limits), retry=NO_RETRY, paid=False)


async def drawn(table, *, checks=(passes,), **options):
    model = table if isinstance(table, Caller) else model_of(table)
    return await abreast.sample("Say something good.", model=model, checks=checks, **options)


# --- which draws, which winner


async def test_without_checks_the_first_draw_wins():
    table = Table(at())
    result = await drawn(table, checks=(), breadth=1, depth=3)
    assert (result.ok, result.text, result.counts.started) == (True, "bad 0.0", 1)


async def test_breadth_one_is_sequential_and_stops_at_the_first_pass():
    table = Table(at((0, 2)))
    result = await drawn(table, depth=5)
    assert table.asked == [(0, 0), (0, 1), (0, 2)]
    assert (result.ok, result.text, result.winner.number) == (True, "good 0.2", 3)
    assert table.peak == 1


async def test_three_by_three_with_the_fifth_check_passing_draws_five_to_eight():
    calls = []

    def fifth(text):
        calls.append(text)
        return len(calls) == 5

    table = Table(lambda branch, number: f"text {branch}.{number}")
    result = await drawn(table, checks=[fifth], breadth=3, depth=3)
    assert result.ok
    assert 5 <= result.counts.started < 9


async def test_five_by_five_all_failing_draws_exactly_twenty_five_and_repairs_after_round_one():
    async def later(branch, number):
        await asyncio.sleep(0)
        return f"bad {branch}.{number}"

    table = Table(later)
    result = await drawn(table, breadth=5, depth=5, strategy=Repair())
    assert not result.ok
    assert result.counts.started == result.counts.completed == 25
    repaired = [
        request for request in table.requests if "does not meet" in request.messages[-1].content
    ]
    assert len(repaired) == 20
    assert table.peak == 5
    for (branch, number), request in zip(table.asked, table.requests, strict=True):
        text = request.messages[-1].content
        if number:
            assert f"bad {branch}.{number - 1}" in text  # its own history
            assert "is good: it is" in text  # the failed check, and why
            assert not any(f"bad {other}." in text for other in range(5) if other != branch)


async def test_numbers_are_unique_and_attempts_are_sorted_by_branch_and_round():
    result = await drawn(Table(at()), breadth=3, depth=2)
    assert {attempt.number for attempt in result.attempts} == {1, 2, 3, 4, 5, 6}
    assert [(a.branch, a.round) for a in result.attempts] == [
        (b, r) for b in range(3) for r in range(2)
    ]


@given(
    breadth=st.integers(1, 4),
    depth=st.integers(1, 4),
    good=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6),
    delays=st.lists(st.integers(0, 5), min_size=16, max_size=16),
    lane=st.integers(1, 4),
)
def test_the_ordered_winner_is_the_sequential_winner_whatever_the_delays(
    breadth, depth, good, delays, lane
):
    wanted = min(((r, b) for b, r in good if b < breadth and r < depth), default=None)

    def says(branch, number):
        async def later():
            for _ in range(delays[branch * 4 + number]):
                await asyncio.sleep(0)
            return at(*good)(branch, number)

        return later()

    table = Table(says)
    result = asyncio.run(drawn(model_of(table, abreast.Slots(lane)), breadth=breadth, depth=depth))
    assert result.ok == (wanted is not None)
    if wanted is not None:
        assert (result.winner.round, result.winner.branch) == wanted
        # Every draw before the winner was made; draws past it ended only if they were early.
        before = {(b, r) for b in range(breadth) for r in range(depth) if (r, b) < wanted}
        first = {b: min((r for gb, r in good if gb == b), default=depth) for b in range(breadth)}
        assert {place for place in before if place[1] <= first[place[0]]} <= set(table.asked)
    assert table.peak <= breadth
    counts = result.counts
    assert counts.completed + counts.cancelled + counts.failed == counts.started
    assert (
        len(table.asked) <= counts.started <= breadth * depth
    )  # a draw that waits for its lane is started, but not sent


async def test_a_later_pass_waits_for_draws_before_it_and_those_behind_it_are_cancelled():
    gate = Gate()

    def says(branch, number):
        async def later():
            await gate.pass_((branch, number))
            return at((0, 0), (1, 0))(branch, number)

        return later()

    table = Table(says)
    done = asyncio.ensure_future(drawn(table, breadth=3, depth=2))
    await gate.wait_for((0, 0), (1, 0), (2, 0))
    gate.open((1, 0))
    await gate.wait_for((0, 0))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not done.done()  # (0, 0) could still be before it
    gate.open((0, 0))
    result = await done
    assert (result.winner.branch, result.winner.round) == (0, 0)
    assert {(a.branch, a.round): a.state for a in result.attempts} == {
        (0, 0): "passed",
        (1, 0): "passed",
        (2, 0): "cancelled",
    }
    assert result.timing_dependent == frozenset()


async def test_pick_first_takes_whoever_passes_first_and_says_that_timing_decided():
    gate = Gate()

    def says(branch, number):
        async def later():
            await gate.pass_(branch)
            return f"{PASS} {branch}"

        return later()

    table = Table(says)
    done = asyncio.ensure_future(drawn(table, breadth=3, depth=2, pick="first"))
    await gate.wait_for(0, 1, 2)
    gate.open(2)
    result = await done
    assert result.winner.branch == 2
    assert result.counts.cancelled == 2
    assert result.timing_dependent == {"pick=first"}
    assert table.now == 0


# --- strategies


async def test_multi_turn_that_runs_out_picks_the_last_turn_of_the_best_branch():
    def says(branch, number):
        return f"{'x' * (3 - branch)} {branch}.{number}"

    def short(text):
        return len(text.split()[0]) < 2, "too long"

    table = Table(says)
    result = await drawn(
        table,
        breadth=3,
        depth=3,
        strategy=MultiTurn(),
        checks=[check(short, "short"), check(lambda _: False, "never")],
    )
    assert not result.ok
    assert (result.winner.branch, result.winner.round) == (
        2,
        2,
    )  # the deepest draw, not the last to end
    deepest = [r for (b, n), r in zip(table.asked, table.requests, strict=True) if n == 2]
    assert [len(request.messages) for request in deepest] == [5, 5, 5]  # with its answer, 2 x depth
    assert [m.role for m in deepest[0].messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]


async def test_vote_lets_all_branches_end_and_takes_the_majority():
    table = Table(
        lambda branch, number: [f"{PASS} a", f"{PASS} B", f"{PASS}  b", f"{PASS} c"][branch]
    )
    result = await drawn(table, breadth=4, depth=2, strategy=Vote())
    assert result.counts.started == 4
    assert result.winner.branch == 1
    far = Vote(risk=lambda one, other: abs(len(one) - len(other)))
    lengths = Table(lambda branch, number: PASS + "x" * [0, 5, 6, 30][branch])
    assert (await drawn(lengths, breadth=4, strategy=far)).winner.branch in (1, 2)


async def test_best_of_takes_the_highest_score():
    table = Table(lambda branch, number: f"{PASS} {branch}")
    result = await drawn(
        table, breadth=4, strategy=BestOf(score=lambda attempt: -abs(attempt.branch - 2))
    )
    assert result.winner.branch == 2
    assert (await drawn(Table(at()), breadth=2, strategy=BestOf())).ok is False


async def test_escalate_asks_the_slow_model_once_there_is_no_progress():
    slow = Table(lambda branch, number: f"{PASS} slow", name="test/slow")
    fast = Table(at())
    result = await drawn(fast, depth=5, strategy=Escalate(model_of(slow)))
    assert result.text == f"{PASS} slow"
    assert [a.model for a in result.attempts] == ["test/table", "test/table", "test/slow"]
    assert "earlier answer" not in slow.requests[0].messages[0].content  # fresh
    slow = Table(at(), name="test/slow")
    await drawn(Table(at()), depth=4, strategy=Escalate(model_of(slow), start="best"))
    assert "bad 0.0" in slow.requests[0].messages[0].content
    assert "bad 0.2" in slow.requests[1].messages[0].content  # its own
    slow = Table(at(), name="test/slow")
    await drawn(Table(at()), depth=3, strategy=Escalate(model_of(slow), start="continue"))
    assert "bad 0.1" in slow.requests[0].messages[0].content


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """Models by name, each a file of replies in the current directory."""
    monkeypatch.chdir(tmp_path)
    for name, reply in (("slow", f"{PASS} slow"), ("yes", {"reason": "", "meets": True})):
        said = reply if isinstance(reply, str) else json.dumps(reply)
        judging = (
            f"Task:\nSay something good.\n\nAnswer:\n{PASS} slow\n\n"
            "Does the answer meet this: is slow?"
        )
        lines = [
            json.dumps({"prompt": prompt, "reply": said})
            for prompt in ("Say something good.", judging)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))


async def test_models_may_be_named_wherever_models_are_taken(scripts):
    judge = abreast.checks.check_only(abreast.checks.judged("is slow", "scripted/yes.jsonl"))
    checks = [passes, judge]
    result = await drawn(
        Table(at()), depth=3, strategy=Escalate("scripted/slow.jsonl"), checks=checks
    )
    assert (result.ok, result.text) == (True, f"{PASS} slow")
    assert [attempt.model for attempt in result.attempts] == [
        "test/table",
        "test/table",
        "scripted/slow.jsonl",
    ]
    assert [verdict.check for verdict in result.winner.verdicts] == ["is good", "judged: is slow"]

    class Mine(Rejection):
        def next(self, question, history):
            return dataclasses.replace(super().next(question, history), model="scripted/slow.jsonl")

    result = await drawn(Table(at()), strategy=Mine())
    assert (result.text, result.winner.model) == (f"{PASS} slow", "scripted/slow.jsonl")
    assert (
        abreast.dry_run_sample(
            "Say.",
            model="scripted/slow.jsonl",
            judge="scripted/yes.jsonl",
            strategy=Mine(),
            checks=checks,
        ).judges
        == 1
    )


@pytest.mark.parametrize(
    "named",
    [
        {"strategy": Escalate("nowhere/x")},
        {"judge": "nowhere/x"},
        {"checks": [abreast.checks.judged("is so", "nowhere/x")]},
    ],
)
async def test_a_model_that_is_not_there_is_told_before_any_draw(named):
    table = Table(at())
    with pytest.raises(abreast.core.errors.ModelUnknown, match="nowhere"):
        await drawn(table, **named)
    assert table.asked == []


async def test_a_slow_model_of_ones_own_is_limited_and_counted_as_the_first_one_is():
    slow = Table(at((0, 2)), name="test/slow")
    result = await drawn(Table(at()), depth=3, strategy=Escalate(slow))
    assert (result.ok, result.usage.requests) == (True, 3)


@pytest.mark.parametrize(("chosen", "wanted"), [(-1, (2, 1)), (0, (0, 0)), (3, (1, 1))])
async def test_a_selector_of_ones_own_gets_attempts_in_order_and_may_answer_with_an_index(
    chosen, wanted
):
    class Mine(Rejection):
        def select(self, attempts):
            assert [(a.branch, a.round) for a in attempts] == [
                (b, r) for b in range(3) for r in range(2)
            ]
            return chosen

    result = await drawn(Table(at()), breadth=3, depth=2, strategy=Mine())
    assert (result.winner.branch, result.winner.round) == wanted


@pytest.mark.parametrize(
    ("chosen", "error"), [(6, ValueError), (-7, ValueError), ("x", TypeError), (True, TypeError)]
)
async def test_a_selector_that_chooses_nonsense_is_named(chosen, error):
    class Mine(Rejection):
        def select(self, attempts):
            return chosen

    with pytest.raises(error, match=r"Rejection\(\)|Mine"):
        await drawn(Table(at()), breadth=3, depth=2, strategy=Mine())


async def test_when_all_fail_most_checks_passed_then_score_then_the_earliest_is_chosen():
    def score(text):
        """scores"""
        return {"bad 0.0": 0.1, "bad 1.0": 0.4, "bad 2.0": 0.4}[text]

    result = await drawn(Table(at()), breadth=3, checks=[score])
    assert result.winner.branch == 1


# --- seeds and identical draws


async def test_every_branch_and_round_has_a_seed_of_its_own_and_the_same_in_every_run():
    async def seeds(**options):
        table = Table(at())
        await drawn(table, breadth=3, depth=2, **options)
        return dict(zip(table.asked, [request.seed for request in table.requests], strict=True))

    first = await seeds(seed=7)
    assert len(set(first.values())) == 6
    assert first == await seeds(seed=7)
    assert first != await seeds(seed=8)


async def test_equal_texts_are_checked_once_and_a_model_that_ignores_seeds_is_told_of():
    seen = []

    def counts(text):
        """counts"""
        seen.append(text)
        return False

    table = Table(lambda branch, number: f"same {number}")
    with pytest.warns(SameAnswers, match="ignore seeds") as told:
        await drawn(table, breadth=3, depth=2, checks=[counts])
    assert seen == ["same 0", "same 1"]
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await drawn(Table(at()), breadth=3, depth=2)


# --- checks


async def test_an_async_check_is_awaited_and_a_plain_one_does_not_hold_up_the_loop():
    async def later(text):
        """later"""
        await asyncio.sleep(0)
        return False, "the async one says no"

    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    def blocks(text):
        """blocks"""
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60)
        return True

    done = asyncio.ensure_future(drawn(Table(at()), checks=[blocks, later], explain=True))
    await asyncio.sleep(0)
    gate.set()
    result = await done
    assert [(v.check, v.ok) for v in result.attempts[0].verdicts] == [
        ("blocks", True),
        ("later", False),
    ]
    assert result.attempts[0].verdicts[1].reason == "the async one says no"


async def test_judges_are_asked_only_about_what_passed_the_free_checks():
    class JudgeModel(Table):
        async def complete(self, request, hear=None):
            self.requests.append(request)
            meets = "3.1" in request.messages[0].content or "0.1" in request.messages[0].content
            from abreast.core.outcome import Usage
            from abreast.models.port import Reply

            return Reply("{}", {"meets": meets, "reason": "too dull"}, usage=Usage(1, 5, 5, 0.0))

    judge = JudgeModel(None, name="test/judge")
    table = Table(at((0, 0), (0, 1)))
    result = await drawn(
        table,
        depth=3,
        strategy=Repair(),
        judge=model_of(judge),
        checks=[passes, abreast.checks.judged("is lively")],
    )
    assert result.ok
    assert result.text == "good 0.1"
    assert len(judge.requests) == 2
    assert "judged: is lively: too dull" in table.requests[1].messages[0].content
    assert (
        "is good" not in table.requests[1].messages[0].content.split("does not meet")[1]
    )  # passed ones are not named
    assert "The answer is lively." in table.requests[0].messages[0].content
    assert result.usage.requests == 4


async def test_what_is_shown_in_the_prompt_and_what_is_kept_from_it():
    table = Table(at((0, 0)))
    await drawn(table, checks=[words(most=5), abreast.checks.check_only(regex("good"))])
    text = table.requests[0].messages[0].content
    assert text == "Say something good. Use at most 5 words."
    assert "regular expression" not in text


@pytest.mark.parametrize(
    ("one", "good", "bad"),
    [
        (regex("^(red|blue)$"), " red \n", "redder"),
        (words(2, 3), "two words", "one"),
        (words(most=1), "one", "two words"),
        (is_json(), '{"a": 1}', "{"),
        (abreast.checks.lines(2), "a\n\nb", "a"),
        (abreast.checks.contains("x"), "axb", "ab"),
        (abreast.checks.obeys({"type": "object", "required": ["a"]}), '{"a": 1}', "{}"),
    ],
)
async def test_checks_by_name(one, good, bad):
    assert (await drawn(Table(lambda *_: good), checks=[one])).ok
    result = await drawn(Table(lambda *_: bad), checks=[one])
    assert not result.ok
    assert result.attempts[0].verdicts[0].reason


# --- errors


async def test_an_error_at_breadth_one_is_the_original_with_the_attempts_attached():
    with pytest.raises(ServerFault, match="down") as told:
        await drawn(Table(lambda *_: ServerFault("down")))
    assert [a.state for a in told.value.attempts] == ["error"]


async def test_a_failed_check_and_then_an_error_is_not_swallowed():
    table = Table(lambda branch, number: "bad" if number == 0 else ConnectionLost("gone"))
    with pytest.raises(ConnectionLost) as told:
        await drawn(table, depth=3)
    assert [a.state for a in told.value.attempts] == ["failed", "error"]


async def test_one_branch_errs_and_another_passes_the_success_wins_with_the_error_beside_it():
    table = Table(
        lambda branch, number: ServerFault("down") if branch == 0 else at((1, 1))(branch, number)
    )
    result = await drawn(table, breadth=2, depth=2)
    assert (result.ok, result.text) == (True, "good 1.1")
    assert [str(error) for error in result.errors] == ["down"]
    assert result.counts.failed == 1


async def test_all_branches_err_and_the_first_in_order_is_the_cause():
    table = Table(
        lambda branch, number: ServerFault(f"down {branch}") if number == (branch == 0) else "bad"
    )
    with pytest.raises(BranchesFailed, match="2 of 2 raised") as told:
        await drawn(table, breadth=2, depth=2)
    assert str(told.value.__cause__) == "down 1"  # round 0 comes before round 1
    assert len(told.value.attempts) == 3
    collected = await drawn(table, breadth=2, depth=2, on_error="collect")
    assert not collected.ok
    assert [str(error) for error in collected.errors] == ["down 1", "down 0"]


@pytest.mark.parametrize(
    "loud", [KeyRefused("who are you"), NoSuchModel("not this"), ValueError("a bug")]
)
async def test_what_concerns_all_branches_stops_them_all_at_once(loud):
    gate = Gate()

    def says(branch, number):
        async def later():
            if branch == 0:
                return loud
            await gate.pass_(branch)
            return f"{PASS}"

        return later()

    table = Table(says)
    with pytest.raises(type(loud)) as told:
        await drawn(table, breadth=3, depth=3)
    assert [attempt.state for attempt in told.value.attempts if attempt.branch == 0] == ["error"]
    assert len(table.asked) <= 3
    assert table.now == 0


async def test_a_check_with_a_bug_is_loud_and_names_the_check():
    def bug(text):
        """has a bug"""
        raise KeyError("oops")

    table = Table(at())
    with pytest.raises(CheckBroken, match="'has a bug' raised KeyError") as told:
        await drawn(table, checks=[bug], breadth=2, depth=3)
    assert isinstance(told.value.__cause__, KeyError)
    with pytest.raises(CheckBroken, match="must answer True, False"):
        await drawn(Table(at()), checks=[lambda _: "yes"])


async def test_an_outer_cancellation_ends_everything_and_leaves_no_draw():
    gate = Gate()

    def says(branch, number):
        return gate.pass_((branch, number))

    table, ended = Table(says), []
    async with abreast.open_run("r", hooks=[lambda e: ended.append(e.kind)]) as run:
        task = asyncio.ensure_future(drawn(table, breadth=3, run=run))
        await gate.wait_for((0, 0), (1, 0), (2, 0))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert table.now == 0
    assert ended.count("sample-ended") == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"breadth": 0}, "breadth"),
        ({"breadth": True}, "breadth"),
        ({"depth": 2.5}, "depth"),
        ({"depth": -1}, "depth"),
        ({"pick": "any"}, "pick"),
        ({"on_error": "ignore"}, "on_error"),
        ({"strategy": "magic"}, "no strategy 'magic'"),
        ({"checks": [passes, passes]}, "two checks are called 'is good'"),
    ],
)
async def test_numbers_that_cannot_be_are_refused_before_any_draw(options, error):
    table = Table(at())
    with pytest.raises(ValueError, match=error):
        await drawn(table, **options)
    assert table.asked == []


async def test_a_word_of_another_library_is_answered_with_ours():
    with pytest.raises(TypeError, match="loop_budget is called depth here"):
        await drawn(Table(at()), loop_budget=3)
    with pytest.raises(TypeError, match="no option 'bredth'"):
        await drawn(Table(at()), bredth=3)
    with pytest.raises(TypeError, match="a check is a function"):
        await drawn(Table(at()), checks=[7])
    with pytest.raises(ValueError, match="empty"):
        await abreast.sample("  ", model=model_of(Table(at())))


# --- hooks, context, budgets


class Decides:
    def __init__(self, answer):
        self.answer = answer
        self.plans = []

    def before_sample(self, plan):
        self.plans.append(plan)
        return self.answer


@pytest.mark.parametrize(
    "answer", [{"depth": 0}, {"breadth": -1}, {"depth": "3"}, {"breadth": True}, 3, {"width": 3}]
)
async def test_a_decider_that_answers_nonsense_is_named_before_any_draw(answer):
    table = Table(at())
    with pytest.raises(ValueError, match="before_sample of Decides"):
        async with abreast.open_run("r", hooks=[Decides(answer)]) as run:
            await drawn(table, breadth=2, depth=2, run=run)
    assert table.asked == []


async def test_a_decider_may_set_breadth_and_depth_up_and_down():
    table, decides = Table(at()), Decides({"breadth": 3, "depth": 1})
    async with abreast.open_run("r", hooks=[decides]) as run:
        result = await drawn(table, breadth=1, depth=4, run=run)
    assert result.counts.started == 3
    assert {attempt.number for attempt in result.attempts} == {1, 2, 3}  # with the effective depth
    assert decides.plans[0].worst_requests == 4


async def test_events_begin_and_end_once_and_are_monotonic_in_each_branch():
    seen = []
    async with abreast.open_run("r", hooks=[seen.append]) as run:
        await drawn(Table(at()), breadth=3, depth=3, run=run)
    kinds = [event.kind for event in seen]
    mine = [kind for kind in kinds if kind.startswith(("sample", "draw"))]
    assert (mine[0], mine[-1]) == ("sample-started", "sample-ended")
    assert kinds.count("sample-started") == kinds.count("sample-ended") == 1
    for branch in range(3):
        rounds = [
            e.data["round"] for e in seen if e.kind == "draw-started" and e.data["branch"] == branch
        ]
        assert rounds == sorted(rounds) == [0, 1, 2]
    end = next(event for event in seen if event.kind == "sample-ended")
    assert (end.data["started"], end.data["rounds"], end.data["ok"]) == (9, 3, False)


async def test_each_draw_sees_its_own_branch_and_round_everywhere():
    """Branch 0 is held in its fourth round while branch 1 is in its eighth."""
    gate, seen = Gate(), {"check": [], "model": [], "log": [], "async": []}
    log = logging.getLogger("tests.draws")
    handler = logging.Handler()
    handler.addFilter(DrawFilter())
    handler.emit = lambda record: seen["log"].append(
        (record.getMessage(), (record.branch, record.round))
    )
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    def says(branch, number):
        async def later():
            if (branch, number) in ((0, 3), (1, 7)):
                await gate.pass_((branch, number))
            here = current_draw()
            seen["model"].append(((branch, number), (here.branch, here.round)))
            log.info("%d.%d", branch, number)
            return f"bad {branch}.{number}"

        return later()

    def in_thread(text):
        """in a thread"""
        here = current_draw()
        seen["check"].append((text, f"bad {here.branch}.{here.round}"))
        return False

    async def in_task(text):
        """in a task"""
        here = current_draw()
        await asyncio.sleep(0)
        seen["async"].append((text, f"bad {here.branch}.{here.round}"))
        return False

    done = asyncio.ensure_future(
        drawn(Table(says), breadth=2, depth=8, checks=[in_thread, in_task], explain=True)
    )
    await gate.wait_for((0, 3), (1, 7))
    gate.open_all()
    await done
    log.removeHandler(handler)
    assert current_draw() is None  # the caller's context is as it was
    for kind in ("model", "check", "async"):
        assert len(seen[kind]) == 16
        assert all(one == other for one, other in seen[kind])
    assert len(seen["log"]) == 16
    assert all(msg == f"{branch}.{number}" for msg, (branch, number) in seen["log"])


async def test_one_budget_covers_draws_and_judges_and_what_is_spent_is_counted():
    table = Table(at())
    with pytest.raises(BudgetSpent):
        await drawn(table, breadth=2, depth=5, budget="4req")
    assert len(table.asked) == 4
    assert table.now == 0


async def test_a_429_uses_up_no_round_and_what_passes_alone_passes_side_by_side():
    clock = ManualClock()
    left = {"places": 0}

    def says(branch, number):
        left["places"] += 1
        if left["places"] % 3:
            return Throttled("slow down", retry_after=1.0)
        return at((0, 1), (5, 1))(branch, number)

    async def good(text):
        """good"""
        return text.startswith(PASS)

    table = Table(says)
    async with abreast.open_run("r", clock=clock) as run:
        done = asyncio.ensure_future(drawn(table, checks=[good], breadth=8, depth=2, run=run))
        await clock.run_until(done)
    result = done.result()
    assert result.ok
    assert (result.winner.branch, result.winner.round) == (0, 1)
    assert result.counts.failed == 0


# --- durable


async def test_a_recorded_draw_is_not_made_again_and_the_winner_is_the_same():
    store = MemoryStore()
    table = Table(at((2, 1)))
    crash = [True]

    def stops(text):
        """stops"""
        if crash and len(table.asked) >= 6:
            run.halt("crash")
        return text.startswith(PASS)

    with pytest.raises(abreast.core.errors.Halted):
        async with abreast.open_run("r", store=store, seed=3) as run:
            await drawn(table, breadth=4, depth=3, checks=[stops], run=run)
    done = {
        event.path
        for event in store.events("r-1", kinds={"call-settled"})
        if event.data["state"] == "done"
    }
    crash.clear()
    made = len(table.asked)
    async with abreast.open_run("r", store=store, resume="must") as run:
        result = await drawn(table, breadth=4, depth=3, checks=[stops], run=run)
    assert (result.winner.branch, result.winner.round) == (2, 1)
    after = [
        event.path
        for event in store.events("r-1", kinds={"call-settled"})
        if event.data["state"] == "done"
    ]
    assert len(after) == len(set(after))  # none twice
    assert done <= set(after)
    assert len(table.asked) - made <= 12 - len(done)


async def test_losers_are_recorded_as_cancelled_with_their_cost():
    store, gate = MemoryStore(), Gate()

    def says(branch, number):
        async def later():
            if branch:
                await gate.pass_(branch)
            else:
                await gate.wait_for(1, 2)
            return f"{PASS} {branch}"

        return later()

    async with abreast.open_run("r", store=store) as run:
        result = await drawn(Table(says), breadth=3, run=run, max_tokens=50)
    assert result.counts.cancelled == 2
    lost = [
        event
        for event in store.events("r-1", kinds={"call-settled"})
        if event.data["state"] == "cancelled"
    ]
    assert len(lost) == 2
    assert all(event.data["estimate"] and event.data["output_tokens"] == 50 for event in lost)
    assert [a.usage.estimate for a in result.attempts] == [False, True, True]
    assert result.usage.requests == 3


# --- dry runs and the synchronous entry point


def test_a_plan_says_what_it_may_cost_before_anything_is_spent():
    from abreast.models.price import FlatPrice

    table = Table(at())
    model = Caller(table, ModelLane("test"), price=FlatPrice(1.0, 2.0))
    plan = abreast.dry_run_sample(
        "Say.",
        model=model,
        breadth=4,
        depth=3,
        max_tokens=100,
        checks=[passes, abreast.checks.judged("is so")],
    )
    assert (plan.worst_requests, plan.judges) == (24, 1)
    assert 4 <= plan.expected_requests / 2 <= 12
    assert plan.worst_usd > plan.expected_usd > 0
    assert plan.worst_tokens >= 12 * 100
    alone = abreast.dry_run_sample("Say.", model=model, pass_rate=0.0, depth=3)
    assert alone.expected_requests == alone.worst_requests == 3
    assert abreast.dry_run_sample("Say.", model=Caller(table, ModelLane("test"))).worst_usd is None
    with pytest.raises(ValueError, match="pass_rate"):
        abreast.dry_run_sample("Say.", model=model, pass_rate=1.5)
    assert table.asked == []


def test_the_door_for_code_that_is_not_async():
    result = abreast.sync.sample(
        "Say.", model=model_of(Table(at((0, 1)))), checks=[passes], depth=2
    )
    assert result.text == "good 0.1"


async def test_inside_an_item_a_sample_is_beneath_it():
    store = MemoryStore()

    async def work(item):
        return (await drawn(Table(at((0, 0))))).text

    async with abreast.open_run("r", store=store) as run:
        assert await run.map(work, ["a"], width=1).values() == ["good 0.0"]
    assert any(
        event.path.startswith("r/work/0000/sample/branch/0000/call/")
        for event in store.events("r-1")
    )
