"""Sums of a server's calls: by client, model and tag, each call once, of bounded size."""

import json

import pytest

from abreast.core.outcome import Usage
from abreast.run.outcome_record import usage_facts
from abreast.store.codec import codec
from abreast.store.port import each_event, each_outcome
from abreast.testing import MemoryStore
from abreast.views.served import ServedSums, call_facts
from abreast.web.pages import PageSource, head
from tests.web.jobs.viewing import HOSTILE, Hand, viewed

USED = usage_facts(Usage(1, 3, 2, 0.5))


class Refused(Exception):
    """A call that was answered with an error."""

    def __init__(self, details):
        super().__init__("refused")
        self.details = details


def facts(client="notebook", model="openai/gpt-x", **more):
    return {"client": client, "model": model, "type": "application/json", **more}


def call(hand, number, state="done", used=USED, **named):
    recorded = facts(**named)
    body = codec.encode_error(Refused(recorded)) if state == "failed" else json.dumps(recorded)
    hand.settle(f"serve/calls/chat-{number}", body, state, number, **used)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def hand(store):
    return Hand(store, "serve", "serve")


def tables(store, hand):
    return {one["part"]: one for one in viewed(store, hand.id)["parts"]}


def test_the_page_of_a_server_has_its_sums_by_client_model_and_tag(store, hand):
    call(hand, 0, tag="draft")
    call(hand, 1, client="agent", model="local/smollm2")
    call(hand, 2)
    found = tables(store, hand)
    assert list(found) == ["client", "model", "tag"]
    assert found["client"]["rows"] == [
        {"name": "notebook", "calls": 2, "input": 6, "output": 4, "usd": 1.0},
        {"name": "agent", "calls": 1, "input": 3, "output": 2, "usd": 0.5},
    ]
    assert [row["name"] for row in found["model"]["rows"]] == ["openai/gpt-x", "local/smollm2"]
    assert [(row["name"], row["calls"]) for row in found["tag"]["rows"]] == [("draft", 1)]


def test_they_are_live_and_equal_to_those_of_the_outcomes(store, hand):
    events = ServedSums()
    for number in range(3):
        call(hand, number, tag="draft" if number else None)
        last = list(each_event(store, hand.id, {"item-settled"}))[-1]
        events.add(last)
        assert events.plain() == ServedSums(each_outcome(store, hand.id)).plain()
    assert events.texts()["client"] == "notebook: 3 calls, 9 + 6 tokens, 1.5 usd"


def test_a_failed_call_that_is_answered_by_a_resumed_server_counts_once(store, hand):
    call(hand, 0, "failed", {})
    assert tables(store, hand)["client"]["rows"][0]["calls"] == 1
    call(hand, 0)
    [row] = tables(store, hand)["client"]["rows"]
    assert (row["calls"], row["usd"]) == (1, 0.5)


def test_a_call_without_an_answer_is_not_counted(store, hand):
    hand.settle("serve/calls/chat-0", None, "cancelled", reason="the client went away")
    hand.settle("serve/calls/chat-1", "no JSON", "done")
    assert viewed(store, hand.id)["parts"] == []
    assert [call_facts(one) for one in each_outcome(store, hand.id)] == [None, None]


def test_many_names_are_cut_and_odd_ones_are_texts(store, hand):
    dear = usage_facts(Usage(1, 3, 2, 9.0))
    call(hand, 0, used=dear, tag=HOSTILE * 9)
    for number in range(1, 61):
        call(hand, number, tag=f"tag-{number}")
    shown = tables(store, hand)["tag"]
    assert (len(shown["rows"]), shown["cut"]) == (50, "and 11 tags more")
    assert shown["rows"][0]["usd"] == 9.0
    assert len(shown["rows"][0]["name"]) == 100
    words = ServedSums(each_outcome(store, hand.id)).texts(2)
    assert words["tag"].count(";") == 2
    assert words["tag"].endswith("; and 59 more")
    assert words["client"].startswith("notebook: 61 calls")


def test_an_unknown_price_is_said(store, hand):
    call(hand, 0, used=usage_facts(Usage(1, 3, 2, None)))
    assert tables(store, hand)["client"]["rows"][0]["usd"] is None
    assert "unknown cost" in ServedSums(each_outcome(store, hand.id)).texts()["client"]


def test_the_page_offers_no_resumption_of_a_server(store, hand):
    call(hand, 0, "failed", {})
    hand.end("interrupted")
    can = head(PageSource(store), hand.id, {})["can"]
    assert not any(can.values())
