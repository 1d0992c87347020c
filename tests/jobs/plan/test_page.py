"""A plan as a page: it has every subplan, no script, fetches nothing, and escapes names."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.decompose.score import score
from abreast.jobs.plan.page import Box, page, squares, write_page
from abreast.jobs.plan.spec import Options
from tests.jobs.plan.trees import large_layout

HOSTILE = (
    '<script>document.title="taken"</script>',
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><h1>x",
    "]]><!--",
    "a\x1b[2Jb",
    "caf\udce9",
    "{{7*7}}",
    "javascript:alert(1)",
)


def page_of(paths, title="project"):
    plan = decompose(
        Inventory.of({path: 10 + place % 90 for place, path in enumerate(paths)}), options=Options()
    )
    return plan, page(plan, score(plan), title)


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.seen, self.texts, self.ids = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, {name for name, _ in attrs}, dict(attrs).get("href")))
        self.ids |= {value for name, value in attrs if name == "id"}

    def handle_data(self, data):
        self.texts.append(data)


def hostile_paths():
    names = [name.replace("/", "\u2215") for name in HOSTILE]
    return [
        f"{name}/{number}{other}.py" for name in names for number, other in enumerate(names * 2)
    ]


def test_every_subplan_is_in_the_map_and_in_the_table_and_links_lead_to_it():
    plan, text = page_of(large_layout())
    found = Elements(text)
    leaves = {leaf.id for leaf in plan.leaves}
    assert found.ids == leaves
    assert {href for tag, _, href in found.seen if tag == "a"} == {f"#{leaf}" for leaf in leaves}
    assert sum(tag == "rect" for tag, _, _ in found.seen) >= len(plan.nodes)
    assert all(any(leaf.scope in told for told in found.texts) for leaf in plan.leaves)


def test_names_are_text_whatever_is_in_them():
    _, text = page_of(hostile_paths(), title=HOSTILE[0])
    plain = {tag for tag, _, _ in Elements(page_of(large_layout())[1]).seen}
    found = Elements(text)
    assert {tag for tag, _, _ in found.seen} <= plain
    assert not {
        name
        for _, names, _ in found.seen
        for name in names
        if name.startswith("on") or name == "src"
    }
    assert all(href is None or re.fullmatch(r"#[a-z0-9-]+", href) for _, _, href in found.seen)
    assert "\x1b" not in text
    text.encode()


def test_nothing_is_fetched_and_nothing_runs():
    _, text = page_of(large_layout())
    assert "default-src 'none'" in text
    assert not re.search(r"<script|<link|<img|url\(|@import|https?:", text)


def test_it_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path):
    plan, text = page_of(["a.py"])
    write_page(plan, score(plan), "project", tmp_path / "plan.html")
    write_page(plan, score(plan), "project", tmp_path / "plan.html")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.html"]
    assert (tmp_path / "plan.html").read_text() == text


@given(st.lists(st.integers(0, 10_000), max_size=40), st.floats(1, 2000), st.floats(1, 2000))
def test_boxes_fill_the_whole_in_proportion_and_never_overlap(areas, width, height):
    whole = Box(5, 7, width, height)
    found = squares(areas, whole)
    assert len(found) == len(areas)
    total = sum(areas)
    for area, box in zip(areas, found, strict=True):
        expected = area / total * width * height if total else 0
        assert box.width * box.height == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert box.x >= 5 - 1e-6
        assert box.y >= 7 - 1e-6
        assert box.x + box.width <= 5 + width + 1e-6
        assert box.y + box.height <= 7 + height + 1e-6
    for place, one in enumerate(found):
        for other in found[place + 1 :]:
            across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
            along = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
            assert across <= 1e-6 or along <= 1e-6


SCRIPT = Path(__file__).parents[3] / "scripts" / "get_chromium.py"


def test_a_browser_shows_it_offline_without_a_complaint(tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    options = [] if "CI" in os.environ else ["--find"]
    found = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False, timeout=110
    )
    if found.returncode and "CI" not in os.environ:
        pytest.skip("no Chromium here: python scripts/get_chromium.py installs one")
    (tmp_path / "plan.html").write_text(page_of(hostile_paths(), HOSTILE[0])[1])
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.stdout.strip(), args=["--no-sandbox"]
        )
        opened = browser.new_context(offline=True).new_page()
        said, asked = [], []
        opened.on("console", lambda message: said.append(message.text))
        opened.on("dialog", lambda dialog: said.append(dialog.message))
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto((tmp_path / "plan.html").as_uri())
        assert opened.title() == f"Plan of {HOSTILE[0]}"
        opened.locator("svg[role=img] a").first.click()
        assert opened.locator("tr:target").count() == 1
        assert (said, len(asked)) == ([], 1)
        browser.close()
