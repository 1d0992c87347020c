"""Measure the web page in a real Chromium.

`python -m benchmarks.page [runs] [big] [writer] [--items 100000] [--rounds 5] [--postgres]`.

- runs: the list of 200 runs, the newest with a million items (--million), on a server that has seen
  none of them: when all counts are right.
- big: a run of many items. When the page is first painted, when its items can be clicked and when
  its lanes are drawn, on a server that has not read the run yet; how much of it moved meanwhile
  (the layout shift of web vitals), and whether a click while it loads opens the item; the longest
  task while it is zoomed, sorted, filtered and paged; its memory, and the server's. It is
  opened three times, and the earliest paint counts. With --postgres it is in a store in
  PostgreSQL, which is started for it.
- writer: a durable map (work C of `python -m benchmarks`) alone, and with the page of that same run
  open: how much slower it is, in interleaved rounds, and whether a process failed with "database is
  locked".

`python scripts/get_chromium.py` installs a Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from abreast import Item, Slots, open_run
from benchmarks.large_run import repeat_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAINTED: Final = 0.5  # seconds until something is seen
PAINTED_POSTGRES: Final = 1.0
RIGHT: Final = 1.0  # seconds until the list of runs is right
RUNS: Final = 200
SHIFT: Final = 0.05  # of what was seen may move while the page loads
DRIVEN: Final = 10_000  # items; a larger run is made of the events of one with so many
OPENED: Final = 3  # times, each by a server that sees the run for the first time; the least counts
READ_TIMEOUT: Final = 1_200_000  # milliseconds
FROZEN: Final = 0.2  # seconds that the page may not answer
HEAP: Final = 64 << 20  # bytes of the page
SLOWER: Final = 1.05
_WATCH: Final = """
window.tasks = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.tasks.push(one.duration / 1000);
}).observe({ type: "longtask", buffered: true });
window.shift = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shift += one.value;
}).observe({ type: "layout-shift", buffered: true });
"""


def main() -> int:
    """Play the parts that are named, or all; how many of them missed what they should show."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="which of runs, big and writer; else all"
    )
    parser.add_argument("--items", type=int, default=100_000, help="of the big run")
    parser.add_argument(
        "--million", type=int, default=1_000_000, help="items of the longest run of the list"
    )
    parser.add_argument(
        "--postgres", action="store_true", help="the big run is in a store in PostgreSQL"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="of the writer, with the page and without"
    )
    parser.add_argument(
        "--written", type=int, default=60_000, help="items of one round of the writer"
    )
    parser.add_argument(
        "--write", nargs=3, metavar=("STORE", "NAME", "ITEMS"), help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    if args.write:
        store, name, items = args.write
        print(json.dumps(asyncio.run(_write(store, name, int(items)))))
        return 0
    parts = {"runs": runs, "big": big, "writer": writer}
    if unknown := [name for name in args.parts if name not in parts]:
        parser.error(f"no such part: {', '.join(unknown)} (there are {', '.join(parts)})")
    return sum(not parts[name](args) for name in args.parts or parts)


# --- the parts ------------------------------------------------------------------------------------


def runs(args: argparse.Namespace) -> bool:
    """The list of many runs, of which one is long."""
    where = _postgres() if args.postgres else _file()
    with where as store, chromium() as browser:
        print(f"runs: {RUNS}, the newest of {args.million:,} items; writing them first", flush=True)
        written(store, "short", 20)
        for number in range(RUNS - 3):
            repeat_run(store, "short-1", f"run{number}", 1)
        written(store, "driven", DRIVEN)
        repeat_run(store, "driven-1", "long", max(1, args.million // DRIVEN))
        with serving(store) as (address, _):
            page = _page(browser)
            began = time.perf_counter()
            page.goto(_at(address, "/"))
            page.wait_for_selector("tr[data-run=long-1]")
            page.wait_for_function("!document.querySelector('.counting')")
            right = time.perf_counter() - began
            said = " ".join(page.inner_text("tr[data-run=long-1]").split())
            rows = page.locator("tr[data-run]").count()
            moved = page.evaluate("window.shift")
    print(f"  {rows} runs of the first page right after {right:.2f} s, layout shift {moved:.3f}")
    print(f"  the longest says: {said}")
    return right <= RIGHT and moved <= SHIFT


def big(args: argparse.Namespace) -> bool:
    """A run of many items, opened by a server that sees it for the first time."""
    where = _postgres() if args.postgres else _file()
    with where as store, chromium() as browser:
        print(f"big: {args.items:,} items; writing them first", flush=True)
        if args.items > DRIVEN:
            written(store, "driven", DRIVEN)
            repeat_run(store, "driven-1", "big", args.items // DRIVEN)
        else:
            written(store, "big", args.items)
        painted = math.inf
        for turn in range(OPENED):
            with serving(store) as (address, server):
                page = _page(browser)
                began = time.perf_counter()
                page.goto(_at(address, "/run/big-1"))
                page.wait_for_selector("#items tbody tr[data-path]")
                items = time.perf_counter() - began
                page.wait_for_selector(".lane canvas")
                drawn = time.perf_counter() - began
                paint = page.evaluate(
                    "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
                )
                painted = min(painted, paint)
                print(
                    f"  first paint {paint:.2f} s, items {items:.2f} s, lanes drawn {drawn:.2f} s",
                    flush=True,
                )
                if turn < OPENED - 1:
                    page.close()
                    continue
                page.wait_for_function(
                    "!document.querySelector('.title [role=status]').textContent",
                    timeout=READ_TIMEOUT,
                )
                page.wait_for_selector("#about:visible")
                read = time.perf_counter() - began
                moved = page.evaluate("window.shift")
                print(
                    f"  all {args.items:,} read {read:.2f} s, layout shift {moved:.3f}", flush=True
                )
                page.evaluate("window.tasks.length = 0")
                slowest = _use(page)
                longest = max(page.evaluate("window.tasks"), default=0.0)
                heap, nodes = _memory(page)
                print(
                    "  zoomed, moved, sorted, filtered, paged: "
                    f"longest task {longest * 1000:.0f} ms, "
                    f"slowest answer {slowest * 1000:.0f} ms; page {heap / 1e6:.1f} MB, "
                    f"{nodes:,} nodes; server {_rss(server):.0f} MB"
                )
        with serving(store) as (address, _):
            clicked = _click_while_loading(browser, _at(address, "/run/big-1"))
            print(f"  a click while it loads opened the item after {clicked:.2f} s", flush=True)
    bar = PAINTED_POSTGRES if args.postgres else PAINTED
    return painted < bar and moved < SHIFT and longest < FROZEN and heap < HEAP


def _click_while_loading(browser: Browser, address: str) -> float:
    """Click the first item as soon as it is there; the seconds until it is open."""
    page = _page(browser)
    page.goto(address)
    row = page.locator("#items tbody tr[data-path]").nth(4)
    row.wait_for()
    if not page.inner_text(".title [role=status]"):
        print("  (the run was read before the click)")
    began = time.perf_counter()
    wanted = row.locator("th").inner_text()
    row.click()
    page.locator("#item h2", has_text=wanted).wait_for()
    return time.perf_counter() - began


def writer(args: argparse.Namespace) -> bool:
    """A durable map, alone and while its page is open."""
    alone: list[dict[str, float]] = []
    seen: list[dict[str, float]] = []
    print(
        f"writer: {args.rounds} rounds of {args.written:,} items, alone and with the page open",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for number in range(args.rounds):
            alone.append(written(f"{folder}/alone-{number}.db", "work", args.written))
            store = f"{folder}/seen-{number}.db"
            written(store, "warm", 10)
            with serving(store) as (address, _):
                page = _page(browser)
                page.goto(address)
                page.wait_for_selector("tr[data-run]")
                with _writing(store, "work", args.written) as process:
                    page.locator("tr[data-run=work-1] a").click()
                    page.wait_for_selector(".lane canvas")
                    seen.append(_result(process))
                shown = page.inner_text(".head .facts")
                page.close()
            print(
                f"  round {number + 1}: alone {alone[-1]['wall']:.2f} s, "
                f"page open {seen[-1]['wall']:.2f} s "
                f"({seen[-1]['wall'] / alone[-1]['wall']:.3f} x); "
                f"the page says {' '.join(shown.split())}",
                flush=True,
            )
    ratios = {
        name: median(r[name] for r in seen) / median(r[name] for r in alone)
        for name in ("wall", "cpu")
    }
    print(
        f"  medians: wall {ratios['wall']:.3f} x, the writer's CPU {ratios['cpu']:.3f} x; "
        "nobody was locked out"
    )
    return ratios["wall"] <= SLOWER


@contextmanager
def _file() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"{folder}/runs.db"


@contextmanager
def _postgres() -> Iterator[str]:
    """The address of a PostgreSQL that ends with this block."""
    script = Path(__file__).parents[1] / "scripts" / "postgres.py"
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("no pipes")
        yield server.stdout.readline().strip()
        server.stdin.close()


# --- the writer -----------------------------------------------------------------------------------


async def _write(store: str, name: str, items: int) -> dict[str, float]:
    """Drive a run of items that do nothing, but for a few that fail; how long it took."""

    async def work(item: Any) -> dict[str, str]:  # noqa: ANN401 - items may be of any type
        await asyncio.sleep(0)
        if item % 997 == 0:
            raise ValueError(f"item {item} is not liked")
        return {"text": f"a reply to {item}"}

    lanes = {"first": Slots(24), "second": Slots(16), "third": Slots(8)}
    names = tuple(lanes)
    began = time.perf_counter()
    async with open_run(name, store=store, lanes=lanes, seed=7) as run:
        source = (Item(None, number, names[number % 3]) for number in range(items))
        async for _ in run.map(work, source, width=50):
            pass
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"wall": time.perf_counter() - began, "cpu": usage.ru_utime + usage.ru_stime}


@contextmanager
def _writing(store: str, name: str, items: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.page", "--write", store, name, str(items)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _result(process: subprocess.Popen[str]) -> dict[str, float]:
    out, err = process.communicate(timeout=1200)
    if process.returncode:
        sys.exit(f"the writer failed: {err}")
    found: dict[str, float] = json.loads(out)
    return found


def written(store: str, name: str, items: int) -> dict[str, float]:
    """Write a run in a process of its own; how long it took."""
    with _writing(store, name, items) as process:
        return _result(process)


# --- the page -------------------------------------------------------------------------------------


@contextmanager
def serving(store: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`abreast ui` on a store: the address that it prints, and its process.

    What it says of locks ends all.
    """
    command = [sys.executable, "-m", "abreast", "ui", "--port", "0", "--store", store]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            if process.stdout is None or process.stderr is None:
                raise RuntimeError("no pipes")
            yield process.stdout.readline().strip(), process
        finally:
            process.terminate()
        if "locked" in (said := process.stderr.read()):
            sys.exit(f"the page was locked out: {said}")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    script = Path(__file__).parents[1] / "scripts" / "get_chromium.py"
    found = subprocess.run(
        [sys.executable, script, "--find"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        sys.exit("no Chromium here: python scripts/get_chromium.py installs one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.stdout.strip(), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def _page(browser: Browser) -> Page:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(120_000)
    page.add_init_script(_WATCH)
    return page


def _at(address: str, path: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}{parts.path}{path.removeprefix('/')}?{parts.query}"


def _use(page: Page) -> float:
    """Do what a person would, one after the other; the slowest answer, in seconds."""
    slowest = 0.0

    def timed(work: Callable[[], object], until: str) -> None:
        nonlocal slowest
        with page.expect_response(lambda answer: until in answer.url):
            began = time.perf_counter()
            work()
        slowest = max(slowest, time.perf_counter() - began)

    for _ in range(8):
        timed(lambda: page.get_by_role("button", name="Zoom in").click(), "lanes.json")
    for _ in range(4):
        timed(lambda: page.get_by_role("button", name="Later").click(), "lanes.json")
    timed(lambda: page.get_by_role("button", name="The whole run").click(), "lanes.json")
    for sort in ("took", "waited", "key", "state"):
        timed(page.locator(f"#items [data-sort={sort}]").click, "items.json")
    timed(lambda: page.get_by_label("State of items").select_option("failed"), "items.json")
    timed(lambda: page.get_by_label("State of items").select_option(""), "items.json")
    timed(lambda: page.get_by_label("Search items").fill("99"), "items.json")
    for _ in range(4):
        timed(lambda: page.get_by_role("button", name="Next").click(), "items.json")
    timed(page.locator("#items tbody tr").first.click, "item.json")
    return slowest


def _memory(page: Page) -> tuple[float, int]:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {
        one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]
    }
    return float(metrics["JSHeapUsedSize"]), int(metrics["Nodes"])


def _rss(process: subprocess.Popen[str]) -> float:
    """Megabytes of a process."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    sys.exit(main())
