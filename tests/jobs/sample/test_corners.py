"""Corners of the engine: orders of errors, judges that needn't be asked, seeds by place, branches that had ended."""

import asyncio

import pytest

import abreast
from abreast.core.errors import BranchesFailed, Halted, ServerFault
from abreast.core.outcome import Usage
from abreast.jobs.sample.checks import check, judged, lines, obeys
from abreast.jobs.sample.engine import MOST, WARM
from abreast.jobs.sample.strategies import Rejection, Repair, Vote
from abreast.models.port import Reply
from abreast.run.call import Caller
from abreast.run.lane import Lane
from abreast.testing import Gate, MemoryStore
from tests.jobs.sample.drawing import Table, at, passes


def model_of(table):
    return Caller(table, Lane("test"), retry=abreast.Retry(0), paid=False)


async def drawn(table, *, checks=(passes,), **options):
    return await abreast.sample("Say something good.", model=model_of(table), checks=checks, **options)


class Judging:
    """A judge that says what a function of the requirement says, and remembers what it was asked."""

    name = "test/judge"

    def __init__(self, says):
        self.says = says
        self.asked = []
        self.ended = []

    async def complete(self, request, hear=None):
        wanted = request.messages[0].content.rpartition("Does the answer meet this: ")[2].rstrip("?")
        self.asked.append(wanted)
        meets = await self.says(wanted)
        self.ended.append(wanted)
        return Reply("{}", {"meets": meets, "reason": "it is dull"}, usage=Usage(1, 5, 5, 0.0))

    async def close(self):
        pass


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_errors_are_listed_by_round_and_branch_and_not_as_they_came():
    gate = Gate()

    def says(branch, number):
        async def later():
            await gate.pass_(branch)
            return ServerFault(f"down {branch}")

        return later()

    done = asyncio.ensure_future(drawn(Table(says), breadth=3, on_error="collect"))
    await gate.wait_for(0, 1, 2)
    for branch in (2, 1, 0):
        gate.open(branch)
        for _ in range(20):
            await asyncio.sleep(0)
    result = await done
    assert [str(error) for error in result.errors] == ["down 0", "down 1", "down 2"]


async def test_an_error_says_the_real_cause_and_no_internal_index_when_nothing_was_drawn():
    with pytest.raises(BranchesFailed) as told:
        await drawn(Table(lambda *_: ServerFault("the model is down")), breadth=2)
    assert str(told.value) == "no branch passed, and 2 of 2 raised; the first: the model is down"
    nothing = await drawn(Table(lambda *_: ServerFault("down")), breadth=2, on_error="collect")
    assert (nothing.ok, nothing.winner, nothing.text, nothing.counts.failed) == (False, None, "", 2)


async def test_a_selector_is_not_given_draws_that_came_to_nothing():
    class Mine(Rejection):
        def select(self, attempts):
            assert [(one.branch, one.round) for one in attempts] == [(0, 0), (1, 0), (1, 1)]
            return -1

    table = Table(lambda branch, number: ServerFault("down") if (branch, number) == (0, 1) else f"bad {branch}{number}")
    result = await drawn(table, breadth=2, depth=2, strategy=Mine(), on_error="collect")
    assert (result.winner.branch, result.winner.round) == (1, 1)


@pytest.mark.parametrize("shape", [{"breadth": MOST + 1}, {"depth": MOST + 1}, {"breadth": 10**11, "depth": 10**11}])
async def test_more_draws_than_anybody_can_mean_are_refused_at_once(shape):
    with pytest.raises(ValueError, match="a sample has at most 100,000"):
        await drawn(Table(at()), **shape)

    class Decides:
        def before_sample(self, plan):
            return shape

    async with abreast.open_run("r", hooks=[Decides()]) as run:
        with pytest.raises(ValueError, match=r"before_sample of .*Decides"):
            await drawn(Table(at()), run=run)


# --- checks -----------------------------------------------------------------------------------------------------------


async def test_a_judge_is_not_asked_about_a_draw_that_a_free_check_refused_unless_all_is_to_be_explained():
    async def yes(wanted):
        return True

    judge = Judging(yes)
    result = await drawn(Table(at((0, 1))), depth=2, judge=model_of(judge), checks=[judged("is lively"), passes])
    assert (result.ok, judge.asked) == (True, ["is lively"])
    assert [verdict.check for verdict in result.winner.verdicts] == [
        "judged: is lively",
        "is good",
    ]  # as they were given
    judge = Judging(yes)
    options = {"judge": model_of(judge), "checks": [judged("is lively"), passes]}
    await drawn(Table(at((0, 1))), depth=2, explain=True, **options)
    assert judge.asked == ["is lively", "is lively"]


async def test_a_judge_that_says_no_ends_those_that_are_still_asked():
    gate = Gate()

    async def says(wanted):
        if wanted == "is short":
            await gate.wait_for("is kind")
            return False
        return await gate.pass_(wanted) or True

    judge = Judging(says)
    result = await drawn(
        Table(at((0, 0))), judge=model_of(judge), checks=[passes, judged("is short"), judged("is kind")]
    )
    assert not result.ok
    assert (sorted(judge.asked), judge.ended) == (["is kind", "is short"], ["is short"])


async def test_the_repair_text_is_the_same_every_time_and_names_failed_checks_in_their_order():
    def says(branch, number):
        return "one line"

    async def asked():
        table = Table(says)
        checks = [
            lines(2),
            check(lambda _: (False, "why b"), "b"),
            check(lambda _: True, "fine"),
            obeys({"type": "array"}),
        ]
        await drawn(table, depth=2, strategy=Repair(), checks=checks)
        return table.requests[1].messages[0].content

    text = await asked()
    assert text == await asked()
    listed = [line for line in text.splitlines() if line.startswith("- ")]
    assert [line.split(":")[0] for line in listed] == ["- 2 lines", "- b", "- obeys the schema"]
    assert listed[:2] == ["- 2 lines: it has 1 lines", "- b: why b"]


# --- seeds and temperatures -------------------------------------------------------------------------------------------


async def test_two_samples_of_one_run_draw_from_seeds_of_their_own():
    async def seeds():
        table = Table(at())
        async with abreast.open_run("r", seed=3) as run:
            for name in ("one", "other"):
                await drawn(table, breadth=2, depth=2, run=run, name=name)
        return [request.seed for request in table.requests]

    first = await seeds()
    assert len(set(first)) == 8
    assert sorted(first) == sorted(await seeds())


async def test_a_model_that_says_the_same_each_time_is_warmed_for_several_draws_and_only_then():
    async def temperature(**options):
        table = Table(at())
        table.greedy = True
        await drawn(table, **options)
        return {request.temperature for request in table.requests}

    assert await temperature(breadth=2) == {WARM}
    assert await temperature(depth=2) == {WARM}
    assert await temperature() == {None}
    assert await temperature(breadth=2, temperature=0.3) == {0.3}


# --- durable ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passed", [True, False])
async def test_a_branch_that_had_ended_before_a_kill_is_in_the_result_and_counts_in_the_race(passed):
    """Branch 0 has ended and is on disk; branch 1 is in its first round when everything stops."""
    store, gate, settled = MemoryStore(), Gate(), asyncio.Event()
    good = at((0, 1)) if passed else at()

    def says(branch, number):
        async def later():
            if branch == 1 and number == 0:
                await gate.pass_(branch)
            return good(branch, number)

        return later()

    def notice(event):
        if event.kind == "item-settled":
            settled.set()

    first = Table(says)
    with pytest.raises(Halted):
        async with abreast.open_run("r", store=store, seed=3, hooks=[notice]) as run:
            done = asyncio.ensure_future(drawn(first, breadth=2, depth=3, run=run))
            await settled.wait()
            run.halt("killed")
            await done
    again = Table(good)
    async with abreast.open_run("r", store=store, resume="must") as run:
        result = await drawn(again, breadth=2, depth=3, run=run)
    assert not [place for place in again.asked if place[0] == 0]  # its draws are recorded
    states = {(one.branch, one.round): one.state for one in result.attempts}
    if passed:
        assert (result.ok, result.winner.branch, result.winner.round) == (True, 0, 1)
        assert again.asked == [(1, 0)]  # the only one that could still win
        assert states == {(0, 0): "failed", (0, 1): "passed", (1, 0): "failed"}
    else:
        assert again.asked == [(1, 0), (1, 1), (1, 2)]
        assert list(states.values()) == ["failed"] * 6
    assert result.usage.requests == len(states)


@pytest.mark.parametrize(("scores", "wanted"), [
    ({(0, 0): (0.9, 0.1), (1, 0): (0.5, 0.1)}, (0, 0)),  # the higher score, of those that pass as many
    ({(0, 0): (0.4, 0.4), (1, 0): (0.5, 0.0)}, (1, 0)),  # more checks passed, before the score
    ({(0, 0): (0.1, 0.1), (0, 1): (0.4, 0.4), (1, 0): (0.4, 0.4), (1, 1): (0.4, 0.4)}, (1, 0)),  # the earliest round
])  # fmt: skip
async def test_of_draws_that_all_failed_the_one_with_most_checks_then_score_then_the_earliest_is_taken(scores, wanted):
    table = Table(lambda branch, number: f"{branch} {number}")

    def score(index):
        return check(lambda text: scores[tuple(map(int, text.split()))][index], f"score {index}")

    depth = max(number for _, number in scores) + 1
    result = await drawn(table, breadth=2, depth=depth, checks=[score(0), score(1)])
    assert not result.ok
    assert (result.winner.branch, result.winner.round) == wanted


# --- strategies -------------------------------------------------------------------------------------------------------


async def test_a_tie_in_a_vote_goes_to_the_earliest_round_and_then_branch_and_failing_draws_have_no_vote():
    texts = {(0, 0): "bad b", (0, 1): "good b", (1, 0): "good a", (2, 0): "bad b", (2, 1): "bad b"}
    result = await drawn(Table(lambda branch, number: texts[branch, number]), breadth=3, depth=2, strategy=Vote())
    assert result.text == "good a"
