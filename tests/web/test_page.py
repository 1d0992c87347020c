"""The page in a real Chromium: opened, followed, drilled into, acted on.

With a mouse, with keys only, on a phone.
"""

import asyncio
import functools
import re
import threading
from contextlib import suppress

import pytest

from abreast import Slots, current, open_run
from abreast.web.pages import PageSource, head, lanes
from tests.web.conftest import another_program, serving

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = functools.partial(sync_api.expect)

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
LINK = "javascript:window.hacked=1"


def made(store, count=40, name="made", texts=lambda item: f"reply to {item}", **more):
    """A run of `count` items, of which every tenth fails."""

    async def work(item):
        for _ in range(item % 7):
            await asyncio.sleep(0)
        if item % 10 == 9:
            raise ValueError(f"{texts(item)} failed")
        return texts(item)

    async def drive():
        async with open_run(
            name, store=store.path, lanes={"slots": Slots(4)}, seed=1, **more
        ) as run:
            async for _ in run.map(work, range(count), width=8, lane="slots"):
                pass

    # In a thread, since Playwright has an event loop in this one.
    thread = threading.Thread(target=lambda: asyncio.run(drive()))
    thread.start()
    thread.join(60)
    return f"{name}-1"


def source_of(store, run):
    """What the page is made from, with the run read."""
    source = PageSource(store)
    head(source, run, {})
    return source


def window(page):
    """From when to when the lanes are seen."""
    box = page.locator("#lanes")
    return float(box.get_attribute("data-begin")), float(box.get_attribute("data-end"))


def ink(page):
    """How many pixels of the first lane are drawn in."""
    return page.evaluate(
        """() => {
          const canvas = document.querySelector(".lane canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return data.filter((value, at) => at % 4 === 3 && value > 40).length;
        }"""
    )


def test_runs_appear_and_move_while_the_page_is_open(served, open_page, driven):
    page = open_page(served)
    expect(page.locator("tbody")).to_contain_text("No runs yet")
    with driven(list(range(8)), width=2) as run:
        row = page.locator("tr[data-run='held-1']")
        expect(row).to_contain_text("running")
        row.get_by_role("link").click()
        expect(page.locator("h1")).to_have_text("held-1")
        lane = page.locator(".lane")
        expect(lane).to_contain_text("2 running")
        run.open(0, 1, 2)
        expect(lane).to_contain_text("3 done")
        run.ended()
        expect(page.locator(".title .badge")).to_have_text("done")
        expect(lane).to_contain_text("8 done")
    expect(page.locator("#items tbody tr")).to_have_count(8)


def test_a_row_that_is_pressed_stays_under_the_pointer_until_it_is_released(
    served, open_page, driven
):
    def fail(item):
        raise ValueError(f"{item} failed")

    with driven(list(range(4)), width=2, work=fail) as run:
        page = open_page(served, "/run/held-1")
        row = page.locator("#items tbody tr", has_text="0000")
        row.hover()
        before = row.bounding_box()
        page.mouse.down()
        # A busy page asks again only after a minute, and what it asked before is held back too.
        with suppress(sync_api.TimeoutError), page.expect_response("**/items.json*", timeout=8_000):
            run.open(0, 1)
            expect(page.locator(".head .facts")).to_contain_text("Failed")
        # By then it would have been drawn.
        page.evaluate("() => new Promise((go) => setTimeout(() => requestAnimationFrame(go), 100))")
        assert row.bounding_box() == before
        page.mouse.up()
        expect(page.locator("#item h2")).to_have_text("0000")
        page.keyboard.press("Escape")
        expect(page.locator("#errors")).to_contain_text("ValueError")
        assert row.bounding_box() == before  # what comes later stands below


def test_a_bar_and_a_row_lead_to_prompt_reply_and_traceback(store, open_page):
    run = made(store)
    with serving(store, prompt_of=lambda row, key, value: f"What about {key}?") as served:
        page = open_page(served, f"/run/{run}")
        page.locator("#items tbody tr", has_text="0003").click()
        panel = page.locator("#item")
        expect(panel.get_by_label("Prompt")).to_have_text("What about 0003?")
        expect(panel.get_by_label("Reply")).to_have_text("reply to 3")
        expect(panel).to_contain_text("service")
        assert "item=made" in page.url
        page.go_back()
        expect(panel).not_to_be_visible()
        page.get_by_role("button", name="ValueError").click()
        expect(page.locator("#items tbody tr")).to_have_count(4)
        page.locator("#items tbody tr").first.click()
        panel.get_by_text("Traceback", exact=True).click()
        expect(panel).to_contain_text("Traceback (most recent call last)")
        panel.get_by_label("Close").click()
        canvas = page.locator(".lane canvas")
        seen = lanes(source_of(store, run), run, {})
        rows = enumerate(seen["lanes"][0]["rows"])
        bars = [
            (row[at + 2] - row[at + 1], row[at + 1], index)
            for index, row in rows
            for at in range(0, len(row), 6)
        ]
        took, start, index = max(bars)  # the longest, which is easily met
        begin, end = window(page)  # a short run does not fill it
        part = (start + took / 2 - begin) / (end - begin)
        at = {"x": canvas.bounding_box()["width"] * part, "y": 66 + 16 * index + 6}
        canvas.hover(position=at)
        expect(page.locator(".tip")).to_contain_text("took")
        canvas.click(position=at)
        expect(panel.locator("h2")).to_have_text(re.compile(r"^00\d\d$"))


def test_items_are_filtered_sorted_and_searched(store, served, open_page):
    page = open_page(served, f"/run/{made(store, 120)}")
    rows = page.locator("#items tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_label("State of items").select_option("failed")
    expect(rows).to_have_count(12)
    page.get_by_label("Search items").fill("003")
    expect(rows).to_have_count(1)
    page.get_by_label("Search items").fill("")
    page.get_by_label("State of items").select_option("")
    page.locator("#items [data-sort=key]").click()
    page.locator("#items [data-sort=key]").click()
    expect(rows.first).to_contain_text("0119")
    page.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text("0069")
    expect(page.locator("#items th[aria-sort=descending]")).to_have_text("Item ↓")


def test_the_lanes_are_zoomed_by_buttons_keys_and_dragging(store, served, open_page):
    page = open_page(served, f"/run/{made(store, 200)}")
    expect(page.locator(".lane")).to_contain_text("180 done")
    expect(page.locator("#lanes")).to_have_attribute("data-end", re.compile(r"[1-9]"))
    begin, end = window(page)
    assert begin == 0
    assert ink(page) > 1000
    page.get_by_role("button", name="Zoom in").click()
    near = window(page)
    assert near[1] - near[0] == pytest.approx((end - begin) / 2, rel=0.01)
    page.locator("#lanes").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    nearer = window(page)
    assert nearer[1] - nearer[0] == pytest.approx((end - begin) / 4, rel=0.01)
    page.keyboard.press("0")
    assert window(page) == (begin, end)
    box = page.locator(".lane canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 80, steps=4)
    page.mouse.up()
    chosen = window(page)
    assert chosen[0] == pytest.approx(0.25 * end, rel=0.05)
    assert chosen[1] == pytest.approx(0.5 * end, rel=0.05)
    page.get_by_role("button", name="The whole run").click()
    assert window(page) == (begin, end)


def test_a_run_is_cancelled_from_the_page_after_a_question(served, open_page, driven, store):
    with driven(list(range(4)), width=2) as run:
        page = open_page(served, "/run/held-1")
        page.get_by_role("button", name="Cancel").hover()
        page.mouse.down()
        run.open(0)
        expect(page.locator(".head .facts")).to_contain_text("Items1")
        page.mouse.up()  # on the same button, though news came in between
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Let it run").click()
        assert store.asked("held-1") == []
        page.get_by_role("button", name="Cancel").click()
        dialog.get_by_label("Reason").fill("seen enough")
        dialog.get_by_role("button", name="Cancel the run").click()
        expect(page.locator(".title .badge")).to_have_text("cancelled")
        expect(page.locator(".reason")).to_have_text("seen enough")
        run.ended()
    assert type(run.error).__name__ == "CancelRequested"
    assert store.get("held-1").reason == "seen enough"


def test_an_agents_item_shows_its_steps_its_cost_and_a_diff_for_each_file(store, open_page):
    def patch(name):
        head = f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n"
        return f"{head}@@ -1 +1 @@\n-old\n+{EVIL}\n"

    def texts(item):
        current().note("agent-step", number=1, text=f"look at {item} {EVIL}", usd=0.125)
        tree = {"changed": ["a.py", "b.py"], "commit": "c", "patch": patch("a.py") + patch("b.py")}
        return {"text": "did it", "agent": {"name": "stub", "cost": 0.25}, "tree": tree}

    run = made(store, 2, texts=texts)
    with serving(store) as served:
        page = open_page(served, f"/run/{run}")
        page.locator("#items tbody tr", has_text="0001").click()
        panel = page.locator("#item")
        expect(panel.get_by_label("Steps")).to_contain_text("look at 1 <img")
        expect(panel.locator(".agent dl")).to_contain_text("0.25")
        expect(panel.locator(".diffs summary code")).to_have_text(["a.py", "b.py"])
        expect(panel.locator(".diffs [data-line=added]").first).to_contain_text("<script>")
        expect(panel.locator(".diffs [data-line=removed]").first).to_contain_text("-old")
        expect(panel.get_by_label("Reply")).to_have_text("did it")
        assert panel.locator("img, script").count() == 0


def test_nothing_that_a_run_says_can_run(store, open_page):
    huge = "<b>" + "y" * 300_000

    def texts(item):
        return {0: EVIL, 1: LINK, 2: huge}.get(item, EVIL)

    run = made(store, 10, name=f"x{EVIL}".replace("/", "-"), texts=texts, tags=[EVIL])
    with serving(store, prompt_of=lambda *_: EVIL) as served:
        page = open_page(served)
        expect(page.locator("tbody")).to_contain_text("<script>")
        page.locator("tbody a").first.click()
        expect(page.locator("h1")).to_contain_text("onerror")
        expect(page.locator("#errors")).to_contain_text("<script>")
        panel = page.locator("#item")
        for key, shown in (("0000", EVIL), ("0001", LINK), ("0002", "<b>yyyy")):
            page.locator("#items tbody tr", has_text=key).click()
            expect(panel.get_by_label("Reply")).to_contain_text(shown)
            assert panel.locator("img, script, b:not(.failure b)").count() == 0
            panel.get_by_label("Close").click()
        assert "100,000 of 300,003" in page.evaluate("document.querySelector('#item').textContent")
        assert page.evaluate(
            "[...document.querySelectorAll('a')].every((a) => a.protocol === 'http:')"
        )
        assert page.evaluate("window.hacked") is None
        assert run


def test_an_inline_script_is_blocked_by_the_policy(served, browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto(served.address())
    with page.expect_console_message(lambda said: "Content Security Policy" in said.text):
        page.evaluate(
            "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; "
            "document.body.append(s)"
        )
    assert page.evaluate("window.hacked") is None
    context.close()


@pytest.mark.parametrize(
    ("scheme", "paper"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 28)")]
)
def test_it_is_legible_in_both_themes_and_on_a_phone(store, served, open_page, scheme, paper):
    run = made(store)
    page = open_page(
        served, f"/run/{run}", color_scheme=scheme, viewport={"width": 400, "height": 800}
    )
    expect(page.locator("#items tbody tr")).to_have_count(40)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.locator("#items tbody tr").first.click()
    expect(page.locator("#item h2")).to_be_visible()
    assert page.locator("#item").bounding_box()["width"] <= 400
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    page.goto(served.address())
    expect(page.locator("tr[data-run]")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_it_is_used_by_keys_alone(store, served, open_page):
    made(store)
    page = open_page(served)
    expect(page.locator("tr[data-run]")).to_be_visible()

    def tab_to(selector, most=80):
        for _ in range(most):
            page.keyboard.press("Tab")
            if page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
                assert (
                    page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                )
                return
        pytest.fail(f"no way by Tab to {selector}")

    tab_to("tbody a")
    page.keyboard.press("Enter")
    expect(page.locator("#items tbody tr")).to_have_count(40)
    expect(page.locator(".lane")).to_contain_text("36 done")
    tab_to("#lanes")
    page.keyboard.press("ArrowDown")
    page.keyboard.press(".")
    expect(page.locator(".unseen[role=status]")).to_contain_text("row")
    page.keyboard.press("Enter")
    panel = page.locator("#item")
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).not_to_be_visible()
    tab_to("#items button.open")
    page.keyboard.press("Enter")
    expect(panel.get_by_label("Reply")).to_be_visible()
    page.keyboard.press("Escape")
    tab_to("#about summary", 200)


def test_a_run_that_is_removed_says_so(store, served, open_page):
    run = made(store)
    page = open_page(served, f"/run/{run}")
    expect(page.locator("#link")).to_have_text("live")
    open_page.forgiven.append("404")
    store.remove(run)
    expect(page.locator("#link")).to_contain_text("there is no run")


def test_all_is_from_here(store, served, open_page):
    run = made(store)
    asked = []
    page = open_page(served)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(served.address(f"/run/{run}"))
    expect(page.locator("#items tbody tr")).to_have_count(40)
    assert asked
    assert all(url.startswith(f"http://127.0.0.1:{served.port}{served.base}") for url in asked)


def test_a_browser_sends_the_cookie_to_no_other_port(store, served, open_page):
    page = open_page(served, f"/run/{made(store)}")
    expect(page.locator("#items tbody tr")).to_have_count(40)
    with another_program() as other:
        page.goto(f"http://127.0.0.1:{other.server_port}/run/x")
        page.goto(f"http://127.0.0.1:{served.port}{served.base}")  # by the cookie alone
        expect(page.locator("tr[data-run]")).to_have_count(1)
    assert other.seen
    assert [headers["Cookie"] for headers in other.seen if "Cookie" in headers] == []
