"""Every view of the page, in both themes and on a phone, checked by axe-core in Chromium."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.web.jobs.test_drawn import MADE
from tests.web.test_page import made

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect

SCRIPT = Path(__file__).parents[2] / "scripts" / "get_axe.py"
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1400, "height": 900}},
    "dark, on a phone": {"color_scheme": "dark", "viewport": {"width": 400, "height": 800}},
}


@pytest.fixture(scope="module")
def axe():
    """The script of axe-core; only CI may fetch it: a developer's machine is theirs."""
    options = [] if "CI" in os.environ else ["--find"]
    found = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=300, check=False
    )
    if found.returncode:
        pytest.skip(f"no axe-core here: python scripts/get_axe.py fetches it ({found.stderr})")
    return Path(found.stdout.strip()).read_text(encoding="utf-8")


def violations(page, axe):
    """What axe finds, as one line each."""
    # The policy of the page lets no other script in; this one is evaluated by the browser's own.
    page.evaluate(f"() => {{ {axe} }}")
    found = page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
    )
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]


def told(found):
    return [f"{view}: {line}" for view, lines in found.items() for line in lines]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("look", LOOKS, ids=LOOKS)
def test_axe_finds_nothing_wrong_in_the_views_of_jobs(look, store, served, open_page, axe):
    runs = [make(store) for make, _, _ in MADE.values()]
    page = open_page(served, **LOOKS[look])
    found = {}
    for run in runs:
        page.goto(served.address(f"/run/{run}"))
        expect(page.locator("#about")).to_be_visible()  # it is drawn to its end
        found[run] = violations(page, axe)
    assert told(found) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("look", LOOKS, ids=LOOKS)
def test_axe_finds_nothing_wrong_in_runs_an_item_and_a_comparison(
    look, store, served, open_page, axe
):
    made(store, 12)
    made(store, 12, name="other", tags=["nightly"])
    page = open_page(served, **LOOKS[look])
    expect(page.locator("tr[data-run]")).to_have_count(2)
    found = {"runs": violations(page, axe)}
    page.goto(served.address("/run/made-1"))
    page.locator("#items tbody tr").nth(9).click()
    expect(page.locator("#item h2")).to_be_visible()
    found["item"] = violations(page, axe)
    page.goto(served.address("/compare?first=made-1&second=other-1"))
    expect(page.locator("table.compared tbody tr").first).to_be_visible()
    found["compare"] = violations(page, axe)
    assert told(found) == []
