"""Take the pictures of the web page for README and docs.

    python scripts/screenshots.py [--only NAME] [--keep STORE]

Real runs of every kind of job are made first, in a folder of their own: support tickets sorted by a
model whose server limits the calls, a sample of answers to a customer, a study of two prompts, a
release that waits at a gate, candidates, a plan for a repository. The replies are written here, so
that a picture shows the same every time. That takes some minutes, most of them the candidates';
with `--keep STORE` the runs are kept there, and used again the next time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from get_chromium import find

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
ABREAST = (sys.executable, "-m", "abreast")
FLOW = """
workflow: {id: release}
steps:
  - {id: list, type: shell, run: "printf 'core\\nstore\\nlimits\\nmodels\\nweb\\ncli\\n'"}
  - {id: lint, type: shell, run: sleep 0.4, needs: []}
  - id: test
    type: fan-out
    items: "{{ steps.list.output.stdout | trim | split('\\n') }}"
    max_concurrency: 3
    step: {id: suite, type: shell, run: "sleep 0.$((RANDOM % 7 + 2)); echo {{ item }} passed"}
    needs: [list]
  - {id: publish, type: gate, message: "All six suites passed. Publish 0.9?", needs: [lint, test]}
  - {id: upload, type: shell, run: echo uploaded, needs: [publish]}
"""
# A part of a plan: one renames a function, also in files of another, which is asked for that; two
# write the same notes.
AGENT = """
sleep 0.3
git apply --allow-empty "$ABREAST_REQUESTS_FILE"
case "$ABREAST_FILES" in
    *slow/word*) sed -i s/top_words/common_words/g slow/*wordcount.py slow/candidates/c*.py ;;
esac
case "$ABREAST_FILES" in
    *slow/test_*) echo "Renamed: $ABREAST_FILES" > slow/NOTES.md ;;
    *notes*) echo "- Renamed some functions." >> "$(head -1 "$ABREAST_FILE_LIST")" ;;
esac
"""
PLAN_STEPS = (
    "click button.leaf[data-key^=node-slow-candidates]",
    "click [data-key=diff]",
    "click [data-key=review]",
    "click [data-key^=conflict-] summary",
    "show #job",
)
LANES = """
[lanes.support]
base_url = "{url}/v1"
price = {{input = 0.4, output = 1.6}}
"""
# What customers write: the topic, how urgent it is, and the text.
TICKETS = (
    ("billing", "high", "I was charged twice for order {n}. Please pay one of them back."),
    ("delivery", "normal", "Order {n} should have been here on Monday. Where is it?"),
    ("defect", "high", "The lamp of order {n} smells burnt after ten minutes."),
    ("return", "low", "The chair of order {n} is too small. How do I send it back?"),
    ("account", "normal", "I can't sign in any more; the reset mail for {n} never comes."),
    ("defect", "normal", "One leg of the table of order {n} is shorter than the others."),
    ("billing", "low", "I need an invoice with our company's name for order {n}."),
    ("delivery", "high", "Order {n} was left in the rain, and the books in it are wet."),
    ("praise", "low", "The kettle of order {n} is lovely. Thank you!"),
    ("return", "normal", "Order {n} is not the colour I chose. May I swap it?"),
)
ANSWERS = (
    "We regret the inconvenience, and our team will look into your request as soon as possible.",
    "Sorry about the lamp: please unplug it now, and we send a new one today.",
    "I am sorry that it broke. Please keep it unplugged; a new lamp is on its way to you.",
    "Lamps break.",
)
STUDY = """
matrix:
  name: tickets
  models: [support/gpt-4o-mini]
  strategies:
    short:
      prompt: "Sort this ticket by topic, in one word: {{ input.text }}"
    "with topics":
      prompt: "Topics: billing, delivery, defect, return, account, praise. Sort: {{ input.text }}"
    "with an example":
      prompt: >-
        Topics: billing, delivery, defect, return, account, praise. Example: "My parcel came open"
        is delivery. Sort: {{ input.text }}
  inputs: tickets.jsonl
  scores: [{exact: null, name: right}]
  repeats: 1
"""


def script(request: str) -> str:
    """What the model replies: right about most tickets, the better asked the more of them."""
    if "customer" in request:
        return ANSWERS[sum(map(ord, request[-40:])) % len(ANSWERS)]
    at = next(
        (at for at, (_, _, text) in enumerate(TICKETS) if text.partition("{n}")[0] in request), 0
    )
    topic, urgency, _ = TICKETS[at]
    if "Sort" not in request:
        return f"{topic} · {'normal' if 'Judge' in request and at % 4 == 0 else urgency}"
    if "Topics:" in request:
        is_hard = "in the rain" in request and "Example" not in request
        return "defect" if is_hard else topic
    return topic if at % 3 else topic.capitalize()


# Where the runs were made is of no interest, and differs every time.
_AT_HOME = """async () => {
  const at = location.pathname;
  const { manifest } = at.includes("/run/") ? await (await fetch(`${at}.json`)).json() : {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (manifest?.cwd && walk.nextNode()) {
    walk.currentNode.data = walk.currentNode.data.replaceAll(manifest.cwd, "~/project");
  }
}"""
WIDE = {"width": 1280, "height": 860}
PHONE = {"width": 400, "height": 860}


def main() -> int:
    """Make the runs, then the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", choices=[*SHOTS], help="make the run of this picture, and take it"
    )
    parser.add_argument("--keep", type=Path, help="a store to keep the runs in")
    args = parser.parse_args()
    chromium = find()
    if chromium is None:
        sys.exit("no Chromium here: python scripts/get_chromium.py installs one")
    with tempfile.TemporaryDirectory() as folder:
        store = args.keep.resolve() if args.keep else Path(folder, "runs.db")
        if not store.exists():
            make_runs(Path(folder), store, None if args.only is None else SHOTS[args.only][0])
        with serving(store) as address:
            take(chromium, address, args.only)
    return 0


def make_runs(folder: Path, store: Path, only: str | None = None) -> None:
    """Drive a run of each kind, or only that of a page."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    who = ("-c", "user.name=abreast", "-c", "user.email=abreast@example.invalid")
    for words in (("init", "--quiet"), ("add", "."), (*who, "commit", "--quiet", "-m", "Examples")):
        subprocess.run(("git", *words), cwd=folder, check=True)  # noqa: S607 - the git on the path
    (folder / "flow.yaml").write_text(FLOW, encoding="utf-8")
    (folder / "agent.sh").write_text(AGENT, encoding="utf-8")
    tickets = [
        TICKETS[number * 7 % len(TICKETS)][2].format(n=4100 + 3 * number) for number in range(240)
    ]
    (folder / "tickets.jsonl").write_text(
        "".join(
            json.dumps({"id": f"t{at:02}", "text": text.format(n=4100 + at), "truth": topic}) + "\n"
            for at, (topic, _, text) in enumerate(TICKETS)
        ),
        encoding="utf-8",
    )
    (folder / "tickets.yaml").write_text(STUDY, encoding="utf-8")

    def abreast(makes: str, *arguments: str, given: str = "") -> None:
        if only not in (None, "/", f"/run/{makes}"):
            return
        print("abreast", *arguments, flush=True)
        command = [*ABREAST, *arguments, "--store", str(store)]
        subprocess.run(
            command, cwd=folder, input=given, text=True, stdout=subprocess.DEVNULL, check=False
        )

    abreast(
        "plan-1",
        "plan",
        "run",
        "examples",
        "--command",
        f"sh {folder}/agent.sh",
        "--min-files",
        "2",
        "--width",
        "3",
    )
    abreast(
        "optimize-1",
        "optimize",
        "examples/slow/wordcount.py::top_words",
        "--tests",
        "examples/slow/test_wordcount.py",
        "--candidates",
        "examples/slow/candidates",
        "--width",
        "2",
    )
    with support(folder):
        abreast("tickets-1", "matrix", "run", "tickets.yaml", "--no-report")
        abreast(
            "sample-1",
            "sample",
            "A customer writes: the lamp broke after a day. Answer in one sentence.",
            *("--check", "max-words 20", "--check", "hidden contains sorry"),
            *("--breadth", "3", "--depth", "3", "-m", "support/gpt-4o-mini"),
        )
        for prompt in ("Sort by topic and urgency: {}", "Topic and urgency of this ticket: {}"):
            abreast(
                "map-1",
                "map",
                *("--prompt", prompt.replace("Sort", "Judge"), "-m", "support/gpt-4o-mini"),
                *("--retries", "2", "--width", "64", "--tag", "tickets"),
                given="\n".join(tickets),
            )
    abreast("release-1", "run", "flow.yaml")
    abreast("demo-1", "demo", "--no-model")


@contextlib.contextmanager
def support(folder: Path) -> Iterator[None]:
    """A server that takes some calls at once and answers the rest with 429, as a lane."""
    from abreast.testing import open_storm

    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with open_storm(
            script=script, concurrency=12, latency=0.35, seed=7, output_min=3, output_max=24
        ) as server:
            (folder / "abreast.toml").write_text(LANES.format(url=server.url), encoding="utf-8")
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        if not ready.wait(60):
            sys.exit("the server of the pictures did not start")
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def serving(store: Path) -> Iterator[str]:
    """The page: its address."""
    command = [*ABREAST, "ui", "--port", "0", "--store", str(store)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.terminate()


SHOTS = {
    # name: (path, colours, size, what to do before)
    "page-runs": ("/", "light", WIDE, ()),
    "page-compare": ("/compare?first=map-1&second=map-2", "light", WIDE, ()),
    "page-lanes": ("/run/demo-1", "light", WIDE, ("show #lanes-section",)),
    "page-limits": ("/run/map-1", "dark", WIDE, ("show #lanes-section",)),
    "page-spending": ("/run/map-1", "light", WIDE, ("show #spending",)),
    "page-item": ("/run/map-1", "light", WIDE, ("open 0007",)),
    "page-phone": ("/run/map-1", "dark", PHONE, ()),
    "page-workflow": ("/run/release-1", "light", WIDE, ()),
    "page-sample": ("/run/sample-1", "light", WIDE, ()),
    "page-matrix": ("/run/tickets-1", "light", WIDE, ()),
    "page-candidates": ("/run/optimize-1", "dark", WIDE, ()),
    "page-plan": ("/run/plan-1", "light", {"width": 1280, "height": 1360}, PLAN_STEPS),
}


def take(chromium: str, address: str, only: str | None) -> None:
    """Take the pictures."""
    from playwright.sync_api import sync_playwright

    parts = urlsplit(address)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (path, colours, size, before) in SHOTS.items():
            if only not in (None, name):
                continue
            context = browser.new_context(
                viewport=size, color_scheme=colours, reduced_motion="reduce"
            )
            page = context.new_page()
            mark = "&" if "?" in path else "?"
            page.goto(
                f"{parts.scheme}://{parts.netloc}{parts.path}{path.removeprefix('/')}{mark}{parts.query}"
            )
            page.wait_for_load_state("load")
            page.wait_for_selector("#about:visible, tr[data-run], table.compared tbody tr")
            page.wait_for_timeout(1500)
            for step in before:
                verb, _, what = step.partition(" ")
                if verb == "show":
                    page.locator(what).evaluate(
                        "(part) => scrollTo(0, part.getBoundingClientRect().top + scrollY - 64)"
                    )
                elif verb == "click":
                    page.locator(what).first.click()
                else:
                    page.locator("#items tbody tr", has_text=what).first.click()
                page.wait_for_timeout(1500)
            page.evaluate(_AT_HOME)
            page.screenshot(path=IMAGES / f"{name}.png")
            print(f"docs/images/{name}.png", flush=True)
            context.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
