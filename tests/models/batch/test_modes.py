"""How the calls of a lane are made: by its settings, and by what is asked beside them."""

from dataclasses import replace

import pytest

from abreast.assembly.names import open_model
from abreast.models.batch.modes import CallMode, has_batches, tier_of
from abreast.models.batch.services import find_service
from abreast.models.batch.terms import BatchTerms
from abreast.models.lane_fields import read_fields
from abreast.models.lanes import PROVIDERS, LaneSettings
from abreast.models.price import BATCH, FlatPrice, ReducedPrice, find_price, reduced_price
from abreast.models.scripted import Scripted

LANE = LaneSettings("mine", "openai", "http://127.0.0.1:9/v1", price=FlatPrice(2.0, 4.0))


def test_nothing_asked_changes_nothing():
    assert CallMode().lane(LANE) is LANE
    assert CallMode().lanes({"mine": LANE}) == {"mine": LANE}


def test_what_is_asked_goes_before_what_the_lane_says():
    lane = replace(LANE, batch=BatchTerms(size=7, wait=9.0))
    found = CallMode("batch", "direct", 0.0, "flex").lane(lane)
    assert found.mode == "batch"
    assert found.batch == BatchTerms(size=7, wait=0.0, fallback="direct")
    assert tier_of(found) == "flex"
    assert tier_of(LANE) is None
    assert CallMode(tier="flex").lane(lane).batch.wait == 9.0


def test_lanes_without_batches_stay_direct_among_others():
    found = CallMode("batch", tier="flex").lanes(PROVIDERS)
    assert {name for name, lane in found.items() if lane.mode == "batch"} == {
        name for name, lane in PROVIDERS.items() if has_batches(lane)
    }
    assert found["local"] == PROVIDERS["local"]
    assert tier_of(found["anthropic"]) is None
    assert tier_of(found["openai"]) == "flex"


@pytest.mark.parametrize("name", ["local", "mistral"])
def test_a_lane_without_batches_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name} has no batches"):
        CallMode("batch").lane(PROVIDERS[name])
    with pytest.raises(ValueError, match=f"{name} has no tier flex"):
        CallMode(tier="flex").lane(PROVIDERS[name])


@pytest.mark.parametrize("given", [{"mode": "x"}, {"fallback": "x"}, {"tier": "x"}])
def test_an_unknown_word_is_refused_with_the_known_ones(given):
    with pytest.raises(ValueError, match="must be one of"):
        CallMode(**given)


def test_a_table_of_batches_is_read_and_checked():
    given = {"size": 5, "age": 0, "poll": 1, "settle": 0, "fallback": "direct", "wait": 60}
    assert read_fields({"mode": "batch", "batch": given}, "lane") == {
        "mode": "batch",
        "batch": BatchTerms(size=5, age=0.0, poll=1.0, settle=0.0, fallback="direct", wait=60.0),
    }


@pytest.mark.parametrize(
    "batch", [3, {"size": 0}, {"sise": 3}, {"poll": 0}, {"age": -1}, {"fallback": "later"}]
)
def test_a_wrong_table_of_batches_is_refused(batch):
    with pytest.raises(ValueError, match=r"lane\.batch"):
        read_fields({"batch": batch}, "lane")


def test_a_price_of_the_user_is_halved_and_an_unknown_one_stays_unknown():
    found = reduced_price(LANE.price, "openai", "gpt-4o-mini", BATCH)
    assert isinstance(found, ReducedPrice)
    assert found.of(1_000_000, 1_000_000) == 3.0
    assert found.most(1_000_000, 0) == 1.0
    assert reduced_price(found, "openai", "gpt-4o-mini", BATCH) is found
    assert reduced_price(None, "openai", "gpt-4o-mini", BATCH) is None


def test_the_table_has_prices_of_batches():
    pytest.importorskip("genai_prices")
    usual = find_price("openai", "gpt-4o-mini")
    found = reduced_price(usual, "openai", "gpt-4o-mini", BATCH)
    assert found.of(10_000, 10_000) == pytest.approx(usual.of(10_000, 10_000) / 2)
    assert find_price("openai", "gpt-4o-mini", {"processing": "never"}) is None


def test_a_model_of_another_kind_has_no_batches(tmp_path):
    script = tmp_path / "script.json"
    script.write_text('{"prompt": "a", "reply": "b"}')
    assert find_service(Scripted({})) is None
    with pytest.raises(ValueError, match="scripted has no batches"):
        open_model(f"scripted/{script}", mode="batch")


def test_a_model_in_batches_says_so_and_has_a_direct_twin():
    caller = open_model("mine/m", lanes={"mine": LANE}, mode="batch")
    assert "in batches" in repr(caller)
    assert caller.share == 0.5
    assert caller.direct.price is LANE.price
    assert "OpenAIBatches of mine/m" in repr(caller.service)
    free = replace(LANE, price=FlatPrice(0.0, 0.0))
    assert open_model("mine/m", lanes={"mine": free}, mode="batch").share is None
