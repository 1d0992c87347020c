"""Requirements of maestro for a matrix, listed in docs/requirements.md, without other tests."""

import asyncio
import sqlite3
import threading
from collections import Counter
from contextlib import closing

import pytest

import abreast
from abreast.core.clock import sleep_until
from abreast.jobs.matrix.job import Matrix
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.jobs.matrix.spec import CellChoice
from abreast.models.port import Reply
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.jobs.matrix.benches import FakeBench, simple, study
from tests.turns import until


def answer(prompt):
    return f"T{prompt[-1]}"


BOTH = {"a/one": answer, "b/two": answer}


async def go(made, bench, store, *, width=2, **opening):
    matrix = Matrix(made, bench, CellChoice(), width=width)
    async with abreast.open_run(made.name, store=store, **opening) as run:
        await matrix.run(run)
    return matrix


def rows(store):
    run = store.newest("s")
    return {row.cell: row for row in rows_of(store, run)} if run else {}


def slots(count):
    return [lambda: abreast.Slots(count)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


# --- one writer -----------------------------------------------------------------------------------


async def test_every_insert_of_a_matrix_comes_from_one_thread_and_no_strategy_or_score_is_on_it(
    path,
):
    made_by, seen = set(), Counter()

    class Watched(SqliteStore):
        def commit(self, *given, **more):
            seen[threading.get_ident()] += 1
            return super().commit(*given, **more)

    def steps(value, model):
        made_by.add(threading.get_ident())
        return value["text"]

    def score(row):
        made_by.add(threading.get_ident())
        return 1.0

    made = study(
        """
matrix:
  name: s
  models: [a/one, b/two]
  strategies: {plain: {prompt: "say {{ input.text }}"}, own: {python: "m:steps"}}
  inputs: [{id: i0, text: "0"}, {id: i1, text: "1"}, {id: i2, text: "2"}]
  repeats: 4
  scores: [{python: "m:score"}]
""",
        codes={"m:steps": "", "m:score": ""},
    )
    bench = InThreads(BOTH, functions={"m:steps": steps, "m:score": score})
    with closing(Watched(path)) as store:
        await go(made, bench, store, width=4)
        assert len(rows(store)) == 48
    assert len(seen) == 1
    assert made_by
    assert not made_by & set(seen)


class InThreads(FakeBench):
    """A bench whose functions run in threads, as plain ones do."""

    async def call(self, name, *given):
        return await asyncio.to_thread(self.functions[name], *given)


async def test_two_hundred_workers_and_a_reader_never_meet_a_locked_database(path):
    together = asyncio.Barrier(200)

    async def all_at_once(_):
        await together.wait()

    looks, over = [], threading.Event()

    def read():
        while not over.is_set():
            with closing(sqlite3.connect(path, timeout=0)) as db:
                looks.append(db.execute("SELECT count(*) FROM events").fetchone()[0])

    made = simple(models=["a/one"], inputs=50, repeats=4)
    bench = FakeBench({"a/one": answer}, limits=slots(200), gate=all_at_once)
    with closing(SqliteStore(path)) as store:
        reader = threading.Thread(target=read)
        reader.start()
        try:
            matrix = await go(made, bench, store, width=200)
        finally:
            over.set()
            reader.join()
        found = rows(store)
    assert (matrix.tally.done, matrix.tally.failed, len(found)) == (400, 0, 400)
    assert bench.counts["a"].peak == 200
    assert looks == sorted(looks)  # and none of them was refused


async def test_cells_are_on_disk_as_they_finish_and_not_at_the_end(path):
    gate = Gate()
    bench = FakeBench({"a/one": answer}, limits=slots(2), gate=gate.pass_)
    made = simple(models=["a/one"], inputs=4, repeats=1)
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        done = asyncio.ensure_future(go(made, bench, store))
        for count in range(1, 9):
            await until(lambda: gate.held)
            gate.open(min(gate.held))
            await until(lambda so_far=count: len(rows(other)) == so_far)
        await done


async def test_a_row_is_whole_or_not_there_and_a_paid_reply_is_not_paid_again():
    gate, store = Gate(), MemoryStore()

    async def score(row):
        await gate.pass_(row["output"])
        return 1.0

    made = study(
        """
matrix:
  name: s
  models: [a/one]
  strategies: {plain: {prompt: "say {{ input.text }}", max_tokens: 7}}
  inputs: [{id: i0, text: text 0, truth: T0}]
  scores: [exact, {python: "m:score"}]
""",
        codes={"m:score": ""},
    )
    first = FakeBench({"a/one": answer}, functions={"m:score": score})
    done = asyncio.ensure_future(go(made, first, store))
    await gate.wait_for("T0")  # the reply is paid for, and one of two scores is known
    done.cancel()
    await asyncio.gather(done, return_exceptions=True)
    assert rows(store) == {}

    gate.open_all()
    again = FakeBench({"a/one": answer}, functions={"m:score": score})
    await go(made, again, store, resume="must", run_id="s-1")
    [row] = rows(store).values()
    assert (first.asked, again.asked) == (1, 0)
    assert (row.output, row.scores, [step.output for step in row.steps]) == (
        "T0",
        {"exact": 1.0, "python": 1.0},
        ["T0"],
    )
    settled = [
        event.path
        for event in each_event(store, "s-1", {"item-settled"})
        if event.data["state"] == "done"
    ]
    assert settled == ["s/a/a%2Fone~plain~i0~0/reply", "s/a/a%2Fone~plain~i0~0"]


# --- lanes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 3])
async def test_each_provider_has_one_cap_with_so_many_permits_and_its_models_share_it(width):
    gate = Gate()
    models = dict.fromkeys(("a/one", "a/two", "b/one"), answer)
    bench = FakeBench(models, limits=slots(width), gate=gate.pass_)
    done = asyncio.ensure_future(go(simple(models=list(models)), bench, MemoryStore(), width=width))
    await until(lambda: len(gate.held) == 2 * width)
    for _ in range(2000):
        await asyncio.sleep(0)
    assert Counter(who.partition("/")[0] for who in gate.held) == {"a": width, "b": width}
    gate.open_all()
    await done
    assert {lane: count.peak for lane, count in bench.counts.items()} == {"a": width, "b": width}


async def test_cells_finish_in_an_interleaved_order():
    gate, store = Gate(), MemoryStore()
    bench = FakeBench({"a/one": answer}, limits=slots(4), gate=gate.pass_)
    made = simple(models=["a/one"], inputs=2, repeats=1)
    done = asyncio.ensure_future(go(made, bench, store, width=4))
    await until(lambda: len(gate.held) == 4)
    begun = list(gate.arrived)
    for count, who in enumerate(reversed(begun), 1):
        gate.open(who)
        await until(lambda ended=count: len(rows(store)) == ended)
    await done
    settled = [
        event.path
        for event in each_event(store, "s-1", {"item-settled"})
        if event.path.count("/") == 2
    ]
    ended = [path.partition("~")[2] for path in settled]
    cells = [f"{cell.strategy.name}~{cell.input.id}~{cell.repeat}" for cell in made.cells("a")]
    assert ended == cells[::-1]


class InTime:
    """A model whose calls take a number of seconds of a virtual clock."""

    def __init__(self, name, clock, latency):
        self.name, self._clock, self._latency = name, clock, latency
        self.prompts = []
        self.answered = 0

    def is_busy(self, width, calls):
        """Whether it has all the calls that it can have now."""
        return len(self.prompts) == min(self.answered + width, calls)

    async def complete(self, request, hear=None):
        self.prompts.append(request)
        await sleep_until(self._clock, self._clock.now() + self._latency)
        self.answered += 1
        return Reply("T0", seconds=self._latency)

    async def close(self):
        pass


async def test_a_matrix_takes_the_time_of_its_slowest_lane_and_a_duration_has_no_waiting_in_it():
    clock, store = ManualClock(), MemoryStore()
    bench = FakeBench(BOTH, limits=slots(2), clock=clock)
    bench.models = {"a/one": InTime("a/one", clock, 1.0), "b/two": InTime("b/two", clock, 4.0)}
    # 20 cells in each lane: one by one they take 100 s, the slower lane alone 40 s.
    made = simple(inputs=5, repeats=2)
    done = asyncio.ensure_future(go(made, bench, store, clock=clock))
    # A cell also waits for a thread of its store, which takes none of this clock's time.
    while not done.done():
        due = clock.next_due
        ready = due is not None and all(model.is_busy(2, 20) for model in bench.models.values())
        await (clock.advance(max(0.0, due - clock.now())) if ready else asyncio.sleep(0))
    assert clock.now() == 40.0
    found = rows(store).values()
    assert {(row.lane, row.service_s) for row in found} == {("a", 1.0), ("b", 4.0)}
    assert max(row.queue_s for row in found) > 0


async def test_the_permit_is_held_for_the_call_alone_and_controls_take_none():
    calls, scores, store = Gate(), Gate(), MemoryStore()

    async def score(row):
        if row["output"] == "T0":
            await scores.pass_(row["output"])
        return 1.0

    made = study(
        """
matrix:
  name: s
  models: [a/one]
  strategies: {plain: {prompt: "say {{ input.text }}"}}
  inputs: [{id: i0, text: text 0, truth: T0}, {id: i1, text: text 1, truth: T1}]
  scores: [{python: "m:score"}]
  controls: [empty]
""",
        codes={"m:score": ""},
    )
    bench = FakeBench(
        {"a/one": answer}, functions={"m:score": score}, limits=slots(1), gate=calls.pass_
    )
    done = asyncio.ensure_future(go(made, bench, store, width=1))
    await until(lambda: len(rows(store)) == 2)  # both controls, while the lane's one place is taken
    assert calls.held == {"a/one: say text 0"}
    calls.open("a/one: say text 0")
    await scores.wait_for("T0")
    await calls.wait_for("a/one: say text 1")  # it is asked while the first is being scored
    calls.open_all()
    scores.open_all()
    await done
    assert len(rows(store)) == 4
    assert bench.counts["a"].peak == 1


async def test_one_failing_strategy_never_loses_another_ones_row():
    made = study(
        """
matrix:
  name: s
  models: [a/one, b/two]
  strategies: {fine: {prompt: "say {{ input.text }}"}, broken: {python: "m:f"},
    steps: {python: "m:g"}}
  inputs: [{id: i0, text: text 0, truth: T0}, {id: i1, text: text 1, truth: T1}]
  repeats: 3
  scores: [exact]
""",
        codes={"m:f": "f", "m:g": "g"},
    )

    async def broken(value, model):
        await model.ask(f"draft {value['text']}", step="draft")
        raise RuntimeError(value["text"])

    async def steps(value, model):
        await model.ask(f"draft {value['text']}", step="draft")
        return await model.ask(f"better {value['text']}", step="better")

    seen = []
    for width in (1, 2, 8):
        store = MemoryStore()
        matrix = await go(
            made, FakeBench(BOTH, functions={"m:f": broken, "m:g": steps}), store, width=width
        )
        found = rows(store)
        assert (matrix.tally.done, matrix.tally.failed, len(found)) == (24, 12, 36)
        assert {row.state for row in found.values() if row.strategy == "broken"} == {"failed"}
        fine = [row for row in found.values() if row.strategy != "broken"]
        assert {
            (row.state, row.scores["exact"], row.attempts == len(row.steps)) for row in fine
        } == {("done", 1.0, True)}
        kept = {key: [(step.name, step.output) for step in row.steps] for key, row in found.items()}
        assert kept["a/one~steps~i1~2"] == [("draft", "T1"), ("better", "T1")]
        assert kept["a/one~broken~i1~2"] == [("draft", "T1")]
        seen.append(kept)
    assert seen[0] == seen[1] == seen[2]


async def test_a_cell_that_fails_before_its_strategy_begins_is_a_row_too():
    class Tired:
        def now(self):
            raise RuntimeError("can't start new thread")

    store, bench = MemoryStore(), FakeBench(BOTH)
    bench.clock = Tired()
    made = simple(inputs=1, repeats=1, more="controls: [truth]")
    matrix = await go(made, bench, store)
    found = rows(store)
    assert (matrix.tally.failed, len(found), bench.asked) == (5, 5, 0)
    row = found["a/one~plain~i0~0"]
    assert (row.lane, row.model, row.strategy, row.input, row.repeat) == (
        "a",
        "a/one",
        "plain",
        "i0",
        0,
    )
    assert (row.state, row.error, row.error_type) == (
        "failed",
        "can't start new thread",
        "RuntimeError",
    )
    assert [row.control for row in found.values()].count(True) == 1
