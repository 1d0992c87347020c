"""Reports opened by a real Chromium with the network off.

`python scripts/get_chromium.py` installs one. Without it these tests are skipped; CI installs it
first.
"""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from abreast.jobs.matrix.report.report import write_html
from tests.jobs.matrix.made_rows import FACTS, MODELS, SCRIPT, study

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

SCRIPT_PATH = Path(__file__).parents[3] / "scripts" / "get_chromium.py"
READY = "html[data-plots=ready][data-cells=ready]"
# Few arms: all pairs are compared, which takes longer than to draw them.
TWO = dict([*MODELS.items()][:2])


def chromium() -> str:
    """The path of the program. Only CI installs it, so that tests change no developer's machine."""
    options = [] if "CI" in os.environ else ["--find"]
    done = subprocess.run(
        [sys.executable, SCRIPT_PATH, *options],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    if done.returncode and "CI" not in os.environ:
        pytest.skip("no Chromium here: python scripts/get_chromium.py installs one")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def browser():
    path = chromium()
    sync_api.expect.set_options(timeout=60_000)  # the last net, on a busy machine
    with sync_api.sync_playwright() as playwright:
        # As root, as CI is, Chromium has no sandbox of its own; the pages are ours and the network
        # is off.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A report in a page of its own, and all that the page complained of or asked for."""

    def __init__(self, browser, path: Path, **context) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(offline=True, reduced_motion="reduce", **context)
        self.context.set_default_timeout(60_000)
        self.page = self.context.new_page()
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(READY, state="attached")

    def draw_everything(self) -> None:
        for plot in self.page.query_selector_all(".plot"):
            plot.scroll_into_view_if_needed()
            plot.wait_for_selector(".main-svg >> nth=0", state="attached")
        self.page.evaluate("scrollTo(0, 0)")

    def filtered(self, count: str) -> None:
        sync_api.expect(self.page.locator("#count")).to_have_text(count)


@pytest.mark.parametrize(("cells", "scheme", "width"), [(90, "dark", 800), (1_200, "light", 1400)])
def test_a_report_opens_offline_asks_for_nothing_and_complains_of_nothing(
    browser, tmp_path, cells, scheme, width
):
    rows = study(cells, models=TWO)
    write_html(rows, FACTS, tmp_path / "report.html")
    opened = Opened(
        browser,
        tmp_path / "report.html",
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
    )
    page = opened.page

    opened.draw_everything()
    shot = page.screenshot(path=tmp_path / "report.png")
    assert struct.unpack(">I", shot[16:20])[0] == width
    assert len(shot) > 20_000
    # Only tables scroll sideways.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 22, 28)")

    page.fill("#by-text", "PLANTED")
    opened.filtered(f"1 of {len(rows):,} cells")
    page.focus("#list button.open")
    page.keyboard.press("Enter")
    assert SCRIPT in page.inner_text("#cell-body")
    assert page.evaluate("document.querySelectorAll('#cell-body script').length") == 0
    assert page.evaluate("window.pwned") is None
    page.keyboard.press("Escape")
    sync_api.expect(page.locator("#cell")).to_be_hidden()

    assert opened.complaints == []
    assert opened.requests == [(tmp_path / "report.html").as_uri()]
    opened.context.close()


def test_filters_order_and_pages_show_the_cells_they_say(browser, tmp_path):
    rows = study(300, models=TWO)
    write_html(rows, FACTS, tmp_path / "report.html")
    opened = Opened(browser, tmp_path / "report.html")
    page = opened.page
    whole = f"{len(rows)} cells"
    opened.filtered(whole)
    assert page.inner_text("#page") == f"Page 1 of {-(-len(rows) // 50)}"
    assert len(page.query_selector_all("#list tbody tr")) == 50

    failed = [row for row in rows if row.state == "failed"]
    page.select_option("#by-state", "failed")
    opened.filtered(f"{len(failed)} of {whole}")
    assert not page.is_visible("#pages")
    model = failed[0].model
    page.select_option("#by-model", model)
    opened.filtered(f"{sum(row.model == model for row in failed)} of {whole}")
    page.click("#list button.open")
    assert page.query_selector("#cell-body pre.wrong").inner_text() in {row.error for row in failed}
    page.click("#close")

    page.click("#filters button[type=reset]")
    opened.filtered(whole)
    page.select_option("#by-strategy", "steps")
    steps = [row for row in rows if row.strategy == "steps"]
    opened.filtered(f"{len(steps)} of {whole}")
    slowest = max(steps, key=lambda row: row.service_s)
    first = page.locator("#list tbody tr").first
    before = first.text_content()
    # In one turn of the page, so no later one can have put the rows in order.
    after = page.evaluate(
        """() => {
          const order = document.querySelector("#order");
          order.value = "service time, longest first";
          order.dispatchEvent(new Event("input", { bubbles: true }));
          return document.querySelector("#list tbody tr").textContent;
        }"""
    )
    assert after != before
    page.click("#list button.open")
    assert f"{slowest.model} · steps · {slowest.input}" in page.inner_text("#cell-title")
    body = page.inner_text("#cell-body")
    for said in (
        slowest.prompt,
        slowest.output,
        "Step 1: step 1",
        slowest.steps[2].output,
        "in flight when sent",
    ):
        assert said in body
    page.click("#later")
    assert page.inner_text("#cell-title") != f"{slowest.model} · steps · {slowest.input}"
    assert opened.complaints == []
    opened.context.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small report that tests only read."""
    path = tmp_path_factory.mktemp("small") / "report.html"
    write_html(study(24, models=TWO), FACTS, path)
    return path


def test_the_theme_is_the_readers_choice_and_paper_is_white(browser, small):
    opened = Opened(browser, small, color_scheme="dark")
    page = opened.page
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(18, 22, 28)"
    page.click("#theme")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.click("#theme")
    assert page.evaluate(colour) == "rgb(18, 22, 28)"
    page.emulate_media(media="print")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    assert not page.is_visible("#filters")
    opened.context.close()


def test_a_script_that_came_with_the_page_in_any_other_way_is_not_run(browser, small, tmp_path):
    """Even if something were not escaped, the page's policy allows only its own two scripts."""
    path = tmp_path / "report.html"
    path.write_text(
        small.read_text(encoding="utf-8").replace("<main", f"{SCRIPT}<main", 1), encoding="utf-8"
    )
    opened = Opened(browser, path)
    assert opened.page.evaluate("window.pwned") is None
    assert any("Content Security Policy" in complaint for complaint in opened.complaints)
    opened.context.close()
