"""The views of jobs in a real Chromium: drawing, keys, live updates, and hostile texts."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from abreast.core.errors import ServerFault
from abreast.core.outcome import Usage
from abreast.run.outcome_record import usage_facts
from tests.jobs.matrix.benches import simple
from tests.jobs.matrix.test_view import studied
from tests.jobs.plan.test_view import plan_of, planned
from tests.jobs.sample.drawing import at
from tests.jobs.sample.test_view import sampled
from tests.jobs.workflow.kits import FakeKit, each, fan, flow, gate, go, step
from tests.web.jobs.viewing import Hand

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect

EVIL = (
    "<img src=x onerror='window.hurt=1'><script>window.hurt=1</script> "
    "javascript:window.hurt=1 \u202e"
)
PART = EVIL.replace("/", "%2F")
PHONE = {"viewport": {"width": 400, "height": 800}, "color_scheme": "dark"}


def driven(coroutine):
    """Drive it in a thread of its own: Playwright has a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result(60)


def made_sample(store):
    driven(sampled(store, at((1, 1)), breadth=3, depth=3))
    return "sample-1"


def made_workflow(store):
    steps = (
        step("first", needs=[]),
        step("beside", needs=[]),
        fan([1, 2, 3], each("do"), needs=["first", "beside"]),
    )
    driven(
        go(
            flow(*steps, gate("look", message="Shall it?", needs=["fan"])),
            FakeKit(),
            store=store,
            kind="workflow",
        )
    )
    return "flow-1"


def made_matrix(store):
    def answers(prompt):
        if prompt.endswith("2"):
            raise ServerFault("no more")
        return f"T{prompt[-1]}" if prompt.startswith("say") else "no"

    driven(studied(store, simple(more="controls: [truth]"), {"a/one": answers, "b/two": answers}))
    return "s-1"


def made_plan(store):
    async def work(leaf):
        if leaf.scope == "part01/":
            raise RuntimeError("it broke")
        return {"files": list(leaf.files), "changed": ["shared.py"]}

    driven(planned(store, plan_of(3), work))
    return "plan-1"


def made_candidates(store, text="def f(x):\n    return 1 + x\n", said="too slow"):
    original = "def f(x):\n    return x + 1\n"
    facts = {"target": "m.py::f", "original": original, "spec": {"threshold": 0.02}}
    hand = Hand(store, "candidates", "optimize", {"candidates": facts})
    texts = [text, "def f(x):\n    return x\n", "def f(x):\n    return x - -1\n"]
    names = ["quick", "odd", "slow"]
    common = {"origin": "file", "parent": None, "fault": None, "reason": ""}
    hand.settle(
        "optimize/sources",
        json.dumps(
            [{"name": name, "text": one, **common} for name, one in zip(names, texts, strict=True)]
        ),
    )
    diff = {
        "invocation": f"f({said!r})",
        "part": "returned",
        "outcome": "different",
        "path": "$",
        "original": said,
        "candidate": said,
        "reason": said,
    }
    for name, one, verdict in zip(names, texts, ("same", "wrong", "same"), strict=True):
        checked = {
            "verdict": verdict,
            "reason": said,
            "diffs": [diff] if verdict == "wrong" else [],
        }
        hand.settle(
            f"optimize/tries/candidate/{name}", json.dumps([{"text": one, "checked": checked}])
        )
    for name, ratio, verdict in (("quick", 3.0, "faster"), ("slow", 0.8, "slower")):
        timed = {
            "verdict": verdict,
            "reason": said,
            "ratio": ratio,
            "low": ratio * 0.9,
            "high": ratio * 1.1,
            "noise_floor": 0.03,
            "blocks": 10,
            "notes": ["one_long_name" * 12],
        }
        hand.settle(f"optimize/tries/measure/{name}", json.dumps(timed))
    hand.end()
    return hand.id


def made_map(store):
    hand = Hand(store, "map", "map")
    for n in range(9):
        hand.settle(f"map/items/{n:04}", json.dumps(f"rest {n % 2}"))
    hand.end()
    return hand.id


MADE = {
    "sample": (made_sample, "svg.sampletree .press", "Chosen: branch 1, round 1."),
    "workflow": (made_workflow, "svg.flow .press", "Shall it?"),
    "matrix": (made_matrix, "table.heatmap button", "Controls: truth"),
    "plan": (made_plan, ".plantree button", "it broke"),
    "candidates": (
        made_candidates,
        "table.candidates tbody button",
        "quick behaves like the original and is 3.00",
    ),
    "map": (made_map, "table.groups tbody button", "rest 1"),
}


@pytest.mark.parametrize("kind", MADE)
def test_each_view_is_drawn_chosen_from_by_keys_and_fits_a_phone(kind, store, served, open_page):
    make, part, said = MADE[kind]
    page = open_page(served, f"/run/{make(store)}", **PHONE)
    job = page.locator("#job")
    expect(job).to_contain_text(said)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    first = job.locator(part).first
    first.focus()
    page.keyboard.press("Enter")
    if kind == "map":
        expect(page.get_by_role("dialog")).to_contain_text("rest 0")
        return
    expect(first).to_have_attribute("aria-pressed", "true")
    expect(first).to_be_focused()  # though all was drawn anew
    opens = job.locator(".chosen button")
    if opens.count():
        opens.first.click()
        expect(page.get_by_role("dialog")).to_be_visible()


def test_the_sums_of_a_server_follow_its_calls_and_fit_a_phone(store, served, open_page):
    hand = Hand(store, "serve", "serve")

    def call(number, client):
        facts = {"client": client, "model": "openai/gpt-x", "tag": "draft", "type": ""}
        used = usage_facts(Usage(1, 1000, 2, 0.25))
        hand.settle(f"serve/calls/chat-{number}", json.dumps(facts), "done", number, **used)

    call(0, "notebook")
    page = open_page(served, f"/run/{hand.id}", **PHONE)
    clients = page.get_by_role("table", name="Calls by client").locator("tbody tr")
    expect(clients).to_have_text(["notebook11,0002$0.2500"])
    call(1, "notebook")
    call(2, "agent")
    expect(clients).to_have_text(["notebook22,0004$0.5000", "agent11,0002$0.2500"])
    expect(page.locator("#job table")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_arrows_lead_from_draw_to_draw(store, served, open_page):
    page = open_page(served, f"/run/{made_sample(store)}")
    first = page.locator("[data-key=draw-1]")
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-key=draw-2]")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-key=draw-5]")).to_be_focused()
    # The draw stays chosen until another one is.
    expect(page.locator("#job .chosen h3")).to_contain_text("Branch 1, round 1")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press(" ")
    expect(page.locator("#job .chosen h3")).to_contain_text("Branch 1, round 0")


def test_what_is_chosen_and_scrolled_stays_while_news_come_in(store, served, open_page):
    hand = Hand(store, "sample", "sample")
    rows = [f"sample/sample/branch/{branch:04}" for branch in range(30)]

    def draw(number, state):
        for branch, path in enumerate(rows):
            facts = {"branch": branch, "round": number, "number": branch * 2 + number + 1}
            hand.write(("draw-started", path, facts, None))
            if state:
                hand.write(("draw-ended", path, {**facts, "state": state}, None))

    hand.write(("sample-started", "sample/sample", {"breadth": 30, "depth": 2}, None))
    draw(0, "failed")
    page = open_page(served, f"/run/{hand.id}")
    tree = page.locator("#job .drawing")
    page.locator("[data-key=draw-59]").click()
    tree.evaluate("(box) => { box.scrollTop = 400; }")
    draw(1, "failed")
    hand.write(("sample-ended", "sample/sample", {"ok": False, "winner": 4}, None))
    expect(page.locator("[data-key=draw-60]")).to_be_attached()
    expect(page.locator("#job .verdict")).to_contain_text("The best of them: branch 1, round 1")
    expect(page.locator("[data-key=draw-59]")).to_be_focused()
    expect(page.locator("[data-key=draw-59]")).to_have_attribute("aria-pressed", "true")
    assert tree.evaluate("(box) => box.scrollTop") == 400


def test_hostile_texts_are_texts_in_every_view(store, served, open_page):
    runs = [made_candidates(store, f"def f(x):\n    return {EVIL!r}\n", EVIL)]
    for kind, path, body in (
        ("map", "evil/items/0000", json.dumps(EVIL)),
        ("serve", "evil/calls/chat-0", json.dumps({"type": "", "client": EVIL, "tag": EVIL})),
        ("plan", "evil/subplans/x", json.dumps({"files": [EVIL], "changed": [EVIL]})),
        ("matrix", f"evil/lane/{PART}~{PART}~i~0", json.dumps({"scores": {EVIL: 1.0}})),
    ):
        hand = Hand(store, kind, "evil", {kind: {"path": EVIL, "file": EVIL, "command": EVIL}})
        hand.settle(path, body)
        hand.end()
        runs.append(hand.id)
    steps = [
        {
            "id": EVIL,
            "type": EVIL,
            "needs": [EVIL],
            "beneath": [[EVIL, [{"id": "g", "type": "gate"}]]],
        }
    ]
    asked = {"message": EVIL, "options": [EVIL, "reject"], "show_file": EVIL, "on_reject": EVIL}
    hand = Hand(store, "workflow", "evil", {"workflow": {"file": EVIL}})
    hand.write(
        ("workflow-outlined", "evil", {}, json.dumps(steps)),
        ("gate-asked", f"evil/{PART}/g", {"gate": EVIL}, json.dumps(asked)),
    )
    hand.end("paused")
    runs.append(hand.id)
    hand = Hand(
        store,
        "sample",
        "evil",
        {"sample": {"prompt": EVIL, "model": EVIL, "strategy": EVIL, "pick": EVIL}},
    )
    facts = {"branch": 0, "round": 0, "number": 1}
    hand.write(
        ("sample-started", "evil/sample", {"breadth": 1, "depth": 1}, None),
        ("draw-started", "evil/sample/branch/0000", facts, None),
        ("draw-ended", "evil/sample/branch/0000", {**facts, "state": EVIL, "why": EVIL}, None),
    )
    hand.end()
    runs.append(hand.id)
    page = open_page(served)
    page.on("dialog", lambda dialog: pytest.fail(f"a text has opened {dialog.message!r}"))
    for run in runs:
        page.goto(served.address(f"/run/{run}"))
        expect(page.locator("#job")).to_contain_text("onerror=")
        assert page.evaluate("window.hurt") is None
        assert page.locator("#job img, #job script, #job a[href^=javascript]").count() == 0
