"""Corner cases: orders of errors, judges that are not asked, seeds by place, ended branches."""

import ast
import asyncio
import inspect

import pytest

import abreast
from abreast.core.errors import BranchesFailed, BudgetSpent, Halted, ServerFault
from abreast.core.outcome import Usage
from abreast.jobs.sample import arguments as door
from abreast.jobs.sample import branch_order as race
from abreast.jobs.sample import checks as checks_of_samples
from abreast.jobs.sample import dry_run as plan
from abreast.jobs.sample import job as engine
from abreast.jobs.sample import results as attempts
from abreast.jobs.sample import spec, strategies
from abreast.jobs.sample.checks import check, judged, lines, obeys
from abreast.jobs.sample.job import GREEDY_MODEL_TEMPERATURE, MAX_DRAWS
from abreast.jobs.sample.strategies import MultiTurn, Rejection, Repair, Vote
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import Gate, MemoryStore
from tests.jobs.sample.drawing import Table, at, passes


def model_of(table):
    return Caller(table, ModelLane("test"), retry=abreast.Retry(0), paid=False)


async def drawn(table, *, checks=(passes,), **options):
    return await abreast.sample(
        "Say something good.", model=model_of(table), checks=checks, **options
    )


class ScriptedJudge:
    """A judge that answers by a function of the requirement, and records its requests."""

    name = "test/judge"

    def __init__(self, says):
        self.says = says
        self.asked = []
        self.ended = []

    async def complete(self, request, hear=None):
        wanted = (
            request.messages[0].content.rpartition("Does the answer meet this: ")[2].rstrip("?")
        )
        self.asked.append(wanted)
        meets = await self.says(wanted)
        self.ended.append(wanted)
        return Reply("{}", {"meets": meets, "reason": "it is dull"}, usage=Usage(1, 5, 5, 0.0))

    async def close(self):
        pass


# --- errors


async def test_a_cancellation_is_never_the_cause_though_it_came_before_every_error():
    table = Table(
        lambda branch, _: (
            asyncio.CancelledError("a friend's") if branch == 0 else ServerFault("down")
        )
    )
    with pytest.raises(BranchesFailed, match="2 of 3 raised; the first: down") as told:
        await drawn(table, breadth=3)
    assert type(told.value.__cause__) is ServerFault
    assert [one.state for one in told.value.attempts] == ["cancelled", "error", "error"]


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

    table = Table(
        lambda branch, number: (
            ServerFault("down") if (branch, number) == (0, 1) else f"bad {branch}{number}"
        )
    )
    result = await drawn(table, breadth=2, depth=2, strategy=Mine(), on_error="collect")
    assert (result.winner.branch, result.winner.round) == (1, 1)


@pytest.mark.parametrize(
    "shape",
    [{"breadth": MAX_DRAWS + 1}, {"depth": MAX_DRAWS + 1}, {"breadth": 10**11, "depth": 10**11}],
)
async def test_more_draws_than_anybody_can_mean_are_refused_at_once(shape):
    with pytest.raises(ValueError, match="a sample has at most 100,000"):
        await drawn(Table(at()), **shape)

    class Decides:
        def before_sample(self, plan):
            return shape

    async with abreast.open_run("r", hooks=[Decides()]) as run:
        with pytest.raises(ValueError, match=r"before_sample of .*Decides"):
            await drawn(Table(at()), run=run)


# --- checks


async def test_a_judge_is_not_asked_about_a_draw_that_a_free_check_refused_unless_with_explain():
    async def yes(wanted):
        return True

    judge = ScriptedJudge(yes)
    result = await drawn(
        Table(at((0, 1))), depth=2, judge=model_of(judge), checks=[judged("is lively"), passes]
    )
    assert (result.ok, judge.asked) == (True, ["is lively"])
    assert [verdict.check for verdict in result.winner.verdicts] == [
        "judged: is lively",
        "is good",
    ]  # as they were given
    judge = ScriptedJudge(yes)
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

    judge = ScriptedJudge(says)
    result = await drawn(
        Table(at((0, 0))),
        judge=model_of(judge),
        checks=[passes, judged("is short"), judged("is kind")],
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


# --- seeds and temperatures


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

    assert await temperature(breadth=2) == {GREEDY_MODEL_TEMPERATURE}
    assert await temperature(depth=2) == {GREEDY_MODEL_TEMPERATURE}
    assert await temperature() == {None}
    assert await temperature(breadth=2, temperature=0.3) == {0.3}


# --- durable


@pytest.mark.parametrize("passed", [True, False])
async def test_a_branch_that_had_ended_before_a_kill_is_in_the_result_and_counts_in_the_race(
    passed,
):
    """Branch 0 has ended and is on disk; branch 1 is in its first round when everything stops."""
    store, gate, settled = MemoryStore(), Gate(), asyncio.Event()
    loop = asyncio.get_running_loop()
    good = at((0, 1)) if passed else at()

    def says(branch, number):
        async def later():
            if branch == 1 and number == 0:
                await gate.pass_(branch)
            return good(branch, number)

        return later()

    def notice(event):
        if event.kind == "item-settled":
            loop.call_soon_threadsafe(settled.set)  # an observer has a thread of its own

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


async def test_a_budget_counts_the_judges_of_every_branch_beside_the_draws():
    async def never(_):
        return False

    table, judge = Table(at()), ScriptedJudge(never)
    with pytest.raises(BudgetSpent, match="5 of 5 requests used"):
        await drawn(
            table,
            checks=[judged("is lively")],
            judge=model_of(judge),
            breadth=2,
            depth=9,
            budget="5req",
        )
    assert (len(table.asked) + len(judge.asked), table.now) == (5, 0)
    assert len(judge.asked) >= 2


async def test_a_resumed_sample_counts_what_was_spent_of_its_own_budget_and_no_other_samples_part():
    store, table = MemoryStore(), Table(at())

    async def more(budget, resume):
        async with abreast.open_run("r", store=store, seed=3, resume=resume) as run:
            await drawn(table, depth=2, run=run, name="before")
            await drawn(table, depth=6, run=run, budget=budget)

    for budget, resume, asked in (("3req", "never", 5), ("3req", "must", 5), ("5req", "must", 7)):
        with pytest.raises(BudgetSpent):
            await more(budget, resume)
        assert len(table.asked) == asked
    await more("6req", "must")
    assert table.asked == [(0, 0), (0, 1), *((0, number) for number in range(6))]


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        (
            {(0, 0): (0.9, 0.1), (1, 0): (0.5, 0.1)},
            (0, 0),
        ),  # the higher score, of those that pass as many
        ({(0, 0): (0.4, 0.4), (1, 0): (0.5, 0.0)}, (1, 0)),  # more checks passed, before the score
        (
            {(0, 0): (0.1, 0.1), (0, 1): (0.4, 0.4), (1, 0): (0.4, 0.4), (1, 1): (0.4, 0.4)},
            (1, 0),
        ),  # the earliest round
    ],
)
async def test_of_failed_draws_the_one_with_most_checks_then_score_then_the_earliest_is_chosen(
    scores, wanted
):
    table = Table(lambda branch, number: f"{branch} {number}")

    def score(index):
        return check(lambda text: scores[tuple(map(int, text.split()))][index], f"score {index}")

    depth = max(number for _, number in scores) + 1
    result = await drawn(table, breadth=2, depth=depth, checks=[score(0), score(1)])
    assert not result.ok
    assert (result.winner.branch, result.winner.round) == wanted


# --- strategies


async def test_a_tie_in_a_vote_goes_to_the_earliest_place_and_failing_draws_do_not_vote():
    texts = {(0, 0): "bad b", (0, 1): "good b", (1, 0): "good a", (2, 0): "bad b", (2, 1): "bad b"}
    result = await drawn(
        Table(lambda branch, number: texts[branch, number]), breadth=3, depth=2, strategy=Vote()
    )
    assert result.text == "good a"


async def test_a_repair_shows_the_last_draw_and_no_earlier_one():
    table = Table(at())
    await drawn(table, depth=3, strategy=Repair())
    text = table.requests[2].messages[0].content
    assert "An earlier answer was:\nbad 0.1\n" in text
    assert "bad 0.0" not in text


async def test_multi_turn_takes_the_best_branch_also_where_another_is_last():
    def short(text):
        return "1." in text, "not of branch 1"

    checks = [check(short, "short"), check(lambda _: False, "never")]
    result = await drawn(Table(at()), breadth=3, depth=2, strategy=MultiTurn(), checks=checks)
    assert (result.winner.branch, result.winner.round) == (1, 1)


@pytest.mark.parametrize(("score", "ok"), [(0.5, True), (0.49, False), (1, True), (0, False)])
async def test_a_score_passes_from_the_middle_on(score, ok):
    result = await drawn(Table(at()), checks=[check(lambda _: score, "scored")])
    assert (result.ok, result.winner.score) == (ok, score)


async def test_a_second_decider_sees_what_the_first_has_decided():
    class Decides:
        def __init__(self, answer):
            self.answer, self.seen = answer, []

        def before_sample(self, plan):
            self.seen.append((plan.breadth, plan.depth))
            return self.answer

    first, second = Decides({"breadth": 3}), Decides({"depth": 2})
    async with abreast.open_run("r", hooks=[first, second]) as run:
        result = await drawn(Table(at()), run=run)
    assert (first.seen, second.seen, result.counts.started) == ([(1, 1)], [(3, 1)], 6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"breadth": 4, "depth": 3},
            4 * (1 + 1 / 16 + 1 / 256),
        ),  # all four fail one time in 16
        ({"breadth": 1, "depth": 3}, 1 + 1 / 2 + 1 / 4),
        (
            {"breadth": 4, "depth": 3, "strategy": "vote"},
            4 * (1 + 1 / 2 + 1 / 4),
        ),  # each branch ends by itself
        ({"breadth": 4, "depth": 1}, 4),
    ],
)
def test_the_expected_number_of_requests_is_between_one_and_all(options, expected):
    plan = abreast.dry_run_sample("Say.", model=model_of(Table(at())), pass_rate=0.5, **options)
    assert plan.expected_requests == pytest.approx(expected)
    assert (
        1 <= plan.expected_requests <= plan.worst_requests == options["breadth"] * options["depth"]
    )


# --- the current draw


async def test_a_hook_sees_branch_and_round_of_each_draw_while_branches_are_in_different_rounds():
    """Branch 0 is held in its third round while branch 1 is in its seventh."""
    gate, seen = Gate(), []

    def hook(event):
        if event.kind in ("draw-started", "draw-ended"):
            assert event.path == f"r/sample/branch/{event.data['branch']:04}"
            seen.append(
                (event.kind[5:], event.data["branch"], event.data["round"], event.data["number"])
            )

    def says(branch, number):
        async def later():
            if (branch, number) in ((0, 2), (1, 6)):
                await gate.pass_((branch, number))
            return f"bad {branch}.{number}"

        return later()

    async with abreast.open_run("r", hooks=[hook]) as run:
        done = asyncio.ensure_future(drawn(Table(says), breadth=2, depth=7, run=run))
        await gate.wait_for((0, 2), (1, 6))
        gate.open((0, 2))  # its events come after those of later rounds of the other
        await gate.wait_for((1, 6))
        gate.open((1, 6))
        await done
    for branch in range(2):
        told = [event for event in seen if event[1] == branch]
        numbers = [(number, branch * 7 + number + 1) for number in range(7)]
        assert told == [(what, branch, *one) for one in numbers for what in ("started", "ended")]
    assert seen.index(("started", 1, 6, 14)) < seen.index(("ended", 0, 2, 3))  # they interleave


def names_in(module):
    """All names and attributes that the code of a module uses."""
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    return [node.id for node in nodes if isinstance(node, ast.Name)] + [
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    ]


def test_the_loop_of_a_branch_is_written_once_and_strategies_have_none():
    package = [attempts, checks_of_samples, door, engine, plan, race, spec, strategies]
    assert [module.__name__ for module in package if "may_draw" in names_in(module)] == [
        engine.__name__
    ]
    assert names_in(engine).count("may_draw") == 1
    assert names_in(engine).count("complete") == 1
    for node in ast.walk(ast.parse(inspect.getsource(strategies))):
        assert not isinstance(node, (ast.While, ast.Await, ast.AsyncFor, ast.AsyncFunctionDef))
    loops = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(engine)))
        if isinstance(node, ast.While)
    ]
    assert sum("may_draw" in ast.dump(loop.test) for loop in loops) == 1


def test_rate_limits_are_no_business_of_the_sampler():
    for module in (engine, race, strategies, door):
        assert not {"Throttled", "Rate", "Slots", "retry_after", "hold"} & set(names_in(module))


async def test_draws_of_a_greedy_model_are_replayed_with_the_temperature_that_they_had():
    table, store = Table(at((1, 0)), name="local/table"), MemoryStore()
    table.greedy = True
    options = {"checks": [passes], "breadth": 2}
    async with abreast.open_run("first", store=store, seed=3) as run:
        first = await abreast.sample("Say.", model=model_of(table), run=run, **options)
    replay = abreast.open_model(f"replay/{run.id}", store=store)
    async with abreast.open_run("again", store=store, seed=3) as run:
        again = await abreast.sample("Say.", model=replay, run=run, **options)
    assert (again.ok, again.text, len(table.asked)) == (True, first.text, 2)
