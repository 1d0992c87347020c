"""`--batch`: calls in batches, for half the price, of every job that asks models."""

import json
import re
from collections import Counter

import pytest

from benchmarks.batch_kills import kill_and_resume
from tests.cli.storms import start_storm

LANE = """
[lanes.storm]
kind = "openai"
base_url = "{url}/v1"
price = {{input = 1.0, output = 2.0}}
batch = {{size = 50, age = {age}, poll = 0.02, longest_poll = 0.1, settle = 0.2}}
"""
LINES = "".join(f"line {number}\n" for number in range(30)).encode()
ASKED = ("map", "--prompt", "Say {}", "-m", "storm/m", "--max-tokens", "20", "--seed", "1")
FLOW = """
schema_version: "1.0"
workflow: {id: flow}
steps:
  - {id: words, type: shell, run: "echo [1,2,3,4]", output_format: json}
  - id: each
    type: fan-out
    items: "{{ steps.words.output.data }}"
    max_concurrency: 2
    step: {id: ask, type: prompt, model: storm/m, prompt: "Say {{ item }}", max_tokens: 30}
"""
STUDY = """
matrix:
  name: study
  models: [storm/m]
  inputs: [{id: a, text: one}, {id: b, text: two}, {id: c, text: three}]
  strategies:
    plain: {prompt: "Say {{ input.text }}", max_tokens: 3000}
    sung: {prompt: "Sing {{ input.text }}", max_tokens: 3000}
  scores:
    - {judge: "is a song", name: song, model: storm/first}
    - {judge: "is short", name: short, model: storm/second}
"""


def usd_in(said):
    return float(re.findall(r"([\d.]+) usd", said.err)[-1])


def times_paid(storm):
    return Counter(Counter(row["key"] for row in storm.batches() if row["billed"]).values())


def with_lane(abreast, storm, age=0.2):
    abreast.file("abreast.toml", LANE.format(url=storm.url, age=age))


def test_a_run_can_be_left_and_resumed_and_costs_half(abreast):
    with start_storm(batch_seconds=3600, batch_fault_at={1: "lost"}) as storm:
        with_lane(abreast, storm)
        left = abreast(*ASKED, "--batch", "--batch-wait", "0", given=LINES)
        assert (left.code, left.out) == (3, "")
        assert "30 calls of storm/m wait in" in left.err
        assert "abreast resume map-1" in left.err
        storm.end_batches()
        resumed = abreast("resume", "--batch-wait", "1min")
        assert resumed.code == 0, resumed.err
        assert times_paid(storm) == {1: 30}
        direct = abreast(*ASKED, given=LINES)
        assert resumed.out == direct.out
        assert usd_in(resumed) == pytest.approx(usd_in(direct) / 2, rel=1e-3)


def test_a_dry_run_says_both_prices(abreast):
    with start_storm() as storm:
        with_lane(abreast, storm)
        said = abreast(*ASKED, "--batch", "--dry-run", given=LINES)
        assert (said.code, len(said.lines)) == (0, 30)
        directly, batched = map(float, re.findall(r"([\d.]+) usd", said.err))
        assert batched == pytest.approx(directly / 2)
        abreast.file("flow.yaml", FLOW)
        assert "usd in batches" in abreast("run", "flow.yaml", "--batch", "--dry-run").out
        abreast.file("study.yaml", STUDY)
        assert "in batches: " in abreast("matrix", "run", "study.yaml", "--batch", "--dry-run").out
        sampled = abreast("sample", "A word", "-m", "storm/m", "--batch", "--dry-run")
        assert "; in batches " in sampled.out
        assert storm.batches() == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("-m", "local/smollm2", "--batch"), "--batch: local has no batches"),
        (("-m", "storm/m", "--batch-wait", "3s"), "--batch-wait is for --batch"),
        (("-m", "storm/m", "--batch", "--batch-wait", "soon"), "--batch-wait: must be a time"),
        (("-m", "storm/m", "--batch", "--batch-fallback", "x"), "must be one of batch, direct"),
        (("-m", "ollama/m", "--tier", "flex"), "--tier: ollama has no tier flex"),
        (("-m", "storm/m", "--tier", "slow"), "tier must be one of flex"),
        (("-m", "storm/m", "--batch", "--timeout", "3s"), "--timeout is for direct calls"),
        (("-m", "storm/m", "--batch", "--warm"), "--warm sends one call ahead"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(abreast, options, sentence):
    abreast.file("abreast.toml", LANE.format(url="http://127.0.0.1:9", age=1))
    said = abreast("map", "--prompt", "Say {}", *options, given=b"a\n")
    assert said.code == 2
    assert sentence in said.err


def test_the_tier_goes_with_every_request_at_its_price(abreast):
    with start_storm() as storm:
        with_lane(abreast, storm)
        flex, usual = (abreast(*ASKED, *more, given=LINES) for more in (("--tier", "flex"), ()))
        assert flex.out == usual.out
        assert usd_in(flex) == pytest.approx(usd_in(usual) / 2, rel=1e-3)


def test_the_items_of_a_fan_out_wait_in_one_batch_at_any_width(abreast):
    with start_storm() as storm:
        with_lane(abreast, storm, age=1.0)
        abreast.file("flow.yaml", FLOW)
        batched = abreast("run", "flow.yaml", "--batch", "--seed", "1")
        assert batched.code == 0, batched.err
        assert Counter(row["batch"] for row in storm.batches()) == {1: 4}
        assert abreast("run", "flow.yaml", "--seed", "1").out == batched.out


def test_a_sample_draws_and_judges_in_batches(abreast):
    with start_storm(strict="openai-reasoning") as storm:
        with_lane(abreast, storm)
        asked = ("sample", "A word", "-m", "storm/m", "--max-tokens", "3000", "--judge", "storm/j")
        asked += ("--check", "judge: is a word", "--breadth", "2")
        batched = abreast(*asked, "--batch")
        assert batched.code == 0, batched.err
        assert {row["model"] for row in storm.batches()} == {"m", "j"}
        assert abreast(*asked).out == batched.out


def rows_of(abreast, store):
    said = abreast("export", "study-1", "--store", store, "--json")
    cells = [row for row in said.rows if "scores" in (row.get("value") or {})]
    return [(row["key"], row["value"]["scores"], row["requests"]) for row in cells], [
        row["usd"] for row in cells
    ]


def test_a_study_with_judges_goes_in_waves_and_has_the_rows_of_a_direct_one(abreast):
    with start_storm(strict="openai-reasoning", batch_seconds=0.05) as storm:
        with_lane(abreast, storm, age=0.5)
        abreast.file("study.yaml", STUDY)
        asked = ("matrix", "run", "study.yaml", "--no-report", "--seed", "1")
        assert abreast(*asked, "--store", "direct.db").code == 0
        said = abreast(*asked, "--store", "batched.db", "--batch")
        assert said.code == 0, said.err
        waves = [(row["batch"], row["model"]) for row in storm.batches() if row["billed"]]
        assert sorted({model for _, model in waves}) == ["first", "m", "second"]
        assert [model for _, model in sorted(waves)][:1] == ["m"]
    batched, spent = rows_of(abreast, "batched.db")
    direct, usual = rows_of(abreast, "direct.db")
    assert len(batched) == 6
    assert batched == direct
    assert sum(spent) == pytest.approx(sum(usual) / 2)


def test_a_map_in_batches_that_is_killed_pays_for_each_item_once(tmp_path):
    found = kill_and_resume(tmp_path, items=40, kills=2, seed=11, size=20, in_submissions=True)
    assert found.kills == 2
    assert found.phases == {"in a submission": 2}
    assert found.is_right, json.dumps({name: str(getattr(found, name)) for name in found.__slots__})


def test_watch_shows_what_waits_and_what_was_saved(abreast):
    with start_storm(batch_seconds=3600) as storm:
        with_lane(abreast, storm)
        abreast(*ASKED, "--batch", "--batch-wait", "0", given=LINES)
        assert "with 30 calls" in abreast("watch", "--once", "map-1").out
        storm.end_batches()
        assert abreast("resume", "-q", "--batch-wait", "1min").code == 0
        said = abreast("watch", "--once", "--json", "map-1")
        batches = json.loads(said.lines[-1])["batches"]
        assert (batches["waiting"], batches["calls_answered"]) == (0, 30)
        assert batches["saved_usd"] > 0


def test_cancelling_a_parked_run_cancels_its_batches_and_resuming_asks_again(abreast):
    with start_storm(batch_seconds=3600) as storm:
        with_lane(abreast, storm)
        abreast(*ASKED, "--batch", "--batch-wait", "0", given=LINES)
        said = abreast("cancel", "map-1")
        assert "at the provider" in said.err
        assert {row["state"] for row in storm.batches()} == {"cancelled"}
        storm.change(batch_seconds=0.0)
        resumed = abreast("resume", "map-1", "--batch-wait", "1min")
        assert (resumed.code, len(resumed.lines)) == (0, 30), resumed.err
        assert times_paid(storm) == {1: 30}


def test_asking_once_is_direct_whatever_the_lane_says(abreast):
    with start_storm() as storm:
        abreast.file("abreast.toml", LANE.format(url=storm.url, age=1) + 'mode = "batch"\n')
        said = abreast("ask", "Hello", "-m", "storm/m", "--max-tokens", "9")
        assert said.code == 0, said.err
        assert storm.batches() == []
