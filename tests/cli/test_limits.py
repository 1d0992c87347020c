"""Limits shown by `abreast show RUN --limits`, `abreast watch --limits` and `abreast models`."""

from xml.etree import ElementTree as ET

import pytest

from abreast.cli.terminal.drawing import Canvas
from abreast.cli.terminal.limit_drawing import draw, snapshot, summary_line, svg
from abreast.core.events import Event
from abreast.views.limits import LimitChart
from tests.cli.storms import start_storm


def decided(dimension, old, new, cause):
    return {"dimension": dimension, "old": old, "new": new, "cause": cause}


@pytest.fixture
def chart():
    """Two lanes: one grows, is turned away once and goes on; the other has one call in flight."""
    found = LimitChart(whole=True)
    happened = [
        (0.0, "run-started", "r", None, {}),
        (0.1, "call-started", "r/m/0/call/a-0", "openai", {}),
        (1.0, "call-settled", "r/m/0/call/a-0", "openai", {"state": "done"}),
        (1.0, "limit-changed", "r/m/0", "openai", decided("concurrency", 1.0, 4.0, "room")),
        (1.0, "limit-changed", "r/m/0", "openai", decided("requests", None, 600.0, "header")),
        *((1.1 + n / 10, "call-started", f"r/m/{n}/call/a-0", "openai", {}) for n in range(1, 4)),
        (
            2.0,
            "limit-changed",
            "r/m/3",
            "openai",
            decided("concurrency", 4.0, 2.0, "429") | {"held": 0.5},
        ),
        (3.0, "call-started", "r/m/3/call/a-0", "openai", {}),
        (3.0, "call-started", "r/m/9/call/b-0", "other", {}),
        (9.0, "call-settled", "r/m/3/call/a-0", "openai", {"state": "done"}),
    ]
    for number, (when, kind, path, lane, data) in enumerate(happened):
        found.add(Event(number + 1, kind, path, 100.0 + when, 1e9 + when, lane, data))
    return found


def test_calls_are_in_flight_from_their_start_until_they_settle_or_are_turned_away(chart):
    flow = chart.flows["openai"]
    assert (flow.flying.value, flow.peak, flow.calls, flow.rejections) == (2, 3, 2, 1)
    assert chart.flows["other"].flying.value == 1
    assert [high for _, high, _ in flow.flying.steps][-4:] == [3, 3, 3, 3]
    chart.cut()
    assert [each.flying.value for each in chart.flows.values()] == [0, 0]


def test_the_picture_has_every_lane_its_decisions_and_why(chart):
    said = draw(chart, "r-1", "done", chart.now, Canvas(width=80)).plain
    assert (
        "openai  2 in flight, 3 at most, 2 allowed, 600 rpm, 2 calls, 1 times turned away" in said
    )
    assert "concurrency 1 -> 4 (room)" in said
    assert "requests ? -> 600 (header)" in said
    assert "concurrency 4 -> 2 (429, held for 0.5 s)" in said
    assert all(len(line) <= 80 for line in said.splitlines())
    plain = draw(chart, "r-1", "done", chart.now, Canvas(width=80, ascii=True)).plain
    assert plain.isascii()
    assert summary_line(chart, "r-1", "done", 9.0).startswith(
        "r-1 done for 9 s: openai: 2 in flight"
    )


def test_the_same_in_json_and_as_an_svg(chart):
    told = snapshot(chart, "r-1", "done", chart.now)
    cut = told["lanes"][0]["decisions"][-1]
    assert cut == {
        "at": pytest.approx(2.0),
        "dimension": "concurrency",
        "old": 4.0,
        "new": 2.0,
        "cause": "429",
        "held": 0.5,
    }
    drawn = svg(chart, "r-<1>", "done", chart.now)
    texts = [each.text for each in ET.fromstring(drawn).iter() if each.text]
    assert "r-<1>" in texts
    assert "turned away" in texts


def test_a_run_shows_what_its_limits_did_and_what_was_learned_is_listed(abreast):
    # So slow that several are in flight, however long it takes to send them.
    with start_storm(rpm=6000, latency=0.3) as storm:
        abreast.file(
            "abreast.toml",
            (
                f'[lanes.a]\nbase_url = "{storm.url}/v1"\n[lanes.b]\n'
                f'base_url = "{storm.url}/v1"\nwidth = 3\n'
            ),
        )
        asked = abreast(
            "map",
            "--prompt",
            "say {}",
            "--model",
            "a/storm",
            given="".join(f"{n}\n" for n in range(40)),
        )
        assert asked.code == 0
        assert storm.stats().peak_in_flight > 4
    said = abreast("show", "last", "--limits")
    assert "6,000 rpm, 40 calls, 0 times turned away" in said.out
    assert "requests ? -> 6,000 (header)" in said.out
    assert abreast("show", "last", "--limits", "--json").rows[0]["lanes"][0]["calls"] == 40
    assert abreast("show", "last", "0001", "--limits").code == 2
    watched = abreast("watch", "--limits", "--svg", "limits.svg")
    assert "6,000 rpm" in watched.out
    assert (abreast.folder / "limits.svg").read_text().startswith("<svg")
    rows = {row["lane"]: row for row in abreast("models", "--json").rows}
    assert rows["a"]["learned"].startswith("6,000 rpm, ")
    assert (rows["b"]["learned"], rows["b"]["width"], rows["b"]["adaptive"]) == (None, 3, False)
    assert "found out" in abreast("models").out


def test_plain_commands_have_no_limits_to_show(abreast):
    abreast("map", "--", "echo", given="1\n")
    assert "no call to a model is recorded" in abreast("show", "last", "--limits").out
