"""What every store must hold to, run over each of them."""

import dataclasses
import math
import threading
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import DriverReplaced, NoSuchRun, RunBusy, RunExists, StoreError
from abreast.core.events import ITEM_READ, ITEM_SETTLED, ITEM_STARTED, ITEMS_COMPLETE, MAP_STARTED
from abreast.store.port import ControlRequest, Driver, RunRow, each_event, each_outcome
from tests.properties import tried
from tests.store.contract import ADAPTERS, ANN, BOB, begin, event, settled


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request):
    return request.param


@pytest.fixture
def store(adapter, tmp_path, request):
    store = adapter.open(request.getfixturevalue(adapter.url) if adapter.url else tmp_path)
    yield store
    store.close()


@pytest.fixture
def other(adapter, store):
    other = adapter.again(store)
    yield other
    other.close()


def test_a_new_run_is_all_that_was_said_of_it(store):
    row = begin(store, manifest={"argv": ["a", {"b": None}]}, tags=["x", "y"], seed=2**80)
    assert row == RunRow(
        "job-1",
        "job",
        "script",
        "running",
        2**80,
        1,
        100.0,
        driver=ANN,
        tags=("x", "y"),
        manifest={"argv": ["a", {"b": None}]},
    )
    assert store.get("job-1") == store.newest("job") == row


def test_a_new_run_may_have_an_id_of_its_own_and_no_two_have_one(store):
    assert begin(store, "nightly-2", run_id="nightly-2").id == "nightly-2"
    with pytest.raises(RunExists, match="there is a run 'nightly-2' already"):
        begin(store, "other", run_id="nightly-2")
    assert [begin(store, "nightly").id for _ in range(3)] == ["nightly-1", "nightly-3", "nightly-4"]
    with pytest.raises(RunExists):
        begin(store, "nightly", run_id="nightly-1")
    assert store.newest("nightly-2").id == "nightly-2"
    assert [row.id for row in store.runs()] == ["nightly-4", "nightly-3", "nightly-1", "nightly-2"]


def test_runs_are_counted_by_name_and_a_number_is_never_used_again(store):
    assert [begin(store, name).id for name in ("a", "a", "b", "a-1")] == [
        "a-1",
        "a-2",
        "b-1",
        "a-1-1",
    ]
    store.let_go("a-2")
    store.remove("a-2")
    assert begin(store, "a").id == "a-3"


def test_the_newest_run_of_a_name_is_the_last_begun(store):
    assert store.newest("job") is None
    for name in ("job", "job", "other"):
        begin(store, name)
    assert store.newest("job").id == "job-2"


def test_an_unknown_run_is_refused_everywhere_with_those_that_exist(store):
    calls = [
        lambda: store.get("jbo-1"),
        lambda: store.take_over("jbo-1", BOB),
        lambda: store.commit("jbo-1", 1, [], {}),
        lambda: store.end("jbo-1", 1, "done", "", 1.0),
        lambda: store.recorded("jbo-1", ["a"]),
        lambda: store.outcomes("jbo-1"),
        lambda: store.count_states("jbo-1", 9),
        lambda: store.events("jbo-1"),
        lambda: store.ask("jbo-1", "cancel", {}, 1.0),
        lambda: store.asked("jbo-1"),
        lambda: store.remove("jbo-1"),
    ]
    for call in calls:
        with pytest.raises(NoSuchRun, match="there is no run 'jbo-1': the store holds no runs yet"):
            call()
    begin(store)
    for call in calls:
        with pytest.raises(NoSuchRun, match=r"there is no run 'jbo-1'; did you mean job-1\?"):
            call()
    begin(store, "quite-another")
    with pytest.raises(NoSuchRun, match="the newest are quite-another-1, job-1"):
        store.get("zzz")


def test_runs_are_listed_newest_first_and_filtered(store):
    begin(store, "a", tags=["x"])
    begin(store, "b", tags=["x", "y"])
    begin(store, "a", tags=["xy"])
    store.end("a-1", 1, "done", "", 300.0)

    def ids(**filters):
        return [row.id for row in store.runs(**filters)]

    assert ids() == ["a-2", "b-1", "a-1"]
    assert ids(limit=2) == ["a-2", "b-1"]
    assert ids(name="a") == ["a-2", "a-1"]
    assert ids(state="running") == ["a-2", "b-1"]
    assert ids(tag="x") == ["b-1", "a-1"]
    assert ids(name="a", state="done", tag="x") == ["a-1"]
    assert ids(tag="nope") == []


def test_a_committed_event_is_read_back_as_it_was(store):
    begin(store)
    events = [
        event(1, "run-started", "job"),
        event(
            2,
            ITEM_STARTED,
            "job/é%2F/\0x",
            lane="openai",
            data={"attempt": 1, "ok": True, "none": None},
        ),
        event(
            3,
            ITEM_SETTLED,
            "job/map/0001",
            data={"service": [0.25, 0.5], "s": "\ud800"},
            body='{"a":"é"}',
        ),
        event(4, "limit-changed", "job", data=MappingProxyType({"cap": math.inf})),
    ]
    store.commit("job-1", 1, events, {"usd": 0.5})
    assert store.events("job-1") == events
    row = store.get("job-1")
    assert (row.last_seq, row.spent) == (4, {"usd": 0.5})


def test_a_commit_of_nothing_only_says_what_was_spent(store):
    begin(store)
    store.commit("job-1", 1, [event(1)], {"requests": 1})
    store.commit("job-1", 1, [], {"requests": 2})
    row = store.get("job-1")
    assert (row.last_seq, row.spent) == (1, {"requests": 2})


def test_events_are_read_in_pages_by_kind_and_by_path(store):
    begin(store, "other")
    begin(store)
    store.commit("other-1", 1, [event(1, MAP_STARTED, "job/map")], {})
    kinds = [MAP_STARTED, ITEM_READ, ITEM_STARTED, ITEM_SETTLED]
    events = [event(n, kinds[n % 4], f"job/{'map' if n < 6 else 'map2'}/{n}") for n in range(1, 11)]
    store.commit("job-1", 1, [*events, event(11, ITEMS_COMPLETE, "job/map")], {})
    store.commit(
        "job-1", 1, [event(12, MAP_STARTED, "job/map"), event(13, MAP_STARTED, "job/map2")], {}
    )

    def seqs(**options):
        return [found.seq for found in store.events("job-1", **options)]

    assert seqs() == list(range(1, 14))
    assert seqs(after=4, limit=3) == [5, 6, 7]
    assert seqs(kinds={ITEM_READ}) == [1, 5, 9]
    assert seqs(kinds={ITEM_READ}, after=1, limit=1) == [5]
    assert seqs(kinds={ITEM_READ}, prefix="job/map") == [1, 5]
    assert seqs(kinds={ITEM_READ, ITEMS_COMPLETE}, prefix="job/map") == [1, 5, 11]
    assert seqs(kinds={ITEMS_COMPLETE}) == [11]
    assert seqs(kinds=[ITEM_STARTED, ITEM_SETTLED]) == [2, 3, 6, 7, 10]
    assert seqs(kinds={MAP_STARTED}) == [4, 8, 12, 13]
    assert seqs(kinds={MAP_STARTED}, prefix="job/map") == [4, 12]
    assert seqs(kinds={MAP_STARTED}, prefix="job/map", after=4, limit=1) == [12]
    assert seqs(kinds={MAP_STARTED}, prefix="job/map/") == [4]
    assert seqs(prefix="job/map/") == [1, 2, 3, 4, 5]
    assert seqs(prefix="job/map") == [1, 2, 3, 4, 5, 11, 12]
    assert seqs(prefix="job/map/3") == [3]
    assert seqs(prefix="jo") == []


def test_all_events_come_a_page_at_a_time(store):
    begin(store)
    store.commit("job-1", 1, [event(n) for n in range(1, 8)], {})
    assert [found.seq for found in each_event(store, "job-1", page=3)] == [1, 2, 3, 4, 5, 6, 7]
    assert [found.seq for found in each_event(store, "job-1", after=5, page=3)] == [6, 7]


def test_the_newest_outcome_of_a_path_is_the_one_recorded(store):
    begin(store)
    store.commit(
        "job-1",
        1,
        [settled(1, "m/a", '"old"', data={"try": 1}), settled(2, "m/b"), event(3, path="m/c")],
        {},
    )
    store.commit("job-1", 1, [settled(4, "m/a", '"new"', lane="l", data={"try": 2})], {})
    found = store.recorded("job-1", ["m/a", "m/b", "m/c", "m"])
    assert {path: (each.seq, each.body) for path, each in found.items()} == {
        "m/a": (4, '"new"'),
        "m/b": (2, '"done"'),
    }
    assert (found["m/a"].path, found["m/a"].lane, found["m/a"].data) == ("m/a", "l", {"try": 2})
    assert [(each.path, each.seq) for each in store.outcomes("job-1")] == [("m/b", 2), ("m/a", 4)]
    assert store.recorded("job-1", []) == {}


def test_items_are_counted_by_the_state_of_their_newest_outcome(store):
    begin(store)
    begin(store)
    first = [
        settled(1, "m/a", data={"state": "failed"}),
        settled(2, "m/b", data={"state": "done"}),
        event(3),
    ]
    store.commit("job-1", 1, [*first, settled(4, "m/c", data={"state": "failed"})], {})
    store.commit("job-1", 1, [settled(5, "m/a", data={"state": "done"})], {})
    store.commit("job-2", 1, [settled(1, "m/a", data={"state": "done"})], {})
    assert store.count_states("job-1", 100) == {"done": 2, "failed": 1}
    assert sum(store.count_states("job-1", 2).values()) == 2
    assert store.count_states("job-2", 100) == {"done": 1}


def test_outcomes_are_of_one_run_alone(store):
    begin(store)
    begin(store)
    store.commit("job-1", 1, [settled(1, "m/a", '"one"')], {})
    store.commit("job-2", 1, [settled(1, "m/a", '"two"'), settled(2, "m/b")], {})
    assert store.recorded("job-1", ["m/a", "m/b"])["m/a"].body == '"one"'
    assert [each.body for each in store.outcomes("job-1")] == ['"one"']
    assert [each.path for each in store.outcomes("job-1", prefix="m")] == ["m/a"]
    assert len(store.events("job-1")) == 1


PATHS = st.sampled_from(["m", "m/a", "m/ab", "m/a/x", "m/a/y", "m/a!", "m/é", "n/a", "m0"])


@given(st.lists(PATHS), st.sampled_from(["", "m", "m/a", "m/a/", "m/", "x"]), st.integers(1, 5))
@tried(60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_outcomes_are_those_of_a_plain_walk_through_the_journal(store, paths, prefix, page):
    run_id = begin(store).id
    store.commit(run_id, 1, [settled(n, path, str(n)) for n, path in enumerate(paths, 1)], {})
    newest = {path: n for n, path in enumerate(paths, 1)}
    wanted = sorted(
        n
        for path, n in newest.items()
        if not prefix or path == prefix or path.startswith(prefix.removesuffix("/") + "/")
    )
    assert [found.seq for found in each_outcome(store, run_id, prefix=prefix, page=page)] == wanted


@pytest.mark.parametrize("size", [65_536, 65_537, 3_000_000])
def test_a_big_body_comes_back_like_a_small_one(store, size):
    begin(store)
    body = "x" * size
    store.commit("job-1", 1, [settled(1, "m/a", body), settled(2, "m/b", "small"), event(3)], {})
    assert [found.body for found in store.events("job-1")] == [body, "small", None]
    assert store.recorded("job-1", ["m/a"])["m/a"].body == body
    assert [found.body for found in store.outcomes("job-1")] == [body, "small"]
    assert [found.body for found in store.outcomes("job-1", prefix="m")] == [body, "small"]


def test_a_second_driver_is_refused_by_the_name_of_the_first(store, other):
    begin(store)
    for taker in (store, other):
        with pytest.raises(
            RunBusy, match=r"run job-1 is being driven by process 11 on here \(abreast map\)"
        ):
            taker.take_over("job-1", BOB)
    assert store.get("job-1").epoch == 1


def test_a_run_that_was_let_go_can_be_taken_over(store, other):
    begin(store)
    store.commit("job-1", 1, [event(1)], {"usd": 1.0})
    store.let_go("job-1")
    store.let_go("job-1")
    row = other.take_over("job-1", BOB)
    assert (row.epoch, row.driver, row.state, row.last_seq, row.spent) == (
        2,
        BOB,
        "running",
        1,
        {"usd": 1.0},
    )
    with pytest.raises(RunBusy, match="process 22 on there"):
        store.take_over("job-1", ANN)


def test_a_driver_that_was_replaced_can_write_nothing_more(store, other):
    begin(store)
    store.let_go("job-1")
    other.take_over("job-1", BOB)
    with pytest.raises(
        DriverReplaced, match=r"run job-1 was taken over by process 22 on there \(driver number 2\)"
    ):
        store.commit("job-1", 1, [event(1)], {"usd": 9.0})
    with pytest.raises(DriverReplaced):
        store.end("job-1", 1, "done", "", 300.0)
    row = store.get("job-1")
    assert (store.events("job-1"), row.last_seq, row.spent, row.state) == ([], 0, {}, "running")
    other.commit("job-1", 2, [event(1)], {})
    other.end("job-1", 2, "done", "", 300.0)
    with pytest.raises(
        DriverReplaced, match=r"taken over \(driver number 2\); driver number 1 may"
    ):
        store.commit("job-1", 1, [event(2)], {})


def test_an_ended_run_says_how_and_may_be_taken_up_again(store, other):
    begin(store)
    store.end("job-1", 1, "halted", "enough", 300.0)
    row = other.get("job-1")
    assert (row.state, row.reason, row.ended, row.driver) == ("halted", "enough", 300.0, None)
    row = other.take_over("job-1", BOB)
    assert (row.state, row.reason, row.ended, row.epoch) == ("running", "", None, 2)


def test_what_is_recorded_is_never_written_over(store):
    begin(store)
    store.commit("job-1", 1, [event(1), event(2)], {"usd": 1.0})
    for batch in ([event(3), event(2, path="else")], [event(3), event(3)]):
        with pytest.raises(StoreError, match="has an event of that number already"):
            store.commit("job-1", 1, batch, {"usd": 2.0})
    assert store.events("job-1") == [event(1), event(2)]
    assert (store.get("job-1").last_seq, store.get("job-1").spent) == (2, {"usd": 1.0})
    store.commit("job-1", 1, [event(3)], {"usd": 2.0})


def test_events_may_come_in_any_order_and_are_read_in_theirs(store):
    begin(store)
    store.commit("job-1", 1, [settled(5, "m/a", '"new"')], {})
    store.commit("job-1", 1, [settled(2, "m/a", '"old"')], {})
    assert [found.seq for found in store.events("job-1")] == [2, 5]
    assert store.recorded("job-1", ["m/a"])["m/a"].body == '"new"'
    assert store.get("job-1").last_seq == 5


def test_a_name_that_is_no_text_is_refused_and_nothing_is_written(store):
    begin(store)
    for bad in (event(2, path="\ud800"), event(2, lane="\ud800"), event(2, body="\ud800")):
        with pytest.raises(StoreError, match="lone surrogate"):
            store.commit("job-1", 1, [event(1), bad], {})
    with pytest.raises(StoreError, match="lone surrogate"):
        begin(store, "\ud800")
    assert store.events("job-1") == []
    assert [row.id for row in store.runs()] == ["job-1"]


def test_requests_wait_for_the_driver_until_they_are_answered(store, other):
    begin(store)
    begin(store)
    first = other.ask("job-1", "cancel", {"why": ["x"]}, 500.0)
    second = other.ask("job-1", "retune", {"width": 3}, 501.0)
    other.ask("job-2", "cancel", {}, 502.0)
    assert store.asked("job-1") == [
        ControlRequest(first, "job-1", "cancel", {"why": ["x"]}, 500.0),
        ControlRequest(second, "job-1", "retune", {"width": 3}, 501.0),
    ]
    store.answer(first, 503.0)
    store.answer(first, 504.0)
    store.answer(9999, 504.0)
    assert [request.id for request in store.asked("job-1")] == [second]
    assert len(store.asked("job-2")) == 1


def test_a_driven_run_cannot_be_removed(store, other):
    begin(store)
    store.commit("job-1", 1, [settled(1, "m/a")], {})
    for remover in (store, other):
        with pytest.raises(RunBusy, match="process 11 on here"):
            remover.remove("job-1")
    assert len(store.outcomes("job-1")) == 1


def test_a_removed_run_leaves_nothing_and_touches_no_other(store):
    for _ in range(3):
        run_id = begin(store).id
        store.commit(run_id, 1, [settled(1, "m/a", "x" * 70_000), settled(2, "m/b")], {})
        store.ask(run_id, "cancel", {}, 1.0)
        store.end(run_id, 1, "done", "", 300.0)
    store.remove("job-2")
    with pytest.raises(NoSuchRun, match="did you mean"):
        store.events("job-2")
    assert [row.id for row in store.runs()] == ["job-3", "job-1"]
    for run_id in ("job-1", "job-3"):
        assert [len(found.body) for found in store.outcomes(run_id)] == [70_000, 6]
        assert len(store.asked(run_id)) == 1
    store.vacuum()
    assert len(store.events("job-3")) == 2


def test_pruning_takes_the_old_and_ended_and_leaves_the_rest(store):
    ends = {
        "job-1": ("done", 10.0),
        "job-2": ("failed", 20.0),
        "job-3": ("done", 90.0),
        "job-4": ("interrupted", 5.0),
    }
    for run_id, (state, at) in ends.items():
        assert begin(store).id == run_id
        store.end(run_id, 1, state, "", at)
    begin(store)  # driven
    begin(store)  # crashed, and last heard of at 1001
    store.commit("job-6", 1, [event(1)], {})
    store.let_go("job-6")
    store.take_over("job-1", BOB)
    assert store.prune(50.0) == ["job-2"]
    store.end("job-1", 2, "done", "", 11.0)
    assert store.prune(50.0) == ["job-1"]
    assert store.prune(1000.0, ["running", "interrupted"]) == ["job-4"]
    assert store.prune(2000.0, ["running"]) == ["job-6"]
    assert [row.id for row in store.runs()] == ["job-5", "job-3"]


def test_a_backup_is_a_store_with_all_of_it(store, adapter, tmp_path):
    begin(store, tags=["x"])
    store.commit(
        "job-1", 1, [settled(1, "m/a", "x" * 70_000), event(2, data={"n": 1})], {"usd": 1.0}
    )
    asked = store.ask("job-1", "cancel", {"a": 1}, 1.0)
    copy = tmp_path / "copy.db"
    copy.write_text("what was there before")
    store.backup(str(copy))
    store.commit("job-1", 1, [event(3)], {})
    assert [path.name for path in tmp_path.iterdir() if ".part" in path.name] == []
    saved = adapter.open_backup(copy)
    assert len(saved.events("job-1")) == 2
    assert saved.recorded("job-1", ["m/a"])["m/a"].body == "x" * 70_000
    assert [request.id for request in saved.asked("job-1")] == [asked]
    assert saved.take_over("job-1", BOB).epoch == 2  # the lock is the original's, not the copy's
    assert begin(saved).id == "job-2"
    saved.close()


def test_a_backup_that_cannot_be_made_leaves_nothing_behind(store, tmp_path):
    with pytest.raises(StoreError, match="no-such-folder"):
        store.backup(str(tmp_path / "no-such-folder" / "copy.db"))
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(StoreError, match="folder"):
        store.backup(str(target))
    assert [path.name for path in tmp_path.iterdir() if ".part" in path.name] == []


def test_closing_twice_is_harmless_and_lets_go(store, other):
    begin(store)
    store.close()
    store.close()
    if other is not store:
        assert other.take_over("job-1", BOB).epoch == 2


def test_what_a_caller_changes_afterwards_does_not_reach_the_store(store):
    manifest, tags, data, spent = {"list": [1]}, ["x"], {"service": [1.0]}, {"usd": 1.0}
    row = begin(store, manifest=manifest, tags=tags)
    store.commit("job-1", 1, [settled(1, "m/a", data=data)], spent)
    manifest["list"].append(2)
    tags.append("y")
    data["service"].append(2.0)
    spent["usd"] = 5.0
    row.manifest["list"].append(3)
    store.events("job-1")[0].data["service"].append(3.0)
    store.recorded("job-1", ["m/a"])["m/a"].data["service"].append(3.0)
    row = store.get("job-1")
    assert (row.manifest, row.tags, row.spent) == ({"list": [1]}, ("x",), {"usd": 1.0})
    assert store.events("job-1")[0].data == store.outcomes("job-1")[0].data == {"service": [1.0]}
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.state = "done"


def test_only_one_of_many_takers_gets_the_run(store, other):
    begin(store)
    store.let_go("job-1")
    start = threading.Barrier(16)
    got, refused = [], []

    def take(n):
        start.wait()
        try:
            got.append((store, other)[n % 2].take_over("job-1", Driver(n, "h", 1.0)).epoch)
        except RunBusy as error:
            refused.append(error)

    threads = [threading.Thread(target=take, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (got, len(refused)) == ([2], 15)


def test_any_thread_may_begin_commit_and_read(store):
    start = threading.Barrier(8)
    troubles = []

    def drive(n):
        try:
            start.wait()
            run_id = begin(store, f"t{n}").id
            for seq in range(1, 6):
                store.commit(run_id, 1, [settled(seq, f"m/{seq}")], {"n": seq})
                if [found.seq for found in store.events(run_id)] != list(range(1, seq + 1)):
                    troubles.append(run_id)
            store.end(run_id, 1, "done", "", 1.0)
        except Exception as error:
            troubles.append(error)

    threads = [threading.Thread(target=drive, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    assert len(store.runs(state="done")) == 8


def test_it_says_what_it_is(store):
    begin(store)
    assert "driving 1" in repr(store)
    assert ":" in store.url


def test_a_run_is_driven_until_its_driver_lets_go(store, other):
    row = begin(store)
    assert store.driven(row.id)
    assert other.driven(row.id)
    store.let_go(row.id)
    assert not store.driven(row.id)
    assert not other.driven(row.id)
    with pytest.raises(NoSuchRun):
        store.driven("nobody-7")


def test_replies_are_kept_by_key_counted_by_model_and_forgotten(store):
    assert store.find_reply("a") is None
    assert store.replies() == []
    store.keep_reply("a", "m/one", "first", 10.0)
    store.keep_reply("a", "m/one", "second", 20.0)
    store.keep_reply("b", "m/one", "é", 5.0)
    store.keep_reply("c", "m/two", "third", 30.0)
    assert store.find_reply("a") == "second"
    assert [(r.model, r.count, r.characters, r.oldest, r.newest) for r in store.replies()] == [
        ("m/one", 2, 7, 5.0, 20.0),
        ("m/two", 1, 5, 30.0, 30.0),
    ]
    assert store.forget_replies(20.0, "m/one") == 1
    assert store.find_reply("a") == "second"
    assert store.forget_replies(100.0) == 2
    assert store.replies() == []


def test_a_ledger_is_changed_by_one_at_a_time(store, other):
    before = SYSTEM_CLOCK.wall() - 3600
    store.change_ledger("a", lambda text, now: f"{text} {now > before}")
    assert store.ledgers() == {"a": "None True"}
    store.change_ledger("b", lambda _, now: "0")

    def count():
        for _ in range(20):
            other.change_ledger("b", lambda text, now: str(int(text) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.ledgers()["b"] == "80"


def test_a_ledger_whose_change_fails_stays_as_it_was(store):
    store.change_ledger("a", lambda text, now: "first")

    def fails(text, now):
        raise KeyError(text)

    with pytest.raises(KeyError):
        store.change_ledger("a", fails)
    assert store.ledgers() == {"a": "first"}


def test_a_backup_has_the_ledgers(store, adapter, tmp_path):
    store.change_ledger("a", lambda text, now: "first")
    store.backup(str(tmp_path / "copy.db"))
    copy = adapter.open_backup(tmp_path / "copy.db")
    assert copy.ledgers() == {"a": "first"}
    copy.close()


def test_a_ledger_can_be_forgotten(store):
    store.change_ledger("a", lambda text, now: "first")
    assert store.remove_ledger("a")
    assert not store.remove_ledger("a")
    assert store.ledgers() == {}


def test_settled_calls_are_found_beneath_their_item(store):
    row = begin(store)
    events = [
        event(1, "call-settled", "job/m/0001/call/x-0"),
        event(2, "call-started", "job/m/0001/call/x-1"),
        event(3, "call-settled", "job/m/0001/call/x-1"),
        event(4, "call-settled", "job/m/00011/call/x-0"),
        event(5, "call-settled", "job/m/0001/call/x-0"),
    ]
    store.commit(row.id, row.epoch, events, {})
    found = store.events(row.id, kinds={"call-settled"}, prefix="job/m/0001/call/")
    assert [one.seq for one in found] == [1, 3, 5]
    assert [one.seq for one in store.events(row.id, kinds={"call-settled"})] == [1, 3, 4, 5]
