"""Samples over real HTTP through the whole stack, against a server that records every request."""

import asyncio
import re
from contextlib import closing
from dataclasses import replace
from itertools import count

import pytest

import abreast
from abreast.core.errors import BranchesFailed, KeyRefused
from abreast.jobs.sample.checks import check, check_only, contains
from abreast.jobs.sample.strategies import Rejection, Repair
from abreast.models.lanes import read_lanes
from abreast.models.port import Message
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import open_storm
from tests.executors.traces import run_and_leave_nothing

SHAPES = ("openai", "anthropic", "gemini")
AT_ONCE = abreast.Retry(2, base=0.0, cap=0.0)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("STORM_KEY", "sk-none")


def opened(url, shape="openai", width=8):
    """A model of the test server, by one of the protocols that it speaks."""
    lane = {
        "base_url": url + ("/v1beta" if shape == "gemini" else "/v1"),
        "api_key_env": "STORM_KEY",
        "width": width,
        "price": {"input": 1.0, "output": 2.0},
    }
    return abreast.open_model(
        f"{shape}/storm", lanes=read_lanes({shape: lane}, "abreast.toml"), retry=AT_ONCE
    )


def settled(path, run_id="r-1"):
    with closing(SqliteStore(path)) as store:
        return store.events(run_id, kinds={"call-settled"}, limit=1000)


class Stalled(Rejection):
    """These branches ask something that the server never answers."""

    def __init__(self, *branches):
        object.__setattr__(self, "branches", branches)

    def next(self, question, history):
        turn = super().next(question, history)
        if history.branch not in self.branches:
            return turn
        return replace(turn, messages=(Message("user", f"fault-stall {question.text}"),))


# --- an early success


@pytest.mark.parametrize("shape", SHAPES)
def test_after_an_early_success_no_request_is_in_flight_and_losers_are_recorded_with_their_cost(
    shape, tmp_path
):
    path = tmp_path / "runs.db"

    async def main():
        async with open_storm() as storm:
            before = asyncio.all_tasks()
            model = opened(storm.url, shape)

            async def when_all_draw(text):
                await storm.until(lambda stats: stats.in_flight == 3)
                return True

            branches = set()

            class Noted(Stalled):
                """Records the tasks in which the branches draw."""

                async def next(self, question, history):
                    branches.add(asyncio.current_task())
                    return super().next(question, history)

            async with abreast.open_run("r", store=path) as run:
                result = await abreast.sample(
                    "Say.",
                    model=model,
                    run=run,
                    breadth=4,
                    depth=3,
                    max_tokens=40,
                    strategy=Noted(1, 2, 3),
                    checks=[check(when_all_draw, "waits")],
                )
                # When the sample is over, no task and no request of the server is pending.
                assert len(branches) == 4
                assert all(task.done() for task in branches)
                assert not branches & asyncio.all_tasks()
                await storm.until(lambda stats: stats.disconnects == 3)
                assert storm.stats().in_flight == 0
                assert storm.stats().arrived == 4
            await model.close()
            assert not {
                task for task in asyncio.all_tasks() - before if "RequestHandler" not in repr(task)
            }
            return result

    result = run_and_leave_nothing(main)
    assert (result.ok, result.winner.branch, result.counts.started, result.counts.cancelled) == (
        True,
        0,
        4,
        3,
    )
    assert [attempt.state for attempt in result.attempts] == [
        "passed",
        "cancelled",
        "cancelled",
        "cancelled",
    ]
    lost = [attempt.usage for attempt in result.attempts[1:]]
    assert all(usage.requests == 1 and usage.estimate and usage.usd > 0 for usage in lost)
    assert result.usage.requests == 4
    events = settled(path)
    assert sorted(event.data["state"] for event in events) == ["cancelled"] * 3 + ["done"]
    for event in events:
        if event.data["state"] == "cancelled":
            assert (event.data["estimate"], event.data["output_tokens"]) == (True, 40)
            assert event.data["usd"] > 0


async def test_a_draw_that_raises_for_all_leaves_no_request_in_flight():
    class Refuses(Stalled):
        """Answers every first draw; then refuses the key of branch 0 and never answers others."""

        def next(self, question, history):
            if history.branch == 0 and history.attempts:
                return replace(
                    Rejection().next(question, history), messages=(Message("user", "fault-401"),)
                )
            return (
                super().next(question, history)
                if history.attempts
                else Rejection().next(question, history)
            )

    async with open_storm() as storm, opened(storm.url) as model:

        async def when_all_draw(text):
            if abreast.current_draw().branch == 0:
                await storm.until(lambda stats: stats.in_flight == 2 and stats.arrived == 5)
            return False

        with pytest.raises(KeyRefused):
            await abreast.sample(
                "Say.",
                model=model,
                breadth=3,
                depth=2,
                strategy=Refuses(1, 2),
                checks=[check(when_all_draw, "waits")],
            )
        await storm.until(lambda stats: stats.disconnects == 2)
        assert storm.stats().in_flight == 0


# --- limits


@pytest.mark.parametrize(
    "limits",
    [
        {"rpm": 60, "burst": 2, "minute": 3.0},
        {"rpm": 60, "burst": 2, "minute": 3.0, "headers": "absent"},
        {"concurrency": 4, "latency": 0.4, "minute": 3.0},
    ],
    ids=["rpm", "without headers", "concurrency"],
)
async def test_what_passes_alone_on_a_limited_server_passes_side_by_side_and_a_429_uses_no_round(
    limits,
):
    """A repair always passes and a first draw never does, so at depth 2 no round may be lost."""

    number = count()

    def says(prompt):
        return "good" if "does not meet" in prompt else f"bad {next(number)}"

    async def drawn(breadth):
        async with open_storm(script=says, **limits) as storm, opened(storm.url, width=8) as model:
            result = await abreast.sample(
                "Say.",
                model=model,
                breadth=breadth,
                depth=2,
                strategy=Repair(),
                checks=[check_only(contains("good"))],
            )
            await storm.until(lambda stats: stats.in_flight == 0)
            return result, storm.stats()

    alone, _ = await drawn(1)
    assert (alone.ok, alone.winner.round) == (True, 1)
    wide, stats = await drawn(8)
    assert (wide.ok, wide.winner.branch, wide.winner.round) == (True, 0, 1)
    assert stats.rejected > 0  # the server did limit
    assert wide.errors == ()
    assert wide.counts.failed == 0
    firsts = [attempt for attempt in wide.attempts if attempt.round == 0]
    assert [attempt.state for attempt in firsts] == [
        "failed"
    ] * 8  # each draw was made; none was given up for a 429
    # Only admitted requests are paid: a rejection is no draw.
    assert stats.admitted <= wide.counts.started
    assert sum(attempt.usage.requests for attempt in wide.attempts) >= stats.ok


# --- errors


async def test_a_server_that_fails_in_one_branch_is_listed_beside_the_winner_of_another():
    class Broken(Rejection):
        def next(self, question, history):
            asked = "fault-500" if history.branch == 0 else question.text
            return replace(super().next(question, history), messages=(Message("user", asked),))

    async with open_storm() as storm, opened(storm.url) as model:
        result = await abreast.sample("Say.", model=model, breadth=2, strategy=Broken())
        assert (result.ok, result.winner.branch) == (True, 1)
        assert [type(error).__name__ for error in result.errors] == ["ServerFault"]
        assert storm.stats().arrived == 1 + 3  # a 500 is retried within its one draw

        class All(Broken):
            def next(self, question, history):
                return replace(
                    super().next(question, history), messages=(Message("user", "fault-500"),)
                )

        with pytest.raises(BranchesFailed, match="2 of 2 raised") as told:
            await abreast.sample("Say.", model=model, breadth=2, strategy=All())
        assert type(told.value.__cause__).__name__ == "ServerFault"
        assert [attempt.state for attempt in told.value.attempts] == ["error", "error"]


# --- the same whatever the delays


async def test_the_winner_and_its_text_are_the_same_at_every_width_and_with_noise_on_the_line():
    """Replies depend on the seed alone, and come in another order each time."""
    found = []
    for width, noise in [(1, 0.0), (4, 0.0), (4, 0.03), (8, 0.05), (2, 0.01)]:
        async with open_storm(noise=noise) as storm, opened(storm.url, width=width) as model:
            result = await abreast.sample(
                "Say.",
                model=model,
                breadth=4,
                depth=4,
                seed=7,
                checks=[lambda text: bool(re.match("[a-d]", text))],
            )
            found.append((result.ok, result.winner.branch, result.winner.round, result.text))
            assert result.timing_dependent == frozenset()
    assert len(set(found)) == 1
    assert found[0][0]


class Unlucky(Rejection):
    """At these (branch, round), asks for something that the server answers with a fault."""

    def __init__(self, faults):
        object.__setattr__(self, "faults", faults)

    def next(self, question, history):
        fault = self.faults.get((history.branch, len(history.attempts)))
        turn = super().next(question, history)
        return (
            turn if fault is None else replace(turn, messages=(Message("user", f"fault-{fault}"),))
        )


@pytest.mark.parametrize("shape", SHAPES)
async def test_refused_empty_and_broken_replies_and_an_html_page_change_only_their_own_draw(
    shape,
):
    """Twelve schedules: each fault is a draw's own, but the last, which is past the winner."""
    faults = {
        (0, 0): "html",
        (1, 0): "refusal",
        (2, 0): "empty",
        (3, 0): "malformed",
        (0, 1): "huge",
        (2, 1): "401",
    }
    good, found = (
        check_only(check(lambda text: abreast.current_draw().round == 1, "in round 1")),
        set(),
    )
    for width, noise in [(1, 0.0), (4, 0.0), (4, 0.05), (2, 0.02)] * 3:
        async with open_storm(noise=noise) as storm, opened(storm.url, shape, width=width) as model:
            result = await abreast.sample(
                "Say.",
                model=model,
                breadth=4,
                depth=2,
                seed=7,
                checks=[good],
                strategy=Unlucky(faults),
            )
            before = [one for one in result.attempts if (one.round, one.branch) <= (1, 1)]
            states = tuple((one.branch, one.round, one.state, one.error) for one in before)
            found.add((result.ok, result.winner.branch, result.winner.round, result.text, states))
            assert result.timing_dependent == frozenset()
    assert len(found) == 1
    ok, branch, number, _, states = found.pop()
    assert (ok, branch, number) == (True, 1, 1)
    assert [state for *_, state, _ in states] == [
        "error",
        "error",
        "error",
        "passed",
        "error",
        "error",
    ]


async def test_two_samples_side_by_side_share_nothing_but_the_lane():
    strategy, number, asked = Repair(), count(), []

    def says(prompt):
        asked.append(prompt)
        return f"reply to {re.search('topic (.)', prompt)[1]}, {next(number)}"

    async with (
        open_storm(script=says) as storm,
        opened(storm.url) as model,
        abreast.open_run("r") as run,
    ):

        async def one(topic):
            result = await abreast.sample(
                f"About topic {topic}.",
                model=model,
                breadth=2,
                depth=2,
                strategy=strategy,
                checks=[contains("nothing")],
            )
            return [attempt.text for attempt in result.attempts]

        texts = await run.map(one, ["a", "b"], width=2).values()
    for topic, own in zip("ab", texts, strict=True):
        assert [text.startswith(f"reply to {topic}, ") for text in own] == [True] * 4
        repaired = [
            prompt for prompt in asked if "does not meet" in prompt and f"topic {topic}" in prompt
        ]
        assert sorted(re.findall("reply to .*", "\n".join(repaired))) == sorted([own[0], own[2]])
