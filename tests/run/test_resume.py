"""Going on with a run: what is recorded stands, and what changed is noticed."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import threading
import warnings

import pytest

import abreast
from abreast.core.errors import (
    Halted,
    ItemChanged,
    KeyReused,
    NoSuchRun,
    OutcomeUnknown,
    RecordedError,
    RunBusy,
)
from abreast.core.events import Event, count_read, items_read
from abreast.run.map.journal import FunctionChanged
from abreast.run.map.recorded_input import InputIncomplete
from abreast.store.port import Driver
from abreast.store.sqlite.store import SqliteStore
from abreast.store.writer import WriterIntervals
from abreast.testing import Gate, MemoryStore
from tests.turns import until


@dataclasses.dataclass(frozen=True)
class Reply:
    text: str
    score: float


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runs.db")
    yield store
    store.close()


class Counting:
    """Work that counts how often each item ran."""

    def __init__(self, fails=()):
        self.ran = []
        self.fails = set(fails)

    async def work(self, item):
        self.ran.append(item)
        for _ in range(5 - item % 5):
            await asyncio.sleep(0)
        if item in self.fails:
            raise LookupError(f"no {item}")
        return Reply(f"reply {item}", item / 3)


def told(outcome):
    error = getattr(outcome, "error", None)
    return (
        outcome.index,
        outcome.key,
        outcome.state,
        getattr(outcome, "value", None),
        error and type(error),
        str(error),
    )


async def run_once(store, job, items=range(10), stop_after=None, resume="auto", **options):
    outcomes = []
    async with abreast.open_run("job", store=store, resume=resume, seed=1) as run:
        async for outcome in run.map(job.work, items, **{"width": 3, **options}):
            outcomes.append(outcome)
            if stop_after is not None and len(outcomes) == stop_after:
                raise KeyboardInterrupt
    return outcomes


async def interrupted(store, job, stop_after=4, **options):
    with pytest.raises(KeyboardInterrupt):
        await run_once(store, job, stop_after=stop_after, **options)


async def test_the_first_time_too_the_caller_gets_the_decoded_value(store):
    given = {"a": (1, 2)}

    class Job(Counting):
        async def work(self, item):
            return given

    (outcome,) = await run_once(store, Job(), items=[0])
    assert outcome.value == given
    assert outcome.value is not given


async def test_an_interrupted_run_goes_on_without_running_recorded_items_again(store):
    job = Counting(fails={2})
    await interrupted(store, job)
    assert store.get("job-1").state == "interrupted"
    recorded = {r.data["index"] for r in store.outcomes("job-1") if r.data["state"] != "cancelled"}
    before = list(job.ran)
    outcomes = await run_once(store, job)
    assert [o.index for o in outcomes] == list(range(10))
    assert outcomes[3].value == Reply("reply 3", 1.0)
    assert not recorded & set(job.ran[len(before) :])
    assert store.get("job-1").state == "done"
    assert store.newest("job").id == "job-1"


async def test_a_resumed_run_returns_what_an_undisturbed_one_does(store):
    calm = await run_once(MemoryStore(), Counting(fails={2, 7}))
    job = Counting(fails={2, 7})
    await interrupted(store, job, stop_after=5)
    again = await run_once(store, job)
    assert [told(o)[:4] for o in again] == [told(o)[:4] for o in calm]
    assert isinstance(again[2].error, RecordedError)
    assert str(again[2].error) == "LookupError: no 2"
    assert "in work" in again[2].error.trace


async def test_a_run_that_ended_is_followed_by_a_new_one(store):
    await run_once(store, Counting())
    await run_once(store, Counting())
    assert [row.id for row in store.runs()] == ["job-2", "job-1"]


async def test_never_starts_a_new_run_and_must_needs_an_unfinished_one(store):
    job = Counting()
    await interrupted(store, job)
    await run_once(store, job, resume="never")
    assert store.newest("job").id == "job-2"
    with pytest.raises(NoSuchRun, match="no unfinished run named 'job'"):
        await run_once(store, job, resume="must")
    with pytest.raises(NoSuchRun, match="no run named 'other'"):
        async with abreast.open_run("other", store=store, resume="must"):
            pass


async def test_recorded_failures_are_kept_unless_asked_to_be_retried(store):
    job = Counting(fails={1})
    await interrupted(store, job)
    job.fails.clear()
    kept = await run_once(store, job)
    assert kept[1].state == "failed"
    retried = await run_once(store, job, resume="retry")
    assert [o.state for o in retried] == ["done"] * 10
    assert job.ran.count(1) == 2
    assert store.newest("job").id == "job-1"


async def test_items_that_changed_are_named(store):
    job = Counting()
    await interrupted(store, job, items=list(range(10)))
    changed = [0, 11, 22, *range(3, 10)]
    with pytest.raises(ItemChanged, match="items 0001, 0002 changed"):
        await run_once(store, job, items=changed)


async def test_items_with_keys_of_their_own_may_move(store):
    class Keyed(Counting):
        async def work(self, item):
            return await super().work(int(item[1:]))

    job = Keyed()
    items = [f"i{n}" for n in range(10)]
    await interrupted(store, job, items=items, key=str)
    ran = len(job.ran)
    outcomes = await run_once(store, job, items=list(reversed(items)), key=str)
    assert [o.key for o in outcomes] == list(reversed(items))
    assert [o.index for o in outcomes] == list(range(10))
    assert len(job.ran) - ran <= 6


async def test_a_changed_function_is_warned_about(store):
    async def work(item):
        return item

    with pytest.raises(KeyboardInterrupt):
        async with abreast.open_run("job", store=store) as run:
            await run.map(work, [1], width=1).values()
            raise KeyboardInterrupt

    async def other(item):
        return item + 1

    other.__name__ = "work"
    async with abreast.open_run("job", store=store) as run:
        with pytest.warns(FunctionChanged, match="job/work: the function changed"):
            assert await run.map(other, [1], width=1).values() == [1]


async def test_until_is_replayed_and_what_ran_past_it_is_speculative(store):
    job = Counting()
    outcomes = await run_once(store, job, items=range(100), until=3, width=6)
    assert [o.index for o in outcomes] == [0, 1, 2]
    (stopped,) = store.events("job-1", kinds={"map-stopped"})
    assert stopped.data == {"at": 2, "reason": "until"}
    beyond = [r for r in store.outcomes("job-1") if r.data["index"] > 2]
    assert beyond
    assert all(r.data["state"] == "done" or r.data.get("speculative") for r in beyond)
    asked = []

    def enough(outcome):
        asked.append(outcome.index)
        return outcome.index == 5

    async with abreast.open_run("job", store=store, run_id="job-1") as run:
        again = [o.index async for o in run.map(job.work, range(100), width=6, until=enough)]
    assert again == asked == list(range(6))


async def test_a_once_step_in_flight_at_the_crash_is_unknown_and_not_repeated(store):
    row = store.begin(
        "job", kind="script", seed=1, manifest={}, tags=[], driver=Driver(1, "here", 0.0)
    )
    store.commit(
        row.id,
        row.epoch,
        [
            Event(1, "map-started", "job/charge", 0.0, 0.0),
            Event(2, "item-started", "job/charge", 0.0, 0.0, data={"index": 0, "attempt": 1}),
        ],
        {},
    )
    store.let_go(row.id)
    ran = []

    async def charge(amount):
        ran.append(amount)
        return amount

    async with abreast.open_run("job", store=store) as run:
        with pytest.raises(OutcomeUnknown, match="job/charge was in flight when its driver died"):
            await run.step("charge", charge, 5, effect="once")
    assert ran == []
    async with abreast.open_run("job", store=store, resume="retry") as run:
        assert await run.step("charge", charge, 5, effect="once") == 5
    assert ran == [5]


async def test_the_start_of_a_once_step_is_on_disk_before_it_runs():
    store = MemoryStore()
    seen = []

    async def charge(amount):
        seen.extend(event.kind for event in store.events("job-1"))
        return amount

    async with abreast.open_run("job", store=store) as run:
        assert await run.map(charge, [1, 2], width=1, effect="once").values() == [1, 2]
    assert "item-started" in seen


async def test_an_outcome_is_on_disk_before_the_caller_sees_it(store):
    job = Counting()
    async with abreast.open_run("job", store=store) as run:
        async for outcome in run.map(job.work, range(30), width=4):
            path = f"job/work/{outcome.key}"
            assert store.recorded("job-1", [path])[path].data["index"] == outcome.index


async def test_steps_and_nested_maps_are_recorded_under_their_paths(store):
    ran = []

    async def leaf(item):
        ran.append(abreast.current().path)
        return item

    async def branch(item):
        scope = abreast.current().run
        first = await scope.step("first", leaf, item)
        return first + sum(await scope.map(leaf, range(2), width=2, name="leaves").values())

    async def main():
        async with abreast.open_run("job", store=store) as run:
            values = await run.map(branch, [10, 20], width=1).values()
            if len(ran) == 6:
                raise KeyboardInterrupt
            return values

    with pytest.raises(KeyboardInterrupt):
        await main()
    ran.append("again")
    assert await main() == [11, 21]
    assert ran[6:] == ["again"]
    beneath = ("first", "leaves/0000", "leaves/0001")
    assert set(ran[:6]) == {
        f"job/branch/{branch_:04d}/{name}" for branch_ in range(2) for name in beneath
    }


async def test_two_drivers_in_one_process_are_refused_too(store):
    async with abreast.open_run("job", store=store):
        with pytest.raises(RunBusy, match="process"):
            async with abreast.open_run("job", store=store):
                pass


async def test_outcomes_far_ahead_wait_on_disk_and_come_back_the_same(store):
    gate = Gate()

    async def work(item):
        if item == 0:
            await gate.pass_(item)
        if item == 50:
            gate.open(0)
        return {"item": item}

    async with abreast.open_run("job", store=store) as run:
        outcomes = [o async for o in run.map(work, range(200), width=3, span=150, until=120)]
    assert [o.value for o in outcomes] == [{"item": n} for n in range(120)]


async def test_what_cannot_be_stored_is_that_items_failure_and_names_it(store):
    async def work(item):
        return object() if item == 1 else item

    async with abreast.open_run("job", store=store) as run:
        outcomes = [o async for o in run.map(work, range(3), width=2)]
    assert [o.state for o in outcomes] == ["done", "failed", "done"]
    assert "job/work/0001" in str(outcomes[1].error)


async def test_values_are_redacted_before_they_are_written(store):
    async def work(item):
        return f"secret {item}"

    hide = lambda path, value: value.replace("secret", "***")  # noqa: E731
    async with abreast.open_run("job", store=store, redact=hide) as run:
        assert await run.map(work, [1], width=1).values() == ["*** 1"]
    assert "secret" not in str(store.events("job-1"))


async def test_a_cancel_request_is_carried_out_by_the_driver(store):
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    async def main():
        async with abreast.open_run("job", store=store) as run:
            await run.map(work, range(5), width=2).values()

    waiting = asyncio.ensure_future(main())
    await gate.wait_for(0, 1)
    store.ask("job-1", "cancel", {"reason": "changed my mind"}, 0.0)
    with pytest.raises(abreast.core.errors.CancelRequested, match="changed my mind"):
        await waiting
    assert store.get("job-1").state == "cancelled"
    assert store.asked("job-1") == []
    assert gate.arrived == [0, 1]


async def test_the_manifest_says_what_to_start_again(store):
    async with abreast.open_run(
        "job", store=store, tags=["nightly"], manifest={"note": "mine"}
    ) as run:
        assert run.id == "job-1"
    row = store.get("job-1")
    assert row.tags == ("nightly",)
    assert {"script", "argv", "cwd", "abreast", "python", "commit", "note"} <= set(row.manifest)


async def test_an_exception_in_the_block_makes_the_run_failed_and_resumable(store):
    job = Counting()
    with pytest.raises(ZeroDivisionError):
        async with abreast.open_run("job", store=store) as run:
            await run.map(job.work, range(3), width=2).values()
            raise ZeroDivisionError("a bug of mine")
    row = store.get("job-1")
    assert (row.state, row.reason) == ("failed", "ZeroDivisionError: a bug of mine")
    async with abreast.open_run("job", store=store) as run:
        assert run.resumed
        assert len(await run.map(job.work, range(3), width=2).values()) == 3
    assert len(job.ran) == 3


async def test_custom_keys_are_watched_over_the_whole_map_with_a_store(store):
    async def work(item):
        return item

    async with abreast.open_run("job", store=store) as run:
        with pytest.raises(KeyReused):
            await run.map(work, [*range(500), 3], width=2, span=4, key=str).values()


async def read_from(store, job, items, stop=None):
    async with abreast.open_run("job", store=store) as run:
        seen = []
        async for outcome in run.map(job.work, run.intake("lines", items), width=2, span=4):
            seen.append(outcome.index)
            if len(seen) == stop:
                raise KeyboardInterrupt
        return seen


async def test_a_pipe_is_journaled_ahead_of_the_work_so_that_resuming_needs_it_no_more(store):
    job, read_all = Counting(), threading.Event()

    def lines():
        yield from range(1200)
        read_all.set()

    with pytest.raises(KeyboardInterrupt):
        async with abreast.open_run("job", store=store) as run:
            async for _ in run.map(job.work, run.intake("lines", lines()), width=2, span=4):
                await asyncio.to_thread(
                    read_all.wait, 60
                )  # the caller is slow; the reading goes on
                for _ in range(20):
                    await asyncio.sleep(0)
                await until(lambda: store.events("job-1", kinds={"items-complete"}))
                raise KeyboardInterrupt
    assert len(job.ran) <= 5
    assert await read_from(store, job, iter(())) == list(range(1200))
    assert max(map(job.ran.count, range(1200))) <= 2


async def test_a_pipe_that_was_not_read_to_its_end_must_be_handed_in_again(store):
    job, never = Counting(), threading.Event()

    def lines():
        yield from range(200)
        never.wait(60)

    with pytest.raises(KeyboardInterrupt):
        await read_from(store, job, lines(), stop=30)
    never.set()
    with pytest.raises(InputIncomplete, match="hand them in again"):
        await read_from(store, job, iter(()))
    with pytest.raises(InputIncomplete, match="item 0 is not the one read before"):
        await read_from(store, job, iter(range(1, 301)))
    assert await read_from(store, job, iter(range(300))) == list(range(300))
    assert max(map(job.ran.count, range(300))) <= 4


async def test_items_that_cannot_be_journaled_or_read_are_clear_errors(store):
    job = Counting()
    with pytest.raises(abreast.core.errors.CannotStore, match="job/lines/0001"):
        await read_from(store, job, [1, object()])

    def broken():
        yield 1
        raise OSError("the pipe broke")

    with pytest.raises(OSError, match="the pipe broke"):
        async with abreast.open_run("other", store=store) as run:
            await run.map(job.work, run.intake("lines", broken()), width=1).values()


async def test_a_run_in_memory_takes_an_intake_as_it_is():
    async def work(item):
        return item

    async with abreast.open_run("job") as run:
        assert await run.map(work, run.intake("lines", range(4)), width=2).values() == [0, 1, 2, 3]


async def test_the_journal_survives_a_hook_of_warnings(store):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await run_once(store, Counting())
    assert store.get("job-1").state == "done"


@pytest.mark.parametrize("fresh", [0, 40, 1 << 20])
async def test_piped_items_come_in_their_order_whether_kept_in_memory_or_read_back(
    fresh, monkeypatch
):
    monkeypatch.setattr("abreast.run.map.recorded_input.BUFFER_CHARACTERS", fresh)
    store = MemoryStore()

    async def some(number, resume, total):
        seen = []
        async with abreast.open_run("pipe", store=store, resume=resume) as run:
            async for item in run.intake("lines", (f"line {n}" for n in range(total))):
                seen.append(item)
                if len(seen) == number:
                    run.halt("enough")
                    break
        return seen

    with contextlib.suppress(Halted):
        assert await some(30, "never", 500) == [f"line {n}" for n in range(30)]
    assert await some(None, "must", 500) == [f"line {n}" for n in range(500)]


def read_events(store, run_id):
    return store.events(run_id, kinds={"item-read"}, prefix="pipe/lines", limit=10_000)


async def echo(line):
    return line


async def pipe_all(store, lines, resume="never", width=3, work=echo, **options):
    async with abreast.open_run("pipe", store=store, resume=resume) as run:
        return await run.map(work, run.intake("lines", lines), width=width, **options).values()


async def test_lines_that_come_faster_than_they_are_journaled_share_an_event(store):
    lines = [f"line {number}\nof {number}" for number in range(101)]
    working, read_all = threading.Event(), threading.Event()

    def all_at_once():
        yield lines[0]
        working.wait(60)
        yield from lines[1:]
        read_all.set()

    async def work(line):
        working.set()
        read_all.wait(60)  # the loop takes nothing in until all are read
        return line

    async with abreast.open_run("pipe", store=store) as run:
        assert await run.map(work, run.intake("lines", all_at_once()), width=3).values() == lines
    events = read_events(store, "pipe-1")
    assert [(event.path, dict(event.data), count_read(event)) for event in events] == [
        ("pipe/lines/0000", {"index": 0}, 1),
        ("pipe/lines/0001", {"index": 1, "count": 100}, 100),
    ]
    assert [items_read(event) for event in events] == [
        (0, [json.dumps(lines[0])]),
        (1, [json.dumps(line) for line in lines[1:]]),
    ]


async def test_long_lines_have_events_of_their_own(store):
    lines = [letter * 10_000 for letter in "abcdef"]
    assert await pipe_all(store, lines) == lines
    assert [count_read(event) for event in read_events(store, "pipe-1")] == [1] * 6


@pytest.mark.parametrize("before", [0, 60, 1 << 14])
@pytest.mark.parametrize("after", [0, 60, 1 << 14])
async def test_an_input_is_read_on_however_many_lines_share_an_event(
    store, before, after, monkeypatch
):
    """With 0 each line has an event of its own, as in stores of earlier versions."""
    lines = [f"line {number}" for number in range(300)]

    def cut_off():
        yield from lines[:250]
        raise OSError("cut off")

    monkeypatch.setattr("abreast.run.map.recorded_input.EVENT_CHARACTERS", before)
    with pytest.raises(OSError, match="cut off"):
        await pipe_all(store, cut_off())
    monkeypatch.setattr("abreast.run.map.recorded_input.EVENT_CHARACTERS", after)
    with pytest.raises(InputIncomplete, match="item 77 is not the one read before"):
        await pipe_all(store, [*lines[:77], "another", *lines[78:]], resume="must")
    assert await pipe_all(store, lines, resume="must") == lines
    assert [text for event in read_events(store, "pipe-1") for text in items_read(event)[1]] == [
        json.dumps(line) for line in lines
    ]


async def test_recorded_lines_are_looked_up_many_at_once(monkeypatch):
    store, asked = MemoryStore(), []
    lines = [f"line {number}" for number in range(640)]
    with contextlib.suppress(Halted):
        async with abreast.open_run("pipe", store=store) as run:
            await run.map(
                asyncio.sleep, run.intake("lines", [0] * 640), width=8, name="work"
            ).values()
            run.halt("enough")
    recorded = store.recorded

    def look(run_id, paths):
        asked.append(len(paths))
        return recorded(run_id, paths)

    monkeypatch.setattr(store, "recorded", look)
    async with abreast.open_run("pipe", store=store, resume="must") as run:
        assert (
            await run.map(asyncio.sleep, run.intake("lines", ()), width=8, name="work").values()
            == [None] * 640
        )
    assert sum(asked) == len(lines)
    assert len(asked) <= 30


async def test_recorded_lines_past_one_that_is_not_are_looked_up_too(store):
    gates, ran = [Gate(), Gate()], []

    async def work(line):
        ran.append(line)
        if line == 0:
            await gates[0].pass_(line)
        return line

    with pytest.raises(KeyboardInterrupt):
        async with abreast.open_run("pipe", store=store) as run:
            async with run.map(
                work, run.intake("lines", range(200)), width=2, span=200, name="work"
            ):
                while await asyncio.to_thread(lambda: len(store.outcomes("pipe-1"))) < 199:
                    pass
                raise KeyboardInterrupt
    gates.pop(0)
    async with abreast.open_run("pipe", store=store, resume="must") as run:
        async with run.map(
            work, run.intake("lines", ()), width=1, span=200, name="work"
        ) as outcomes:
            await gates[0].wait_for(0)
            gates[0].open_all()
            assert [outcome.value async for outcome in outcomes] == list(range(200))
    assert sorted(ran) == [0, *range(200)]


@pytest.mark.parametrize("stored", [True, False])
async def test_lines_at_hand_start_up_to_the_width_and_never_past_it(stored):
    gate, most = Gate(), []

    async def work(line):
        most.append(len(gate.held))
        await gate.pass_(line)
        return line

    async with abreast.open_run("pipe", store=MemoryStore() if stored else None) as run:
        async with run.map(work, run.intake("lines", range(40)), width=4, span=40) as outcomes:
            for number in range(37):
                await gate.wait_for(*range(number, number + 4))
                assert gate.arrived == list(range(number + 4))
                gate.open(number)
            gate.open_all()
            assert [outcome.value async for outcome in outcomes] == list(range(40))
    assert (outcomes.peak, max(most)) == (4, 3)


async def test_a_line_whose_key_was_used_or_cannot_be_made_ends_the_map_in_its_place(store):
    def lines():
        yield from range(50)

    with pytest.raises(KeyReused, match="two items have the key '0'"):
        await pipe_all(store, lines(), width=2, key=lambda line: str(line % 47))
    seen = []
    async with abreast.open_run("pipe", store=store, resume="never") as run:
        with pytest.raises(ZeroDivisionError):
            outcomes = run.map(
                echo, run.intake("lines", lines()), width=2, key=lambda line: str(6 / (line - 9))
            )
            async for outcome in outcomes:
                seen.append(outcome.value)
    assert seen == list(range(9))


@pytest.mark.parametrize(
    ("bound", "most"), [("MAX_ITEMS_AHEAD", 120), ("MAX_CHARACTERS_AHEAD", 120 * len('"000000"'))]
)
async def test_an_endless_pipe_is_journaled_only_so_far_ahead_of_the_work(
    store, bound, most, monkeypatch
):
    monkeypatch.setattr(f"abreast.run.map.recorded_input.{bound}", most)

    def journaled():
        return sum(map(count_read, read_events(store, "pipe-1")))

    async with abreast.open_run("pipe", store=store) as run:
        endless = (f"{number:06}" for number in itertools.count())
        async with run.map(echo, run.intake("lines", endless), width=2, span=4) as outcomes:
            values = []
            async for outcome in outcomes:
                values.append(outcome.value)
                if len(values) == 50:
                    while await asyncio.to_thread(journaled) < 50 + 120:
                        pass
                    for _ in range(60):  # long enough to read a hundred more each time
                        await asyncio.to_thread(lambda: None)
                    assert (
                        journaled() <= 50 + 4 + 120 + 200
                    )  # what was under way when it was far enough
                if len(values) == 700:
                    break
    assert values == [f"{number:06}" for number in range(700)]


async def test_a_line_starts_only_when_it_is_journaled():
    reading, go_on, ran = threading.Event(), threading.Event(), []

    class Slow(MemoryStore):
        def commit(self, run_id, epoch, events, spent):
            if any(event.kind == "item-read" for event in events):
                reading.set()
                assert go_on.wait(60)
            super().commit(run_id, epoch, events, spent)

    async def work(line):
        ran.append(line)
        return line

    async with abreast.open_run("pipe", store=Slow()) as run:
        async with run.map(work, run.intake("lines", range(3)), width=3) as outcomes:
            assert await asyncio.to_thread(reading.wait, 20)
            for _ in range(50):
                await asyncio.sleep(0)
            before = list(ran)
            go_on.set()
            assert before == []
            assert [outcome.value async for outcome in outcomes] == [0, 1, 2]


@pytest.mark.parametrize("kind", [dict, list])
async def test_a_value_is_as_it_was_recorded_whatever_becomes_of_it_afterwards(store, kind):
    shared = kind()

    async def work(item):
        shared.update(item=item) if kind is dict else shared.append(item)
        return shared

    async with abreast.open_run("job", store=store) as run:
        values = await run.map(work, range(3), width=1).values()
    assert values == (
        [{"item": 0}, {"item": 1}, {"item": 2}] if kind is dict else [[0], [0, 1], [0, 1, 2]]
    )


@pytest.mark.parametrize("options", [{"on_error": "halt"}, {"on_error": "raise"}, {"until": 1}, {}])
async def test_an_item_that_may_end_the_map_keeps_its_place_until_that_is_on_disk(options):
    flushing, flush, ran = threading.Event(), threading.Event(), []

    class Slow(MemoryStore):
        def sync(self):
            flushing.set()
            assert flush.wait(60)

    async def work(item):
        ran.append(item)
        if "on_error" in options:
            raise LookupError
        return item

    with contextlib.suppress(LookupError):
        async with abreast.open_run("job", store=Slow()) as run:
            async with run.map(work, range(2), width=1, **options) as outcomes:
                assert await asyncio.to_thread(flushing.wait, 20)
                for _ in range(50):
                    await asyncio.sleep(0)
                before = list(ran)
                flush.set()
                assert before == ([0] if options else [0, 1])
                assert [outcome.index async for outcome in outcomes] == list(range(len(ran)))
    assert ran == ([0] if options else [0, 1])


@pytest.mark.parametrize("span", [3, 60])
@pytest.mark.parametrize("count", [1, 4, 50])
async def test_a_map_that_has_nothing_to_do_but_to_wait_for_the_disk_does_not_wait_for_company(
    store, span, count, monkeypatch
):
    monkeypatch.setattr("abreast.run.claim.WRITER_INTERVALS", WriterIntervals(flush=3600.0))
    job = Counting()
    async with asyncio.timeout(60):
        assert [
            told(one)[0] for one in await run_once(store, job, items=range(count), span=span)
        ] == [*range(count)]


async def test_nor_does_one_that_can_start_nothing_more_while_an_item_is_still_at_work(
    store, monkeypatch
):
    monkeypatch.setattr("abreast.run.claim.WRITER_INTERVALS", WriterIntervals(flush=3600.0))
    far = asyncio.Event()

    class Job(Counting):
        async def work(self, item):
            far.set() if item == 20 else None
            await far.wait() if item == 0 else None
            return await super().work(item)

    async with asyncio.timeout(60):
        outcomes = await run_once(store, Job(), items=range(30), span=3, order="completion")
    assert sorted(told(one)[0] for one in outcomes) == [*range(30)]
