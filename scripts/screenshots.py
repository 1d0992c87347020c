"""Take the pictures of the web page for README and docs.

    python scripts/screenshots.py [--only NAME] [--keep STORE]

Real runs of every kind of job are made first, in a folder of their own: commands, calls to a server
that limits them, a sample, a workflow that waits at a gate, a study, candidates, a plan. That takes
some minutes, most of them the embedded model's; with `--keep STORE` the runs are kept there, and
used again the next time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
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
[lanes.storm]
base_url = "{url}/v1"
price = {{input = 0.4, output = 1.6}}
"""
# Where the runs were made is of no interest, and differs every time.
_AT_HOME = """async () => {
  const at = location.pathname;
  const { manifest } = at === "/" ? {} : await (await fetch(`${at}.json`)).json();
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
    asked = "\n".join(f"question {number}" for number in range(240))

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
    abreast(
        "study-1",
        "matrix",
        "run",
        "examples/study.yaml",
        "-i",
        "p01",
        "-i",
        "p02",
        "-i",
        "p03",
        "--no-report",
    )
    abreast(
        "sample-1",
        "sample",
        "Write a sentence about rain.",
        "--check",
        "max-words 12",
        "--check",
        "hidden contains the",
        "--breadth",
        "3",
        "--depth",
        "3",
        "--max-tokens",
        "24",
    )
    with storm(folder):
        abreast(
            "map-1",
            "map",
            "--prompt",
            "Answer briefly: {}",
            "-m",
            "storm/gpt-4o-mini",
            "--retries",
            "2",
            "--width",
            "64",
            given=asked,
        )
    abreast("release-1", "run", "flow.yaml")
    abreast("demo-1", "demo", "--no-model")


@contextlib.contextmanager
def storm(folder: Path) -> Iterator[None]:
    """A server that takes some calls at once and answers the rest with 429, as the lane `storm`."""
    from abreast.testing.storm import start_process

    with start_process(concurrency=12, latency=0.35, seed=7) as server:
        (folder / "abreast.toml").write_text(LANES.format(url=server.url), encoding="utf-8")
        yield


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
    "page-lanes": ("/run/demo-1", "light", WIDE, ()),
    "page-limits": ("/run/map-1", "dark", WIDE, ("show .lane >> nth=1",)),
    "page-spending": ("/run/map-1", "light", WIDE, ("show #spending",)),
    "page-item": ("/run/map-1", "light", WIDE, ("open 0007",)),
    "page-phone": ("/run/demo-1", "dark", PHONE, ()),
    "page-workflow": ("/run/release-1", "light", WIDE, ("show #job",)),
    "page-sample": ("/run/sample-1", "light", WIDE, ("show #job",)),
    "page-matrix": ("/run/study-1", "light", WIDE, ("show #job",)),
    "page-candidates": ("/run/optimize-1", "dark", WIDE, ("show #job",)),
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
            page.goto(
                f"{parts.scheme}://{parts.netloc}{parts.path}{path.removeprefix('/')}?{parts.query}"
            )
            page.wait_for_load_state("load")
            page.wait_for_selector(".lane canvas, tr[data-run]")
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
