"""Lanes in virtual time: each reaches its width, and one that hangs delays no other."""

import asyncio
import math
from collections import Counter
from contextlib import suppress

import pytest

import abreast
from abreast.core.errors import BudgetSpent
from abreast.jobs.matrix.job import Matrix
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.jobs.matrix.report.accounts import balance
from abreast.jobs.matrix.spec import CellChoice
from abreast.models.price import FlatPrice
from abreast.testing import ManualClock, MemoryStore
from tests.jobs.matrix.benches import FakeBench, simple
from tests.jobs.matrix.worlds import NEVER, Provider, answered, pass_time, worlds

LANES = "abcde"
WIDTH = 3
SECONDS = {"a": 1.0, "b": 2.0, "c": 5.0, "d": 3.0, "e": 4.0}
HUNG = "c"
INTERLEAVED = [f"{lane}/{number}" for number in (1, 2) for lane in LANES]
CLUSTERED = sorted(INTERLEAVED)
# Cells of a lane of width 2: those in work, and those that end while others are counted.
MOST_HELD = 30


def bench_of(models, made, clock, *, width, **more):
    bench = FakeBench(
        dict.fromkeys(models, None), limits=[lambda: abreast.Slots(width)], clock=clock, **more
    )
    bench.models = {
        name: Provider(name, made[name.partition("/")[0]], clock, answer) for name in models
    }
    return bench


def answer(prompt):
    return f"T{prompt[-1]}" if prompt.startswith("say") else "loud"


def rows(store):
    return {row.cell: row for row in rows_of(store, store.newest("s"))}


async def stop_early(made, store, count):
    """Run a first driver without hung providers until its budget is spent: some cells are done."""
    clock = ManualClock()
    bench = bench_of(
        [model.name for model in made.models],
        worlds(dict.fromkeys(LANES, 1.0), clock),
        clock,
        width=2,
    )
    async with abreast.open_run("s", store=store, clock=clock, budget=f"{count}req") as run:
        work = asyncio.ensure_future(Matrix(made, bench, CellChoice(), width=2).run(run))
        await pass_time(clock, work.done)
        with suppress(BudgetSpent):
            await work
    return Counter(row.lane for row in rows(store).values())


@pytest.mark.parametrize("order", ["interleaved", "clustered", "resumed"])
async def test_with_one_lane_hung_the_other_four_end_at_their_ideal_time(order):
    made = simple(models=CLUSTERED if order == "clustered" else INTERLEAVED, inputs=4, repeats=3)
    store, known, clock = MemoryStore(), Counter(), ManualClock()
    if order == "resumed":
        known = await stop_early(made, store, 71)
        assert all(0 < known[lane] < 48 for lane in LANES)
        assert len(set(known.values())) > 1  # and not of each as many
    left = {lane: 48 - known[lane] for lane in LANES}

    providers = worlds(SECONDS | {HUNG: NEVER}, clock, concurrency=WIDTH)
    bench = bench_of([model.name for model in made.models], providers, clock, width=WIDTH)

    def all_busy():
        """Whether each lane has all the requests under way that it can have."""
        return all(
            world.stats().in_flight == min(WIDTH, left[lane] - answered(world))
            for lane, world in providers.items()
        )

    def four_are_over():
        return (
            all(matrix.tally.lanes[lane].done == 48 for lane in LANES if lane != HUNG)
            if matrix.tally.lanes
            else False
        )

    matrix = Matrix(made, bench, CellChoice(), width=WIDTH)
    opening = {"resume": "must", "run_id": "s-1"} if known else {}
    with pytest.raises(asyncio.CancelledError):
        async with abreast.open_run("s", store=store, clock=clock, **opening) as run:
            work = asyncio.ensure_future(matrix.run(run))
            await pass_time(clock, four_are_over, all_busy)
            stats = {lane: world.stats() for lane, world in providers.items()}
            work.cancel()
            await work

    ended = {
        lane: max(entry.t_end for entry in providers[lane].ledger.entries)
        for lane in LANES
        if lane != HUNG
    }
    assert ended == {
        lane: math.ceil(left[lane] / WIDTH) * SECONDS[lane] for lane in LANES if lane != HUNG
    }
    assert {lane: seen.peak_in_flight for lane, seen in stats.items()} == dict.fromkeys(
        LANES, WIDTH
    )
    assert {lane: seen.arrived for lane, seen in stats.items()} == {**left, HUNG: WIDTH}
    assert sum(seen.rejected for seen in stats.values()) == 0


async def test_service_times_are_the_servers_and_parts_add_up_and_rows_are_the_same_at_any_width():
    seen = {}
    for width in (1, 4, 64):
        clock, store = ManualClock(), MemoryStore()
        faults = {"429": 0.15, "500": 0.1}
        providers = worlds({"a": 1.0, "b": 2.5}, clock, faults=faults, noise=3.0, per_token=0.1)
        models = ["a/1", "a/2", "b/1"]
        made = simple(models=models, inputs=9, repeats=1)
        bench = bench_of(
            models, providers, clock, width=width, price=FlatPrice(2.0, 5.0), retry=abreast.Retry(5)
        )
        async with abreast.open_run("s", store=store, clock=clock, seed=7) as run:
            work = asyncio.ensure_future(Matrix(made, bench, CellChoice(), width=width).run(run))
            await pass_time(clock, work.done)
            await work
        found = rows(store)
        assert len(found) == 54
        assert max(world.stats().peak_in_flight for world in providers.values()) <= width
        for row in found.values():
            parts = row.queue_s + row.hold_s + row.backoff_s + row.service_s
            assert parts == pytest.approx(row.wall_s, abs=1e-9)
            assert row.service_s == pytest.approx(
                bench.models[row.model].entries[row.prompt].service, abs=1e-9
            )
        assert sum(world.stats().rejected for world in providers.values()) > 0
        assert any(row.hold_s for row in found.values())
        assert any(row.backoff_s for row in found.values())
        seen[width] = {
            key: (
                row.state,
                row.output,
                row.input_tokens,
                row.output_tokens,
                row.usd,
                row.scores,
                row.attempts,
            )
            for key, row in found.items()
        }
    assert seen[1] == seen[4] == seen[64]
    assert all(cost > 0 for _, _, _, _, cost, _, _ in seen[1].values())
    assert {scores["exact"] for *_, scores, _ in seen[1].values()} == {0.0, 1.0}


@pytest.mark.parametrize("stop", [1, 4, 9, 15, 22, 29, 35])
async def test_stopped_at_any_time_arms_and_inputs_differ_by_one_repeat_at_most(stop):
    clock, store = ManualClock(), MemoryStore()
    providers = worlds({"a": 1.0}, clock, noise=5.0)
    models = ["a/1", "a/2", "a/3"]
    made = simple(models=models, inputs=2, repeats=3)
    bench = bench_of(models, providers, clock, width=3)
    async with abreast.open_run("s", store=store, clock=clock, budget=f"{stop}req") as run:
        work = asyncio.ensure_future(Matrix(made, bench, CellChoice(), width=3).run(run))
        await pass_time(clock, work.done)
        with pytest.raises(BudgetSpent):
            await work
    found = list(rows(store).values())
    assert len(found) == stop
    per_arm = Counter((row.model, row.strategy) for row in found)
    counts = [per_arm[model, strategy] for model in models for strategy in ("plain", "loud")]
    assert max(counts) - min(counts) <= 1
    assert balance(found).even


async def test_however_many_cells_there_are_only_as_many_are_held_as_lanes_are_wide():
    clock, store = ManualClock(), MemoryStore()
    providers = worlds({"a": 1.0, "b": 1.0}, clock)
    models = ["a/1", "b/1"]
    made = simple(models=models, inputs=100, repeats=2)
    bench = bench_of(models, providers, clock, width=2)
    held = []
    matrix = Matrix(
        made, bench, CellChoice(), width=2, told=lambda *_: held.append(len(matrix._open))
    )
    async with abreast.open_run("s", store=store, clock=clock) as run:
        work = asyncio.ensure_future(matrix.run(run))
        await pass_time(clock, work.done)
        await work
    assert len(held) == 800
    assert max(held) <= 2 * MOST_HELD
    assert (matrix._open, matrix._fresh) == ({}, set())
