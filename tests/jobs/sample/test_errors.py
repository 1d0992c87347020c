"""Samples with errors: the result is that of sequential draws, with any delays."""

import asyncio
import subprocess
import sys
from contextlib import closing
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import abreast
from abreast.core.errors import (
    BranchesFailed,
    CheckBroken,
    KeyRefused,
    NoSuchModel,
    Refused,
    ReplyBroken,
    ReplyInvalid,
    RequestRefused,
    ServerFault,
    TooLong,
)
from abreast.jobs.sample.branch_order import BranchOrder
from abreast.jobs.sample.checks import check
from abreast.jobs.sample.strategies import MultiTurn, Rejection, Repair, Vote
from abreast.models.port import Reply
from abreast.models.scripted import Scripted
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import Gate, MemoryStore
from tests.jobs.sample.drawing import PASS, Table, passes

SIZE = 4
GOOD, BAD, EMPTY, BUG = "good", "bad", "empty", "bug"
OWN = (Refused, ReplyBroken, ReplyInvalid)
ENDS_BRANCH = (ServerFault, TooLong)
FOR_ALL = (KeyRefused, NoSuchModel, RequestRefused)
KINDS = (GOOD, BAD, BAD, EMPTY, BUG, *OWN, *ENDS_BRANCH, *FOR_ALL)


@check
def buggy(text):
    """has a bug"""
    if text.startswith(BUG):
        raise KeyError(text)
    return True


def model_of(table, *limits):
    return Caller(table, ModelLane("test", limits), retry=abreast.Retry(0), paid=False)


async def drawn(table, *limits, checks=(passes, buggy), **options):
    model = model_of(table, *limits)
    return await abreast.sample(
        "Say something good.", model=model, checks=checks, explain=True, **options
    )


def reply(kind, branch, number):
    """The entry of the table for a kind of event."""
    if isinstance(kind, type):
        return kind(f"{branch}.{number}")
    return "" if kind == EMPTY else f"{kind} {branch}.{number}"


def error_at(kind):
    """The type of the error that it causes, if any."""
    return kind if isinstance(kind, type) else {EMPTY: ReplyBroken, BUG: CheckBroken}.get(kind)


class Serial:
    """The sequential sample, round by round: every schedule must give its result."""

    def __init__(self, kinds, breadth, depth, *, early=True):
        self.winner = self.broken = None
        self.errors, self.states, gone = {}, {}, set()
        for place in product(range(depth), range(breadth)):
            number, branch = place
            if branch in gone:
                continue
            kind = kinds[branch * SIZE + number]
            error = error_at(kind)
            self.states[place] = "passed" if kind == GOOD else "error" if error else "failed"
            if error is not None:
                self.errors[place] = error
            if error is CheckBroken or error in FOR_ALL:
                gone.add(branch)
                if self.winner is None:
                    self.broken = place
                    break
            elif error in ENDS_BRANCH:
                gone.add(branch)
            elif kind == GOOD:
                gone.add(branch)
                if self.winner is None:
                    self.winner = place
                if early:
                    break

    def upto(self, attempts):
        """The attempts that do not depend on timing: up to the place that decides."""
        end = self.broken or self.winner or (SIZE, SIZE)
        return {
            (one.round, one.branch): one.state for one in attempts if (one.round, one.branch) <= end
        }


def scheduled(kinds, delays):
    def says(branch, number):
        async def later():
            for _ in range(delays[branch * SIZE + number]):
                await asyncio.sleep(0)
            return reply(kinds[branch * SIZE + number], branch, number)

        return later()

    return Table(says)


async def ends(sample):
    """The result, or the exception."""
    try:
        return await sample
    except Exception as error:
        return error


def check_early(found, serial, breadth, *, collect):
    """The law: winner, error, cause and attempts are those of the serial sample."""
    if serial.winner is not None:
        assert found.ok
        assert (found.winner.round, found.winner.branch) == serial.winner
        assert set(serial.errors.values()) <= {type(error) for error in found.errors}
    elif collect or not serial.errors:
        assert not found.ok
        assert [type(error) for error in found.errors][: len(serial.errors)] == list(
            serial.errors.values()
        )
        failed = [place for place, state in serial.states.items() if state == "failed"]
        wanted = min(failed, default=None)
        assert (found.winner and (found.winner.round, found.winner.branch)) == wanted
    elif serial.broken is not None:
        assert type(found) is serial.errors[serial.broken]
    elif breadth == 1:
        assert type(found) is serial.errors[min(serial.errors)]
    else:
        assert type(found) is BranchesFailed
        first = min(serial.errors)
        assert type(found.__cause__) is serial.errors[first]
    assert serial.upto(found.attempts) == serial.states
    counts = abreast.jobs.sample.results.count(found.attempts)
    assert counts.completed + counts.cancelled + counts.failed == counts.started


schedules = given(
    breadth=st.integers(1, SIZE),
    depth=st.integers(1, SIZE),
    kinds=st.lists(st.sampled_from(KINDS), min_size=SIZE * SIZE, max_size=SIZE * SIZE),
    delays=st.lists(st.integers(0, 9), min_size=SIZE * SIZE, max_size=SIZE * SIZE),
    lane=st.integers(1, SIZE),
    collect=st.booleans(),
)


def laid_out(rows, rest=BAD):
    """A table of kinds, by branch; missing entries are bad."""
    return [
        rows.get(branch, {}).get(number, rest) for branch in range(SIZE) for number in range(SIZE)
    ]


SLOW_FIRST = [9] * SIZE + [0] * (SIZE * SIZE - SIZE)
LATE_PASS = laid_out({0: {0: GOOD}, 1: {0: KeyRefused}})
REFUSED_THEN_GOOD = laid_out({0: {0: Refused, 1: GOOD}, 1: {0: BAD, 1: GOOD}})


@example(breadth=2, depth=1, kinds=LATE_PASS, delays=SLOW_FIRST, lane=4, collect=False)
@example(breadth=2, depth=2, kinds=REFUSED_THEN_GOOD, delays=[0] * 16, lane=4, collect=False)
@schedules
def test_with_errors_in_play_the_answer_is_the_serial_one_whatever_the_delays(  # noqa: PLR0917 - arguments drawn by hypothesis
    breadth, depth, kinds, delays, lane, collect
):
    table = scheduled(kinds, delays)
    options = {"breadth": breadth, "depth": depth, "on_error": "collect" if collect else "raise"}
    found = asyncio.run(ends(drawn(table, abreast.Slots(lane), **options)))
    check_early(found, Serial(kinds, breadth, depth), breadth, collect=collect)
    assert table.now == 0


@schedules
def test_a_vote_with_errors_in_play_is_the_same_whatever_the_delays(  # noqa: PLR0917 - arguments drawn by hypothesis
    breadth, depth, kinds, delays, lane, collect
):
    serial = Serial(kinds, breadth, depth, early=False)
    table = scheduled(kinds, delays)
    options = {"breadth": breadth, "depth": depth, "on_error": "collect" if collect else "raise"}
    vote = Vote(same=lambda _: "all alike")  # so the earliest that passes is chosen
    found = asyncio.run(ends(drawn(table, abreast.Slots(lane), strategy=vote, **options)))
    if serial.winner is not None:
        assert (found.winner.round, found.winner.branch) == serial.winner
        assert {
            (one.round, one.branch): one.state for one in found.attempts
        } == serial.states  # none is cancelled
    elif serial.broken is not None and not collect:
        assert type(found) is serial.errors[serial.broken]
        assert serial.upto(found.attempts) == serial.states
    assert table.now == 0


class AtOnce(BranchOrder):
    """Lets an error for all draws decide at once, as if no draw before it could still pass."""

    def broke(self, branch, number):
        super().broke(branch, number)
        self._end, self._ended_well = (number, branch), False
        beaten = [other for other in self._round_of if other != branch]
        self._round_of.clear()
        return beaten


class EndsBranch(BranchOrder):
    """Ends a branch at any error, as if a refusal could not be repaired."""

    def may_draw(self, branch, number):
        return number == 0 and super().may_draw(branch, number)


@pytest.mark.parametrize("mutant", [AtOnce, EndsBranch])
def test_the_law_catches_a_race_that_breaks_it(mutant, monkeypatch):
    monkeypatch.setattr("abreast.jobs.sample.job.BranchOrder", mutant)
    broken = 0
    for kinds, depth, delays in ((LATE_PASS, 1, SLOW_FIRST), (REFUSED_THEN_GOOD, 2, [0] * 16)):
        found = asyncio.run(ends(drawn(scheduled(kinds, delays), breadth=2, depth=depth)))
        try:
            check_early(found, Serial(kinds, 2, depth), 2, collect=False)
        except (AssertionError, AttributeError):
            broken += 1
    assert broken == 1


# --- an error for all


@pytest.mark.parametrize("first_passes", [True, False])
async def test_an_error_for_all_waits_for_the_draws_before_it_and_is_listed_beside_one_that_passes(
    first_passes,
):
    gate = Gate()

    def says(branch, number):
        async def later():
            if branch == 1:
                await gate.wait_for(0, 2)
                return KeyRefused("who are you")
            await gate.pass_(branch)
            return f"{PASS if first_passes else BAD} {branch}"

        return later()

    table = Table(says)
    done = asyncio.ensure_future(ends(drawn(table, breadth=3, depth=2)))
    await gate.wait_for(0, 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not done.done()  # the draw before it may still pass
    gate.open(0)
    found = await done
    states = {(one.branch, one.round): one.state for one in found.attempts}
    assert states == {
        (0, 0): "passed" if first_passes else "failed",
        (1, 0): "error",
        (2, 0): "cancelled",
    }
    if first_passes:
        assert (found.ok, found.winner.branch) == (True, 0)
        assert [str(error) for error in found.errors] == ["who are you"]
    else:
        assert type(found) is KeyRefused


async def test_an_error_for_all_before_a_pass_ends_the_sample_and_nothing_is_chosen():
    gate, ended = Gate(), []

    def says(branch, number):
        async def later():
            if branch == 0:
                await gate.pass_(branch)
                return KeyRefused("who are you")
            return f"{PASS} {branch}"

        return later()

    class Mine(Rejection):
        def select(self, attempts):
            raise AssertionError("there is nothing to choose from")

    def notice(event):
        if event.kind == "draw-ended" and event.data["branch"] == 1:
            loop.call_soon_threadsafe(gate.open, 0)  # an observer has a thread of its own
        if event.kind == "sample-ended":
            ended.append((event.data["ok"], event.data["winner"]))

    loop = asyncio.get_running_loop()
    async with abreast.open_run("r", hooks=[notice]) as run:
        found = await ends(drawn(Table(says), breadth=2, strategy=Mine(), run=run))
    assert type(found) is KeyRefused
    assert [one.state for one in found.attempts] == ["error", "passed"]
    assert ended == [(False, None)]


async def test_with_pick_first_an_error_for_all_is_raised_if_it_comes_before_a_pass():
    gate = Gate()

    def says(branch, number):
        async def later():
            await gate.pass_(branch)
            return NoSuchModel("gone") if branch == 1 else f"{PASS} {branch}"

        return later()

    for opened, wanted in ((1, NoSuchModel), (0, None)):
        gate = Gate()
        done = asyncio.ensure_future(ends(drawn(Table(says), breadth=2, pick="first")))
        await gate.wait_for(0, 1)
        gate.open(opened)
        found = await done
        assert type(found) is wanted if wanted else found.ok


async def test_collect_returns_an_error_for_all_and_the_best_of_what_came_before_it():
    table = scheduled(laid_out({0: {1: KeyRefused}, 1: {1: BAD, 2: BAD}}), [0] * 16)
    found = await drawn(table, breadth=2, depth=3, on_error="collect")
    assert (found.ok, found.text) == (False, "bad 0.0")
    assert [type(error) for error in found.errors] == [KeyRefused]
    attempt = next(one for one in found.attempts if one.state == "error")
    assert (attempt.branch, attempt.round, attempt.concerns) == (0, 1, "sample")


# --- a draw's own failure


@pytest.mark.parametrize("kind", [Refused, ReplyBroken, ReplyInvalid, EMPTY])
async def test_a_reply_of_no_use_uses_its_round_and_the_next_one_may_pass(kind):
    table = scheduled(laid_out({0: {0: kind, 1: GOOD}}), [0] * 16)
    found = await drawn(table, depth=3)
    assert (found.ok, found.text, table.asked) == (True, "good 0.1", [(0, 0), (0, 1)])
    assert [one.state for one in found.attempts] == ["error", "passed"]
    assert found.attempts[0].concerns == "draw"
    assert (found.counts.started, found.counts.completed, found.counts.failed) == (2, 1, 1)
    assert [type(error) for error in found.errors] == [error_at(kind)]


async def test_where_every_draw_is_refused_the_first_refusal_is_raised():
    table = scheduled([Refused] * 16, [0] * 16)
    with pytest.raises(Refused, match=r"0\.0") as told:
        await drawn(table, depth=2)
    assert [one.state for one in told.value.attempts] == ["error", "error"]
    with pytest.raises(
        BranchesFailed, match=r"no branch passed, and 3 of 3 raised; the first: 0\.0"
    ) as told:
        await drawn(table, breadth=3, depth=2)
    assert len(told.value.attempts) == 6


async def test_a_reply_that_says_it_was_refused_is_not_judged():
    class Declines(Table):
        async def complete(self, request, hear=None):
            await super().complete(request, hear)
            return Reply("I would rather not.", finish="refused")

    with pytest.raises(Refused):
        await drawn(Declines(lambda *_: "x"), checks=())


@pytest.mark.parametrize("kind", [Refused, EMPTY])
async def test_a_repair_of_a_draw_without_a_text_says_so_and_why(kind):
    table = scheduled(laid_out({0: {0: kind}}), [0] * 16)
    await drawn(table, depth=2, strategy=Repair(), on_error="collect")
    asked = table.requests[1].messages[0].content
    reason = "0.0" if kind is Refused else "test/table sent an empty reply"
    assert "An earlier answer was:\n(no answer)\n" in asked
    assert f"It does not meet these requirements:\n- a usable answer: {reason}\n" in asked


async def test_a_conversation_goes_on_after_a_draw_without_a_text_and_has_no_empty_turn():
    table = scheduled(laid_out({0: {0: Refused}}), [0] * 16)
    await drawn(table, depth=3, strategy=MultiTurn(), on_error="collect")
    turns = table.requests[2].messages
    assert [turn.role for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert all(turn.content.strip() for turn in turns)
    assert "- a usable answer: 0.0" in turns[2].content
    assert "is good" in turns[4].content


async def test_a_reply_that_breaks_the_schema_is_shown_in_its_repair_with_the_place_that_is_wrong():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = Scripted(['{"n": "one"}', '{"n": 1}'])
    found = await abreast.sample("Count.", model=model, schema=schema, depth=2, strategy=Repair())
    assert (found.ok, found.value) == (True, {"n": 1})
    asked = model.calls[1].messages[0].content
    assert 'An earlier answer was:\n{"n": "one"}\n' in asked
    assert "$.n must be integer" in asked
    assert found.attempts[0].text == '{"n": "one"}'


# --- durable


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        (laid_out({0: {0: Refused, 1: GOOD}, 1: {0: KeyRefused}, 2: {0: GOOD}}), KeyRefused),
        (laid_out({0: {0: GOOD}, 1: {0: KeyRefused}, 2: {0: BUG}}), (0, 0)),
        (
            laid_out(
                {0: {0: EMPTY, 1: GOOD}, 1: {0: ServerFault}, 2: {0: Refused, 1: CheckBroken}}
            ),
            (1, 0),
        ),
        (laid_out({0: {0: Refused, 1: BAD}, 1: {0: BUG}}), CheckBroken),
    ],
)
async def test_a_sample_that_is_cut_off_after_an_error_and_resumed_comes_to_the_same(kinds, wanted):
    """At the stop, branch 0 is in its first round, 1 has ended, 2 too or is cancelled."""
    store, gate, settled = MemoryStore(), Gate(), asyncio.Event()
    loop, ended = asyncio.get_running_loop(), set()

    def held(branch, number):
        async def later():
            if branch == 0:
                await gate.pass_(branch)
            return reply(kinds[branch * SIZE + number], branch, number)

        return later()

    def notice(event):
        if event.kind == "item-settled" and "/branch/" in event.path:
            ended.add(event.path)
            if len(ended) == 2:
                loop.call_soon_threadsafe(settled.set)  # an observer has a thread of its own

    with pytest.raises(abreast.core.errors.Halted):
        async with abreast.open_run("r", store=store, seed=3, hooks=[notice]) as run:
            done = asyncio.ensure_future(drawn(Table(held), breadth=3, depth=2, run=run))
            await settled.wait()
            run.halt("killed")
            await done
    again = scheduled(kinds, [0] * 16)
    async with abreast.open_run("r", store=store, resume="must") as run:
        found = await ends(drawn(again, breadth=3, depth=2, run=run))
    undisturbed = await ends(drawn(scheduled(kinds, [0] * 16), breadth=3, depth=2))
    assert type(found) is type(undisturbed)
    assert (
        str(found) == str(undisturbed)
        if isinstance(found, Exception)
        else found.text == undisturbed.text
    )
    if isinstance(wanted, type):
        assert type(found) is wanted
    else:
        assert (found.winner.round, found.winner.branch) == wanted
    assert not [
        place for place in again.asked if place[0] == 1
    ]  # it had ended, and is not drawn again


CHILD = """
import asyncio, sys
import abreast
from abreast.core.errors import KeyRefused, Refused
from abreast.jobs.sample.draw_context import current_draw
from abreast.models.port import Reply

path, held = sys.argv[1], sys.argv[2] == "held"
SAYS = {(0, 0): Refused("no"), (0, 1): "good 0.1", (1, 0): Refused("no"),
        (1, 1): KeyRefused("who are you"),
        (2, 0): "bad 2.0", (2, 1): "good 2.1"}

class Model:
    name = "test/child"
    async def complete(self, request, hear=None):
        here = current_draw()
        print("asked", here.branch, here.round, flush=True)
        if held and here.branch == 0 and here.round == 1:
            await asyncio.Event().wait()
        said = SAYS[here.branch, here.round]
        if isinstance(said, Exception):
            raise said
        return Reply(said)
    async def close(self):
        pass

async def main():
    async with abreast.open_run("r", store=path, seed=3) as run:
        found = await abreast.sample("Say.", model=Model(), run=run, breadth=3, depth=2,
                                     checks=[lambda text: text.startswith("good")])
        print("won", found.text, *(type(error).__name__ for error in found.errors), flush=True)

asyncio.run(main())
"""


def started(path, how):
    command = [sys.executable, "-c", CHILD, str(path), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_killed_during_a_draw_before_an_error_for_all_the_resumed_sample_has_the_same_winner(
    tmp_path,
):
    path = tmp_path / "runs.db"
    with started(path, "held") as child:
        asked = set()
        while {"asked 0 1", "asked 1 1"} - asked:
            asked.add(child.stdout.readline().strip())
        while not ended_branch(path, 1):
            assert child.poll() is None
        child.kill()
    with started(path, "free") as child:
        lines = child.stdout.read().splitlines()
    assert lines[-1] == "won good 0.1 Refused Refused KeyRefused"
    assert "asked 0 1" in lines
    assert not [
        line for line in lines if line.startswith(("asked 1", "asked 0 0"))
    ]  # recorded draws are not repeated


def ended_branch(path, branch):
    """Whether the end of a branch is on disk."""
    with closing(SqliteStore(path)) as store:
        found = store.events("r-1", kinds={"item-settled"}, limit=100)
    return any(event.path.endswith(f"/branch/{branch:04}") for event in found)


async def test_a_strategy_of_ones_own_sees_the_draws_that_came_to_nothing():
    class Mine(Rejection):
        def next(self, question, history):
            seen.append([(one.state, one.reason) for one in history.attempts])
            return super().next(question, history)

    seen = []
    await drawn(scheduled(laid_out({0: {0: Refused, 1: GOOD}}), [0] * 16), depth=2, strategy=Mine())
    assert seen == [[], [("error", "0.0")]]
