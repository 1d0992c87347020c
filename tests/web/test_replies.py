"""What items came to in a line, the search through replies, and two runs side by side."""

import json

import pytest

from abreast.core.events import CALL_SETTLED, ITEM_SETTLED, Event
from abreast.store.codec import codec
from abreast.store.port import Driver
from abreast.store.totals import RunTotals
from abreast.web import pages
from abreast.web.pages import PageSource
from abreast.web.replies import ReplySearch, Searches, replies_beside, text_of
from tests.web.jobs.viewing import Hand, viewed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ({"text": "a reply", "tokens": 3}, "a reply"),
        ({"exit_code": 0, "stdout": "out\n", "stderr": ""}, "out\n"),
        ({"exit_code": 1, "stdout": "", "stderr": "bad\n"}, "bad\n"),
        ({"type": "shell", "output": {"exit_code": 0, "stdout": "deep", "stderr": ""}}, "deep"),
        ({"text": "", "value": {"a": 1}}, ""),
        ([{"text": "first"}, {"text": "last"}], "last"),
        ({"a": 1}, '{"a": 1}'),
        (None, ""),
        (7, "7"),
    ],
)
def test_a_value_is_shown_by_the_text_that_it_is_about(value, text):
    assert text_of(value) == text


def reviews(store, name="reviews", second="The battery died in a day."):
    """A run of three reviews, of which one failed; a call beneath the first says more."""
    hand = Hand(store, "map", name)
    body = json.dumps({"text": "Battery: weak", "state": "done"})
    hand.write((CALL_SETTLED, f"{name}/items/0000/call/1", {"state": "done"}, body))
    hand.settle(f"{name}/items/0000", json.dumps("positive"), index=0)
    hand.settle(f"{name}/items/0001", json.dumps(second), index=1)
    hand.settle(f"{name}/items/0001/step", json.dumps("within"), index=0)
    error = codec.encode_error(ValueError("no such review 17"))
    hand.settle(f"{name}/items/0002", error, "failed", index=2)
    hand.end()
    return hand.id


def found(source, run, words, **more):
    said = pages.items(source, run, {"q": words, **more})
    return [row["key"] for row in said["items"]], said["searched"]


def test_items_have_their_values_and_are_found_by_what_was_said(store):
    source, run = PageSource(store), reviews(store)
    said = pages.items(source, run, {"top": "1"})
    assert [(row["key"], row["value"]) for row in said["items"]] == [
        ("0000", "positive"),
        ("0001", "The battery died in a day."),
        ("0002", "no such review 17"),
    ]
    assert (said["nested"], pages.items(source, run, {})["count"]) == (1, 4)
    assert found(source, run, "BATTERY") == (["0000", "0001"], 1.0)  # a call's reply and a value
    assert found(source, run, "review 17") == (["0002"], 1.0)
    assert found(source, run, "within", top="1") == ([], 1.0)
    assert found(source, run, "0002") == (["0002"], 1.0)
    assert found(source, run, "nowhere") == ([], 1.0)


def test_only_the_newest_outcome_of_an_item_is_searched(store):
    hand = Hand(store, "map")
    hand.settle("hand/items/0000", json.dumps("an old word"))
    search = ReplySearch("old")
    assert search.read(store, store.get(hand.id), 60.0) == ({"hand/items/0000"}, 1.0)
    hand.settle("hand/items/0000", json.dumps("a new one"))
    assert search.read(store, store.get(hand.id), 60.0) == (frozenset(), 1.0)


@pytest.mark.parametrize("words", ['say "no"', "two\nlines", "Größe", "C:\\temp"])
def test_words_are_found_as_they_are_written_in_a_value_and_in_json_within_it(store, words):
    hand = Hand(store, "map")
    hand.settle("hand/items/0000", json.dumps(f"so {words} it is", ensure_ascii=False))
    within = json.dumps({"k": words}, ensure_ascii=False)
    hand.settle("hand/items/0001", json.dumps(within, ensure_ascii=False))
    hand.settle("hand/items/0002", json.dumps("else"))
    paths, _ = ReplySearch(words).read(store, store.get(hand.id), 60.0)
    assert sorted(paths) == ["hand/items/0000", "hand/items/0001"]


def test_a_long_journal_is_searched_in_parts(store):
    hand = Hand(store, "map")
    hand.write(
        *(("item-settled", f"hand/items/{n:04}", {"state": "done"}, '"x"') for n in range(300))
    )
    search = ReplySearch("x")
    part, read = search.read(store, store.get(hand.id), 0.0)
    assert 0 < len(part) < 300
    assert 0 < read < 1
    while read < 1:
        part, read = search.read(store, store.get(hand.id), 0.0)
    assert len(part) == 300


def test_a_search_goes_on_where_it_was_and_few_are_kept():
    searches = Searches()
    first = searches.get("a")
    assert searches.get("a") is first
    for words in "bcde":
        searches.get(words)
    assert searches.get("a") is not first


def test_two_runs_are_compared_by_key(store):
    reviews(store, "one")
    other = Hand(store, "map", "two", {"prompt": "Shorter."})
    other.settle("two/items/0000", json.dumps("positive"))
    other.settle("two/items/0001", json.dumps("negative"))
    other.settle("two/items/0003", json.dumps("neutral"))
    other.end()
    source = PageSource(store)
    said = pages.compare(source, {"first": "one-1", "second": "two-1"})
    assert said["counts"] == {"same": 1, "different": 1, "first": 1, "second": 1}
    assert [(row["key"], row["kind"]) for row in said["items"]] == [
        ("items/0000", "same"),
        ("items/0001", "different"),
        ("items/0002", "first"),
        ("items/0003", "second"),
    ]
    row = said["items"][1]
    assert row["first"]["value"] == "The battery died in a day."
    assert row["second"]["value"] == "negative"
    assert (said["first"]["done"], said["second"]["done"], said["read"]) == (3, 3, 1)
    assert {"name": "prompt", "first": "", "second": "Shorter."} in said["settings"]
    only = pages.compare(source, {"first": "one-1", "second": "two-1", "only": "same"})
    assert [row["key"] for row in only["items"]] == ["items/0000"]
    named = pages.compare(
        source, {"first": "one-1", "second": "two-1", "only": "different", "q": "3"}
    )
    assert [row["key"] for row in named["items"]] == ["items/0003"]


def test_more_items_than_are_compared_are_said_to_be_cut(store, monkeypatch):
    monkeypatch.setattr("abreast.web.compare._MAX_ITEMS", 2)
    run = reviews(store)
    said = pages.compare(PageSource(store), {"first": run, "second": run})
    assert (said["cut"], said["counts"]["same"]) == (True, 2)


def test_replies_stand_beside_each_other_with_scores_or_what_failed(store):
    hand = Hand(store, "matrix", "study")
    hand.settle("study/local/a/reply", json.dumps({"output": "Lisbon"}))
    hand.settle("study/local/a", json.dumps({"scores": {"exact": 1.0, "other": None}}))
    error = codec.encode_error(ValueError("no more"))
    hand.settle("study/local/b", error, "failed")
    cells = [{"path": f"study/local/{name}", "model": name} for name in "ab"]
    first, second = replies_beside(store, hand.id, cells)
    assert (first["reply"], first["scores"], first["error"]) == ("Lisbon", "exact 1", "")
    assert (second["reply"], second["scores"], second["error"]) == ("", "", "no more")


def test_runs_are_counted_by_state(store):
    reviews(store)
    Hand(store, "map", "other").end("paused")
    said = pages.runs(PageSource(store), {"state": "paused"})
    assert said["by_state"] == {"done": 1, "paused": 1}
    assert [row["id"] for row in said["runs"]] == ["other-1"]


def grouped(store, *outcomes):
    """The groups of a map with these outcomes: `worth`, and the number and text of each."""
    hand = Hand(store, "map", "groups")
    for at, (state, body) in enumerate(outcomes):
        hand.settle(f"groups/items/{at:04}", body, state, index=at)
    hand.end()
    view = viewed(store, hand.id)
    return view["worth"], [(group["count"], group["text"]) for group in view["groups"]]


def test_failures_that_differ_only_in_numbers_are_one_group(store):
    failures = [("failed", codec.encode_error(ValueError(f"row {n} is empty"))) for n in (3, 17)]
    done = [("done", json.dumps(f"row {n}")) for n in (3, 17)]
    worth, groups = grouped(store, *failures, *done)
    assert (worth, groups) == (True, [(2, "row 3 is empty"), (1, "row 17"), (1, "row 3")])


def test_outcomes_that_all_differ_are_not_worth_a_list_of_groups(store):
    worth, groups = grouped(store, *(("done", json.dumps(f"reply {n}")) for n in range(3)))
    assert (worth, len(groups)) == (False, 3)


def test_a_page_says_of_a_long_run_what_its_row_says_while_it_is_read(store):
    row = store.begin(
        "long", kind="map", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 0.0)
    )
    events = [
        Event(seq, ITEM_SETTLED, f"long/items/{seq:04}", 0.0, 0.0, None, {"state": "done"}, '"x"')
        for seq in range(1, 301)
    ]
    store.commit(row.id, row.epoch, events, RunTotals(row).facts(events))
    store.end(row.id, row.epoch, "done", "", 1.0)
    source = PageSource(store)
    run = source.reader.get("long-1")
    with run.lock:
        run.refresh(-1.0)  # it reads one part of the journal
        said = pages.head_of(run)
    assert said["read"] < 1
    assert said["counts"]["done"] == 300
