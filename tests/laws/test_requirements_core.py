"""Requirements of the core in docs/requirements.md that no other test checks, on all paths."""

import ast
import asyncio
import contextvars
import gc
import inspect
import os
import select
import socket
import sqlite3
import subprocess
import sys
import threading
import traceback
import warnings
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import abreast
from abreast.core.errors import Halted, ItemsFailed, StoreError
from abreast.run.journal import Journal
from abreast.store.port import Store, each_event
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.executors.traces import open_files
from tests.turns import turns

SOURCE = Path(abreast.__file__).parent
STORE_METHODS = frozenset(
    name for name, _ in inspect.getmembers(Store, inspect.isfunction) if name[0] != "_"
)


@pytest.fixture(params=["in memory", "in a lane", "stored"])
def opening(request):
    """Ways to open a run: its items have no limits, a lane, or a journal."""
    return {
        "in memory": {},
        "in a lane": {"lanes": {"wide": abreast.Slots(1000)}},
        "stored": {"store": MemoryStore()},
    }[request.param]


def laned(opening):
    return {"lane": "wide"} if "lanes" in opening else {}


def others():
    return asyncio.all_tasks() - {asyncio.current_task()}


# --- context


@pytest.mark.parametrize("attempts", [1, 2])
async def test_what_an_item_sets_in_its_context_is_seen_by_no_other_item_and_no_later_attempt(
    opening, attempts
):
    who, barrier = contextvars.ContextVar("who"), asyncio.Barrier(3)
    who.set("the caller")

    async def work(item):
        found = who.get()
        who.set(f"item {item}")
        await barrier.wait()
        if abreast.current().attempt < attempts:
            raise ConnectionError("again")
        return found, who.get()

    options = {"retry": abreast.Retry(attempts - 1, base=0.0, cap=0.0)} if attempts > 1 else {}
    async with abreast.open_run("law", **opening) as run:
        values = await run.map(work, range(3), width=3, **laned(opening), **options).values()
    assert values == [("the caller", f"item {item}") for item in range(3)]
    assert who.get() == "the caller"


# --- what is cancelled


async def test_two_hundred_cancelled_items_leave_no_open_file_and_no_warning(opening):
    gate, before = Gate(), open_files()

    async def work(item):
        if item:
            near, far = socket.socketpair()
            with far:
                reader, writer = await asyncio.open_connection(sock=near)
                try:
                    gate.arrived.append(item)
                    await reader.read()
                finally:
                    writer.close()
                    await writer.wait_closed()
        await gate.pass_(item)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with abreast.open_run("law", **opening) as run:
            async with run.map(work, range(300), width=200, until=1, **laned(opening)) as outcomes:
                while len(gate.arrived) < 200:  # noqa: ASYNC110 - two hundred connections, one by one
                    await asyncio.sleep(0)
                assert len(open_files()) >= len(before) + 2 * 199
                gate.open(0)
                assert [outcome.index async for outcome in outcomes] == [0]
            assert open_files().items() <= before.items()
        gc.collect()
    assert caught == []
    assert len(gate.arrived) == 200


@pytest.mark.parametrize(
    "content", [b"this is no database" * 100, b"SQLite format 3\0" + b"x" * 5000]
)
def test_a_store_that_cannot_be_used_leaves_no_connection_unclosed(tmp_path, monkeypatch, content):
    opened, closed, connect = [], [], sqlite3.connect

    class Noted(sqlite3.Connection):
        def close(self):
            closed.append(self)
            super().close()

    def noted(*args, **options):
        opened.append(connect(*args, factory=Noted, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    (tmp_path / "runs.db").write_bytes(content)
    with pytest.raises(StoreError):
        SqliteStore(tmp_path / "runs.db")
    assert opened
    assert closed == opened


async def ended_by_until(run, mapped, gate):
    async with mapped as outcomes:
        await gate.wait_for(1, 2)
        gate.open(0)
        assert [outcome.index async for outcome in outcomes] == [0]


async def ended_by_leaving(run, mapped, gate):
    async with mapped:
        await gate.wait_for(1, 2)


async def ended_by_an_error(run, mapped, gate):
    with pytest.raises(LookupError):
        async with mapped:
            await gate.wait_for(1, 2)
            raise LookupError


async def ended_by_halting(run, mapped, gate):
    async with mapped as outcomes:
        await gate.wait_for(1, 2)
        run.halt("enough")
        with pytest.raises(Halted):
            await anext(outcomes)


async def ended_by_cancellation(run, mapped, gate):
    task = asyncio.ensure_future(mapped.values())
    await gate.wait_for(1, 2)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    "end",
    [ended_by_until, ended_by_leaving, ended_by_an_error, ended_by_halting, ended_by_cancellation],
)
async def test_cancelled_items_are_awaited_through_all_of_their_clean_up(opening, end):
    gate, cleaned = Gate(), set()

    async def work(item):
        try:
            await gate.pass_(item)
        finally:
            if item:
                await turns(200)
                cleaned.add(item)

    async with abreast.open_run("law", **opening) as run:
        until = 1 if end is ended_by_until else None
        await end(run, run.map(work, range(9), width=3, until=until, **laned(opening)), gate)
        if end is ended_by_cancellation:
            assert cleaned <= {1, 2}  # its caller is gone, and the run's own end is what waits
        else:
            assert cleaned == {1, 2}
            assert not others()
    assert cleaned == {1, 2}
    assert not others()


@pytest.mark.parametrize("stored", ["", "pure", "once"])
async def test_cancellation_at_any_point_returns_the_slot(stored):
    async def work(item):
        await turns(3)
        if abreast.current().attempt == 1:
            raise ConnectionError("again")
        await abreast.current().run.map(turns, [2], width=1, lane="api").values()

    async def main(api, tree):
        store = MemoryStore() if stored else None
        async with abreast.open_run("law", lanes={"api": api, "tree": tree}, store=store) as run:
            options = {"lane": "api", "hold": "tree", "effect": stored or "pure"}
            await run.map(
                work, range(5), width=3, retry=abreast.Retry(1, base=0, cap=0), **options
            ).values()

    seen = set()
    for count in range(60):
        api, tree = abreast.Slots(2), abreast.Pool(["north", "south"])
        task = asyncio.ensure_future(main(api, tree))
        await turns(count)
        seen.add(api.taken)
        task.cancel()
        await asyncio.wait([task])
        assert (api.taken, repr(tree)) == (0, "<Pool 0/2 out>"), f"cancelled after {count} turns"
        assert (api.line.users, tree.line.users) == (0, 0)
        assert not others()
    assert seen >= {0, 2}


class SlowDisk(MemoryStore):
    """Holds the first commit with an outcome in it until it is let go."""

    def __init__(self):
        super().__init__()
        self.reached, self.free = threading.Event(), threading.Event()

    def commit(self, run_id, epoch, events, spent):
        if any(event.kind == "item-settled" for event in events):
            self.reached.set()
            assert self.free.wait(60)
        super().commit(run_id, epoch, events, spent)


async def test_cancellation_while_the_outcome_of_a_nested_map_is_being_written_returns_the_slot():
    store, lane = SlowDisk(), abreast.Slots(1)

    async def leaf(item):
        return item

    async def work(item):
        await abreast.current().run.map(leaf, [1], width=1).values()

    async def main():
        async with abreast.open_run("law", lanes={"api": lane}, store=store) as run:
            await run.map(work, [0], width=1, hold="api").values()

    task = asyncio.ensure_future(main())
    await asyncio.to_thread(store.reached.wait, 20)
    task.cancel()
    await turns(20)
    store.free.set()
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()
    assert lane.taken == 0
    assert not others()


# --- errors


async def test_an_error_survives_the_clean_up_of_its_item_and_the_end_of_what_it_left_open(opening):
    boom, ended = LookupError("mine"), []

    async def leaf(item):
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(item)

    async def work(item):
        try:
            await abreast.current().run.map(leaf, range(2), width=2).__aenter__()
            await turns(2)
            raise boom
        finally:
            await turns(3)

    async with abreast.open_run("law", **opening) as run:
        outcomes = [outcome async for outcome in run.map(work, range(1), width=1, **laned(opening))]
        assert sorted(ended) == [0, 1]
    assert outcomes[0].error is boom
    assert [frame.name for frame in traceback.extract_tb(boom.__traceback__)][-1] == "work"


async def test_when_all_fail_none_is_dropped_and_the_first_in_item_order_is_the_cause(opening):
    errors = [LookupError(item) for item in range(6)]

    async def work(item):
        await turns(6 - item)
        raise errors[item]

    async with abreast.open_run("law", **opening) as run:
        with pytest.raises(ItemsFailed) as caught:
            await run.map(work, range(6), width=4, **laned(opening)).values()
    assert list(caught.value.errors) == errors
    assert caught.value.__cause__ is errors[0]


@pytest.mark.parametrize(
    "kind", [ValueError, ConnectionError, SystemExit, asyncio.CancelledError, TimeoutError]
)
async def test_at_width_one_an_error_comes_out_as_the_plain_loop_would_have_raised_it(
    opening, kind
):
    async def work(item):
        if item == 2:
            try:
                raise KeyError("the first trouble")
            except KeyError as cause:
                raise kind("the second") from cause
        return item

    async def plain_loop():
        for item in range(5):
            yield await work(item)

    async def mapped():
        async with abreast.open_run("law", **opening) as run:
            async for outcome in run.map(
                work, range(5), width=1, on_error="raise", **laned(opening)
            ):
                yield outcome.value

    told = []
    for values in (plain_loop(), mapped()):
        seen = []
        with pytest.raises(kind) as caught:
            async for value in values:
                seen.append(value)
        error = caught.value
        cause, innermost = error.__cause__, traceback.extract_tb(error.__traceback__)[-1]
        told.append(
            (
                seen,
                type(error),
                error.args,
                type(cause),
                cause.args,
                innermost.name,
                innermost.lineno,
            )
        )
        assert getattr(error, "__notes__", []) == []
    assert told[0] == told[1]


async def test_an_error_raised_at_its_place_cancels_what_is_outstanding_and_starts_nothing_more(
    opening,
):
    gate, cancelled = Gate(), []

    async def work(item):
        try:
            await gate.pass_(item)
        except asyncio.CancelledError:
            await turns(50)
            cancelled.append(item)
            raise
        if item == 1:
            raise LookupError("the second item")
        return item

    async def consume(mapped):
        async for outcome in mapped:
            seen.append(outcome.value)

    seen = []
    async with abreast.open_run("law", **opening) as run:
        mapped = run.map(work, range(20), width=4, on_error="raise", **laned(opening))
        task = asyncio.ensure_future(consume(mapped))
        await gate.wait_for(0, 1, 2, 3)
        gate.open(1)
        while len(cancelled) < 2:  # noqa: ASYNC110 - two items clean up in turns of the loop
            await asyncio.sleep(0)
        assert sorted(cancelled) == [2, 3]
        assert (seen, gate.held) == ([], {0})  # it is not raised before its turn
        gate.open(0)
        with pytest.raises(LookupError, match="the second item"):
            await task
        assert seen == [0]
        assert sorted(cancelled) == [2, 3]
        assert not others()
    assert gate.arrived == [0, 1, 2, 3]


# --- the peak


@pytest.mark.parametrize("plain", [False, True])
async def test_the_peak_is_counted_where_items_really_run(opening, plain):
    width, lock, inside, seen = 4, threading.Lock(), Counter(), []
    barrier = threading.Barrier(width) if plain else asyncio.Barrier(width)

    def enter():
        with lock:
            inside["now"] += 1
            seen.append(inside["now"])

    def leave():
        with lock:
            inside["now"] -= 1

    def in_a_thread(item):
        enter()
        try:
            barrier.wait(60)
            raise LookupError(item)
        finally:
            leave()

    async def in_a_task(item):
        enter()
        try:
            await barrier.wait()
            raise LookupError(item)
        finally:
            leave()

    async with abreast.open_run("law", **opening) as run:
        mapped = run.map(
            in_a_thread if plain else in_a_task, range(5 * width), width=width, **laned(opening)
        )
        assert [outcome.state async for outcome in mapped] == ["failed"] * 5 * width
    assert mapped.peak == max(seen) == width
    assert inside["now"] == 0
    if "store" in opening:
        (ended,) = opening["store"].events("law-1", kinds={"map-ended"})
        assert ended.data["peak"] == width


async def returns(clock):
    return "fine"


async def fails(clock):
    raise LookupError("no")


async def fails_once(clock):
    if abreast.current().attempt == 1:
        raise ConnectionError("again")


async def exits(clock):
    raise SystemExit(3)


async def cancels_itself(clock):
    raise asyncio.CancelledError


async def is_cancelled_by_a_friend(clock):
    asyncio.current_task().cancel()
    await asyncio.Event().wait()


async def takes_too_long(clock):
    asyncio.get_running_loop().call_soon(clock.advance_nowait, 10.0)
    await asyncio.Event().wait()


async def returns_what_no_store_takes(clock):
    return object()


@pytest.mark.parametrize(
    "leave",
    [
        returns,
        fails,
        fails_once,
        exits,
        cancels_itself,
        is_cancelled_by_a_friend,
        takes_too_long,
        returns_what_no_store_takes,
    ],
)
@pytest.mark.parametrize("stored", [False, True])
async def test_a_place_is_given_back_on_every_way_out(stored, leave):
    clock, lane = ManualClock(), abreast.Slots(1)

    async def work(item):
        return await leave(clock) if item < 3 else "reached"

    retry = abreast.Retry(1, base=0.0, cap=0.0) if leave is fails_once else None
    store = MemoryStore() if stored else None
    async with abreast.open_run("law", clock=clock, lanes={"one": lane}, store=store) as run:
        mapped = run.map(work, range(4), width=1, lane="one", timeout=5.0, retry=retry)
        advancing = asyncio.ensure_future(_move(clock)) if retry else None
        outcomes = [outcome async for outcome in mapped]
        if advancing is not None:
            advancing.cancel()
    assert outcomes[3].value == "reached"
    assert (mapped._scheduler.window.executing, mapped.peak) == (0, 1)
    assert (lane.taken, lane.peak) == (0, 1)


async def _move(clock):
    while True:
        await asyncio.sleep(0)
        clock.advance_nowait(0.001)


@pytest.mark.parametrize("stored", [False, True])
async def test_waiting_for_a_permit_is_no_part_of_the_service_time(stored):
    clock, store = ManualClock(), MemoryStore() if stored else None

    async def work(item):
        woken = asyncio.Event()
        clock.call_at(clock.now() + 2.0, woken.set)
        await woken.wait()

    async with abreast.open_run(
        "law", clock=clock, lanes={"one": abreast.Slots(1)}, store=store
    ) as run:
        async with run.map(work, range(3), width=3, lane="one") as outcomes:
            async for outcome in _moved(outcomes, clock):
                assert outcome.timing.service == (2.0,)
                assert outcome.timing.waited == 2.0 * outcome.index
    if store is not None:
        async with abreast.open_run(
            "law", store=store, run_id="law-1", lanes={"one": abreast.Slots(1)}
        ) as run:
            again = [
                outcome.timing async for outcome in run.map(work, range(3), width=3, lane="one")
            ]
        assert [(timing.service, timing.waited) for timing in again] == [
            ((2.0,), 2.0 * n) for n in range(3)
        ]


async def _moved(outcomes, clock):
    """The outcomes, with time going on whenever nothing else does."""
    while True:
        coming = asyncio.ensure_future(anext(outcomes, None))
        while not coming.done():
            await turns(20)
            if clock.next_due is not None and not coming.done():
                clock.advance_nowait(clock.next_due - clock.now())
        if coming.result() is None:
            return
        yield coming.result()


# --- order


async def test_completion_forced_in_reverse_by_a_chain_of_events_changes_no_order(opening):
    count = 6
    ended, completed = [asyncio.Event() for _ in range(count + 1)], []
    ended[count].set()

    async def work(item):
        await ended[item + 1].wait()
        completed.append(item)
        ended[item].set()
        return item

    async with abreast.open_run("law", **opening) as run:
        assert await run.map(work, range(count), width=count, **laned(opening)).values() == list(
            range(count)
        )
    assert completed == list(reversed(range(count)))


def test_completion_of_threads_forced_in_reverse_changes_no_order():
    count = 6
    ended, completed = [threading.Event() for _ in range(count + 1)], []
    ended[count].set()

    def work(item):
        assert ended[item + 1].wait(60)
        completed.append(item)
        ended[item].set()
        return item

    assert [outcome.value for outcome in abreast.map(work, range(count), width=count)] == list(
        range(count)
    )
    assert completed == list(reversed(range(count)))


# --- children


async def test_items_that_wait_for_a_blocking_child_process_overlap_up_to_the_width():
    came, coming = os.pipe()
    held, holding = os.pipe()

    def work(item):
        command = ["sh", "-c", "echo $0; read nothing; exit $0", str(item)]
        return subprocess.run(command, stdin=held, stdout=coming, check=False).returncode

    def is_there_another(seconds):
        return bool(select.select([came], [], [], seconds)[0])

    def hear(count):
        return sorted(int(os.read(came, 2)) for _ in range(count) if is_there_another(20))

    async with abreast.open_run("law") as run, run.map(work, range(8), width=4, span=8) as outcomes:
        assert await asyncio.to_thread(hear, 4) == [0, 1, 2, 3]  # all four wait at once
        assert not is_there_another(0)
        os.close(holding)  # every `read` comes to its end
        assert [outcome.value async for outcome in outcomes] == list(range(8))
    assert outcomes.peak == 4
    for end in (came, coming, held):
        os.close(end)


# --- the journal: one writer, one door, whole records


@pytest.fixture
def watched(tmp_path):
    """A store on disk that notes which thread calls what."""

    class Watched(SqliteStore):
        def __init__(self, path):
            self.calls = Counter()
            super().__init__(path)

        def __getattribute__(self, name):
            if name in STORE_METHODS:
                self.calls[name, threading.get_ident()] += 1
            return super().__getattribute__(name)

    with closing(Watched(tmp_path / "runs.db")) as store:
        yield store


async def test_one_thread_writes_and_no_worker_ever_touches_the_store(watched):
    barrier, workers = threading.Barrier(8), set()

    def leaf(item):
        workers.add(threading.get_ident())
        return item

    def work(item):
        workers.add(threading.get_ident())
        barrier.wait(60)
        if item % 5 == 4:
            raise LookupError(item)
        return [outcome.value for outcome in abreast.map(leaf, range(3), width=2)]

    async with abreast.open_run("law", store=watched) as run:
        await run.step("first", leaf, 1)
        outcomes = [outcome async for outcome in run.map(work, range(80), width=8)]
    assert Counter(outcome.state for outcome in outcomes) == {"done": 64, "failed": 16}
    threads = {thread for name, thread in watched.calls if name != "sync"}  # which writes nothing
    writers = {thread for name, thread in watched.calls if name == "commit"}
    assert len(workers) >= 8
    assert not workers & threads
    assert len(writers) == 1
    assert threads == writers | {threading.get_ident()}  # it opens the run, and closes it
    recorded = {
        event.path for event in each_event(watched, "law-1") if event.kind == "item-settled"
    }
    leaves = {
        f"law/work/{item:04d}/leaf/{n:04d}" for item in range(80) if item % 5 != 4 for n in range(3)
    }
    assert recorded == {"law/first"} | {f"law/work/{item:04d}" for item in range(80)} | leaves


def calls_in(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func)


def test_every_record_goes_through_one_door():
    calls = {
        (path.relative_to(SOURCE).as_posix(), call)
        for path in SOURCE.rglob("*.py")
        for call in calls_in(path)
        if call.endswith((".commit", "writer.write", "_writer.write"))
    }
    assert calls == {
        ("run/journal.py", "self.writer.write"),
        ("store/writer.py", "self._store.commit"),
        ("testing/crash.py", "self._store.commit"),  # forwards what the commit writer commits
        ("worktrees/results/item_trees.py", "snapshots.commit"),  # a commit of git
    }


@pytest.mark.parametrize("plain", [False, True])
async def test_records_of_concurrent_items_are_numbered_on_one_thread_and_written_whole(
    watched, plain, monkeypatch
):
    threads, emit = set(), Journal.emit

    def noted(self, *args, **options):
        threads.add(threading.get_ident())
        emit(self, *args, **options)

    monkeypatch.setattr(Journal, "emit", noted)

    def write(item):
        for number in range(20):
            abreast.current().note("said", item=item, number=number, text=f"{item}" * 5000)

    def in_a_thread(item):
        write(item)

    async def in_a_task(item):
        await asyncio.sleep(0)
        write(item)

    async with abreast.open_run("law", store=watched) as run:
        await run.map(in_a_thread if plain else in_a_task, range(30), width=6, name="work").values()
    assert threads == {threading.get_ident()}
    events = list(each_event(watched, "law-1"))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    said = [event for event in events if event.kind == "said"]
    assert all(event.path == f"law/work/{event.data['item']:04d}" for event in said)
    assert all(event.data["text"] == f"{event.data['item']}" * 5000 for event in said)
    for item in range(30):
        assert [event.data["number"] for event in said if event.data["item"] == item] == list(
            range(20)
        )


async def test_what_is_recorded_is_what_an_item_returned_though_others_change_it_afterwards(
    watched,
):
    shared, gate = {}, Gate()

    async def work(item):
        await gate.pass_(item)
        shared[f"by {item}"] = ["x"] * 1000
        return shared

    async with abreast.open_run("law", store=watched) as run:
        async with run.map(work, range(6), width=6) as outcomes:
            await gate.wait_for(*range(6))
            for item in (3, 1, 5, 0, 2, 4):
                gate.open(item)
                await turns(3)
            sizes = [len(outcome.value) async for outcome in outcomes]
    assert sizes == [4, 2, 5, 1, 6, 3]
    async with abreast.open_run("law", store=watched, run_id="law-1") as run:
        again = [len(outcome.value) async for outcome in run.map(work, range(6), width=6)]
    assert again == sizes


# --- guards


class Guards:
    """Watches the locks that are made during a test, directly or inside events and semaphores."""

    def __init__(self):
        self.taken = 0
        self.nested = set()
        self._held = threading.local()

    def holding(self):
        return self._held.__dict__.setdefault("locks", [])

    def enter(self, lock):
        self.taken += 1
        self.nested.update((outer.made, lock.made) for outer in self.holding() if outer is not lock)
        self.holding().append(lock)

    def leave(self, lock):
        if lock in self.holding():  # another thread may let go of it
            self.holding().remove(lock)

    def watching(self, make):
        """A kind of lock that tells this about itself."""
        guards = self

        class Watching:
            def __init__(self):
                self.lock = make()
                self.made = sys._getframe(1).f_code.co_filename

            def acquire(self, *args, **options):
                got = self.lock.acquire(*args, **options)
                if got:
                    guards.enter(self)
                return got

            def release(self):
                guards.leave(self)
                self.lock.release()

            def locked(self):
                return self.lock.locked()

            def __enter__(self):
                return self.acquire()

            def __exit__(self, *error):
                self.release()

        return Watching


@pytest.fixture
def guards(monkeypatch):
    watching = Guards()
    for kind in ("Lock", "RLock"):
        monkeypatch.setattr(threading, kind, watching.watching(getattr(threading, kind)))
    return watching


@pytest.mark.parametrize(("stored", "most"), [(False, 0), (True, 3)])
async def test_a_sequential_run_pays_next_to_nothing_for_guards(guards, stored, most):
    async def work(item):
        return item

    async def cost(count):
        before = guards.taken
        async with abreast.open_run("law", store=MemoryStore() if stored else None) as run:
            assert len(await run.map(work, range(count), width=1).values()) == count
        return guards.taken - before

    threading.Semaphore().acquire()
    assert guards.taken == 1
    assert await cost(105) - await cost(5) <= 100 * most


async def test_while_items_run_nobody_who_holds_a_guard_waits_for_another(guards, tmp_path):
    outer, inner, seen = threading.Lock(), threading.Lock(), []
    with outer, inner:
        assert guards.nested == {(__file__, __file__)}

    def work(item):
        if item % 3 == 2:
            raise LookupError(item)
        return item

    with closing(SqliteStore(tmp_path / "runs.db")) as store:
        async with abreast.open_run("law", store=store, hooks=[seen.append]) as run:
            guards.nested.clear()
            assert len([outcome async for outcome in run.map(work, range(60), width=6)]) == 60
            found = {pair for pair in guards.nested if any("abreast" in file for file in pair)}
    # From Python 3.14 on a handle has a lock of its own, which is held while its callback runs.
    assert {pair for pair in found if not pair[0].endswith("asyncio/events.py")} == set()
    assert len(seen) >= 120
