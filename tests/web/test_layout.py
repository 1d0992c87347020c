"""What moves on the page, and what must not: in a real Chromium."""

import json

import pytest

from tests.web.jobs.test_drawn import made_matrix
from tests.web.jobs.viewing import Hand, settled
from tests.web.test_page import made

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect

ONE_LINE = 30  # pixels; two are higher
MOST = 0.05  # what counts as moved: the part of the screen, and how far
_SHIFT = """() => new Promise((go) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) sum += one.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => go(sum), 50);
})"""


def reviews(store, name="reviews", texts=("good", "bad", "fine"), count=600):
    """A run with items on several pages of the table."""
    hand = Hand(store, "map", name)
    hand.write(
        *(
            settled(f"{name}/items/{n:04}", json.dumps(f"{texts[n % 3]} {n}"), index=n)
            for n in range(count)
        )
    )
    hand.end()
    return hand.id


def test_nothing_moves_while_runs_are_drawn(store, served, open_page):
    runs = [made(store), made_matrix(store), reviews(store)]
    page = open_page(served)
    expect(page.locator("tr[data-run]")).to_have_count(3)
    moved = {"/": page.evaluate(_SHIFT)}
    for size in ({"width": 1400, "height": 900}, {"width": 400, "height": 800}):
        page.set_viewport_size(size)
        for run in runs:
            page.goto(served.address(f"/run/{run}"))
            expect(page.locator("#about")).to_be_visible()
            moved[run, size["width"]] = page.evaluate(_SHIFT)
    assert {place: part for place, part in moved.items() if part >= MOST} == {}


def test_names_can_be_read_on_a_phone(store, served, open_page):
    reviews(store)
    study = made_matrix(store)
    page = open_page(served)
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(served.address("/"))
    names = page.locator("tr[data-run] th a")
    expect(names).to_have_count(2)
    heights = [name.bounding_box()["height"] for name in names.all()]
    assert max(heights) < ONE_LINE
    page.goto(served.address(f"/run/{study}"))
    first = page.locator("#items tbody tr .open").first
    expect(first).to_be_visible()
    shown, needed = first.evaluate("(name) => [name.clientHeight, name.scrollHeight]")
    assert shown >= needed


def test_a_click_while_the_page_loads_is_not_lost(store, served, open_page):
    run = reviews(store)
    page = open_page(served)
    held, is_free = [], []

    def hold(route):
        route.continue_() if is_free else held.append(route)

    for part in ("lanes", "job"):
        page.route(f"**/{part}.json*", hold)
    page.goto(served.address(f"/run/{run}"))
    row = page.locator("#items tbody tr").nth(2)
    row.click()
    expect(page.locator("#item h2")).to_have_text("0002")
    before = row.bounding_box()
    is_free.append(True)
    for route in held:
        route.continue_()
    expect(page.locator("#about")).to_be_visible()
    expect(page.locator("#item h2")).to_have_text("0002")
    assert row.bounding_box() == before


def test_items_are_found_by_what_they_say_and_followed_one_by_one(store, served, open_page):
    page = open_page(served, f"/run/{reviews(store)}")
    rows = page.locator("#items tbody tr")
    expect(rows.first.locator(".value")).to_have_text("good 0")
    page.get_by_label("Search items").fill("bad 4")
    expect(rows.first.locator(".value")).to_have_text("bad 4")
    expect(page.locator("#items .filters")).to_contain_text("39 items")
    rows.first.locator("button").click()
    panel = page.locator("#item")
    expect(panel.get_by_role("button", name="Previous item")).to_be_disabled()
    panel.get_by_role("button", name="Next item").click()
    expect(panel.locator("h2")).to_have_text("0040")
    page.keyboard.press("j")
    expect(panel.locator("h2")).to_have_text("0043")
    page.keyboard.press("k")
    expect(panel.locator("h2")).to_have_text("0040")


def test_what_an_agent_does_is_seen_as_it_works(store, served, open_page):
    hand, path = Hand(store, "map"), "hand/items/0000"
    hand.write(
        ("item-started", path, {"index": 0}, None),
        ("agent-step", path, {"number": 1, "text": "reads the tests"}, None),
    )
    page = open_page(served, f"/run/{hand.id}")
    row = page.locator("#items tbody tr").first
    expect(row.locator(".value")).to_have_text("reads the tests")
    row.click()
    steps = page.locator("#item").get_by_label("Steps")
    expect(steps.locator("li")).to_have_text(["reads the tests"])
    hand.write(("agent-step", path, {"number": 2, "text": "writes the fix"}, None))
    expect(steps.locator("li")).to_have_text(["reads the tests", "writes the fix"])
    hand.settle(path, json.dumps("fixed"))
    expect(page.locator("#item .badge").first).to_have_text("done")
    hand.end()


def test_two_runs_are_marked_and_compared(store, served, open_page):
    reviews(store, "old", count=60)
    reviews(store, "new", texts=("good", "bad", "great"), count=60)
    page = open_page(served)
    for run in ("old-1", "new-1"):
        page.get_by_label(f"Compare {run}").check()
    page.locator(".beside a").click()
    rows = page.locator("table.compared tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Different").click()
    expect(rows).to_have_count(20)
    expect(rows.first).to_contain_text("fine 2")
    expect(rows.first).to_contain_text("great 2")
    page.get_by_role("link", name="great 2", exact=True).click()
    expect(page.locator("#item h2")).to_have_text("0002")


def test_the_replies_of_all_arms_stand_side_by_side(store, served, open_page):
    page = open_page(served, f"/run/{made_matrix(store)}")
    beside = page.get_by_label("Replies side by side")
    expect(beside.locator(".reply").first).to_be_visible()
    for given in ("i1", "i2"):
        beside.get_by_role("button", name="Next input").click()
        expect(beside.locator("select")).to_have_value(given)
    expect(beside.locator(".wrong").first).to_have_text("no more")


def test_a_run_is_shown_to_its_end_though_its_journal_is_read_in_parts(
    store, served, open_page, monkeypatch
):
    # A part ends at the first look at the clock, so that the last part is a few events long.
    monkeypatch.setattr("abreast.web.pages.READ_SECONDS", -1.0)
    page = open_page(served, f"/run/{reviews(store, count=64 * 30 + 9)}")
    expect(page.locator("#about")).to_be_visible()
    expect(page.locator("#items .filters")).to_contain_text("1,929 items")
