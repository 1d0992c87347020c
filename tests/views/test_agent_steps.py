"""What agents do, as the terminal and the page show it."""

from itertools import count

from abreast.cli.terminal.drawing import Canvas
from abreast.cli.terminal.lane_drawing import draw, snapshot
from abreast.core import events as kinds
from abreast.core.events import Event
from abreast.core.usage import Usage
from abreast.jobs.candidates.view import CandidatesLive
from abreast.jobs.map.view import MapLive
from abreast.jobs.plan.spec import SUBPLANS
from abreast.jobs.plan.view import PlanLive
from abreast.jobs.sample.draw_context import DRAW_ENDED
from abreast.jobs.sample.view import SampleLive
from abreast.jobs.workflow.view import WorkflowLive
from abreast.run.outcome_record import usage_facts
from abreast.views.item import split_patch, tree_facts, work_of
from abreast.views.lanes import LaneChart
from abreast.views.progress import Costs

PATCH = """diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -1,2 +1,2 @@
--- x
+++ y
 z
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-diff --git a/q b/q
diff --git a/b.bin b/b.bin
new file mode 100644
GIT binary patch
"""


def journal():
    """Two agents that run, of which the first has two steps."""
    numbers = count(1)

    def event(kind, path, **data):
        number = next(numbers)
        return Event(number, kind, path, float(number), float(number), "stub", data)

    yield event(kinds.RUN_STARTED, "run")
    yield event(kinds.MAP_STARTED, "run/items", width=2)
    for key in ("a", "b"):
        yield event(kinds.ITEM_STARTED, f"run/items/{key}", attempt=1)
    yield event(kinds.AGENT_STEP, "run/items/a", number=1, text="look")
    yield event(kinds.AGENT_STEP, "run/items/b", number=1, text="write\n  b.py\x1b[2J")
    yield event(kinds.AGENT_STEP, "run/items/a", number=2, text="run make", usd=0.1)


def settled(path):
    return Event(99, kinds.ITEM_SETTLED, path, 99.0, 99.0, "stub", {"state": "done"})


def test_watch_shows_the_last_step_of_each_agent_that_runs():
    chart = LaneChart()
    for event in journal():
        chart.add(event)
    drawn = draw(chart, "run", "running", 9.0, Canvas(80, 24)).plain.splitlines()
    assert [line.split() for line in drawn[-2:]] == [
        ["a", "run", "make"],
        ["b", "write", *drawn[-1].split()[2:]],
    ]
    assert "\x1b" not in drawn[-1]
    found = snapshot(chart, "run", "running", 9.0)["agents"]
    assert [one["key"] for one in found] == ["a", "b"]
    chart.add(settled("run/items/a"))
    chart.add(settled("run/items/b"))
    assert "agents" not in snapshot(chart, "run", "running", 9.0)


def test_a_step_that_is_recorded_before_the_start_of_its_item_is_shown():
    chart = LaneChart()
    for event in sorted(journal(), key=lambda event: event.kind == kinds.ITEM_STARTED):
        chart.add(event)
    found = snapshot(chart, "run", "running", 9.0)["agents"]
    assert [one["key"] for one in found] == ["a", "b"]
    chart.add(Event(99, kinds.RUN_RESUMED, "run", 99.0, 99.0, None, {}))
    assert "agents" not in snapshot(chart, "run", "running", 9.0)


def test_the_live_lines_show_them_until_their_items_end():
    for live in (MapLive("run"), WorkflowLive()):
        for event in journal():
            changed = live.add(event)
        assert changed
        assert "a: run make | b: write b.py" in " ".join(text for text, _ in live.parts())
        live.add(settled("run/items/a"))
        assert "run make" not in " ".join(text for text, _ in live.parts())


def test_the_live_line_of_a_sample_shows_them_until_their_draws_end():
    live = SampleLive()
    for event in journal():
        changed = live.add(event)
    assert changed
    assert "a: run make | b: write b.py" in " ".join(text for text, _ in live.parts())
    live.add(Event(98, DRAW_ENDED, "run/items/a", 98.0, 98.0, "stub", {"branch": 0, "round": 0}))
    live.add(settled("run/items/b"))
    assert "run make" not in " ".join(text for text, _ in live.parts())
    assert "write" not in " ".join(text for text, _ in live.parts())


def test_the_live_line_of_a_plan_counts_subplans_and_shows_them():
    live = PlanLive()
    for event in journal():
        changed = live.add(event._replace(path=event.path.replace("/items", f"/{SUBPLANS}")))
    assert changed
    assert [text for text, _ in live.parts() if text] == [
        "0 done",
        "2 running",
        "a: run make | b: write b.py\x1b[2J",
    ]
    live.add(settled(f"run/{SUBPLANS}/a"))
    assert not live.add(settled(f"run/{SUBPLANS}/b/beneath"))
    assert next(text for text, _ in live.parts()) == "1 done"
    assert "run make" not in " ".join(text for text, _ in live.parts())


def test_the_live_line_of_candidates_shows_the_agents_that_write_them():
    live = CandidatesLive()
    for event in journal():
        changed = live.add(event)
    assert changed
    assert "a: run make" in " ".join(text for text, _ in live.parts())
    live.add(settled("run/items/a"))
    assert "run make" not in " ".join(text for text, _ in live.parts())


def test_what_a_parked_call_had_used_is_in_the_sums():
    costs = Costs()
    used = {**usage_facts(Usage(1, 7, 3, 0.1)), "model": "stub", "state": "cancelled"}
    assert costs.add(used) == {}
    costs.add({**used, "parked": True})
    assert costs.total["usd"] == 0.1


def test_a_patch_is_divided_by_file_and_only_lines_of_hunks_are_counted():
    found = [(one["file"], one["added"], one["removed"]) for one in split_patch(PATCH)]
    assert found == [("a.py", 1, 1), ("gone", 0, 1), ("b.bin", 0, 0)]
    assert "".join(str(one["diff"]) for one in split_patch(PATCH)) == PATCH


def test_the_work_of_an_item_is_found_in_its_value_or_in_the_output_of_a_step():
    tree = {"changed": ["a.py"], "commit": "c", "patch": PATCH}
    assert work_of({"text": "", "agent": {"name": "stub"}, "tree": tree}) == (
        {"name": "stub"},
        tree,
    )
    assert work_of({"type": "shell", "output": {"tree": tree}}) == ({}, tree)
    assert work_of("text") == ({}, {})
    assert tree_facts({"changed": None, "patch": 3})["files"] == []
