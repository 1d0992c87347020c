"""From the page to a driver and back: gates, resumes, and what is refused.

And the page as a file.
"""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module

import pytest

from abreast.cli.commands import ui
from abreast.cli.commands.ui import Launcher, prompt_of, review_of, secrets_here
from abreast.cli.jobs.map.job import MapJob
from abreast.core.events import Event
from abreast.jobs.plan.review.rejection import rejection_of
from abreast.store.port import Driver
from abreast.store.sqlite.store import SqliteStore
from abreast.web.actions import ActionRefused, act
from abreast.web.export import html
from tests.cli.shell import Shell
from tests.cli.storms import start_storm
from tests.cli.test_batch import ASKED, LINES, with_lane
from tests.cli.test_workflow import GATED
from tests.jobs.plan.repositories import repository
from tests.web.conftest import serving
from tests.web.test_page import EVIL, expect, made

PLANTED = "planted-0123456789"


@pytest.fixture
def abreast(tmp_path, warm):
    (tmp_path / "project").mkdir()
    return Shell(tmp_path / "project", warm)


def begun(store, state="interrupted"):
    row = store.begin(
        "left", kind="workflow", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 1.0)
    )
    asked = ("gate-asked", "left/g", {"gate": "g"}, '{"options": ["approve", "reject"]}')
    written = [("workflow-outlined", "left", {}, '[{"id": "g", "type": "gate"}]'), asked]
    events = [
        Event(at, *facts[:2], 1.0, 1.0, None, *facts[2:]) for at, facts in enumerate(written, 1)
    ]
    store.commit(row.id, row.epoch, events, {})
    if state != "running":
        store.end(row.id, row.epoch, state, "", 2.0)
    return row.id


@pytest.mark.parametrize(
    ("state", "action", "fields", "words"),
    [
        ("interrupted", "resume", {}, ["resume", "--", "left-1"]),
        ("failed", "resume", {"retry_failed": True}, ["resume", "--retry-failed", "--", "left-1"]),
        ("done", "resume", {"retry_failed": True}, ["resume", "--retry-failed", "--", "left-1"]),
        (
            "paused",
            "approve",
            {"gate": "g", "option": "reject"},
            ["resume", "--input", "g=reject", "--", "left-1"],
        ),
        ("interrupted", "cancel", {"reason": "-x"}, ["cancel", "--reason", "-x", "--", "left-1"]),
    ],
)
def test_what_a_run_without_a_driver_needs_is_started_and_noted(
    store, state, action, fields, words
):
    run, started = begun(store, state), []
    act(store, lambda given: started.append(list(given)), run, action, fields)
    assert started == [words]
    assert [request.kind for request in store.asked(run)] == (
        [] if action == "cancel" else [action]
    )


@pytest.mark.parametrize(
    ("state", "action", "fields"),
    [
        ("done", "resume", {}),
        ("running", "resume", {}),
        ("done", "cancel", {}),
        ("cancelled", "cancel", {}),
        ("paused", "approve", {"gate": "g"}),
        ("paused", "approve", {"gate": "g=x", "option": "y"}),
        ("done", "fly", {}),
        ("paused", "approve", {"gate": 1, "option": ["y"]}),
        ("paused", "approve", {"gate": "g", "option": "maybe"}),  # none of its options
        # Not a gate; it may be an input.
        ("paused", "approve", {"gate": "language", "option": "approve"}),
        ("done", "apply", {}),  # no plan
        ("done", "reject", {}),
    ],
)
def test_what_can_not_be_done_is_refused_and_nothing_starts(store, state, action, fields):
    run, started = begun(store, state), []
    with pytest.raises(ActionRefused):
        act(store, started.append, run, action, fields)
    assert started == []


@pytest.mark.parametrize(
    ("action", "fields", "words"),
    [
        ("apply", {}, ["apply"]),
        ("apply", {"anyway": True}, ["apply", "--anyway"]),
        ("undo", {"anyway": True}, ["undo"]),
        ("reject", {"reason": "-x"}, ["reject", "--reason", "-x"]),
        ("reject", {}, ["reject", "--reason", "rejected in the page"]),
    ],
)
def test_a_merge_is_done_by_its_command_and_not_while_the_run_goes_on(store, action, fields, words):
    row = store.begin(
        "p", kind="plan", seed=1, manifest={}, tags=(), driver=Driver(os.getpid(), "here", 1.0)
    )
    started = []
    store.end(row.id, row.epoch, "done", "", 2.0)
    act(store, lambda given: started.append(list(given)), row.id, action, fields)
    assert started == [["plan", *words, "--", row.id]]


def test_gates_are_found_also_once_a_map_was_shown(store):
    import_module("abreast.jobs.map.view")  # a name in its package, where Python's own `map` was
    with pytest.raises(ActionRefused, match="no gate h"):
        act(store, None, begun(store, "paused"), "approve", {"gate": "h", "option": "approve"})


def test_a_driver_is_asked_to_stop_and_nobody_else_is_started(store):
    run, started = begun(store, "running"), []
    act(store, started.append, run, "cancel", {"reason": "enough"})
    [asked] = store.asked(run)
    assert (asked.kind, asked.data, started) == ("cancel", {"reason": "enough"}, [])


def test_a_launched_command_that_can_not_go_on_says_why(tmp_path):
    with closing(SqliteStore(tmp_path / "runs.db")) as store:
        launch = Launcher(store.path, start_timeout=100)
        said = launch(["resume", "none-1"])
        assert said == "there is no run 'none-1': the store holds no runs yet"
        said = launch(["resume", "--", "--none-1"])  # a name may look like an option
        assert said == "there is no run '--none-1': the store holds no runs yet"
        assert launch(["runs"]) is None


def test_a_gate_is_approved_in_the_page_and_the_run_goes_on(abreast, open_page):
    abreast.file("flow.yaml", GATED)
    assert abreast("run", "flow.yaml").code == 0
    with (
        closing(SqliteStore(abreast.store)) as store,
        serving(store, launch=Launcher(store.path)) as served,
    ):
        page = open_page(served, "/run/gated-1")
        gate = page.get_by_role("article", name="Gate ok")
        expect(gate).to_contain_text("go on?")
        gate.get_by_role("button", name="approve").click()
        page.get_by_role("dialog").get_by_role("button", name="approve").click()
        expect(page.locator(".title .badge")).to_have_text("done")
    assert (abreast.folder / "log").read_text() == "a\nb\n"


def test_the_page_shows_what_waits_in_batches_and_what_they_have_saved(abreast, open_page):
    with start_storm(batch_seconds=3600) as storm:
        with_lane(abreast, storm)
        assert abreast(*ASKED, "--batch", "--batch-wait", "0", given=LINES).code == 3
        with closing(SqliteStore(abreast.store)) as store, serving(store) as served:
            page = open_page(served, "/run/map-1")
            facts = page.locator("dl.facts")
            expect(facts).to_contain_text("1 batch waits with 30 calls")
            storm.end_batches()
            assert abreast("resume", "-q", "--batch-wait", "1min").code == 0
            expect(facts).to_contain_text("usd saved")


def test_a_plan_is_reviewed_applied_and_taken_back_in_the_page(abreast, open_page):
    (abreast.folder / ".git").rmdir()
    repository(abreast.folder, {"a/one.py": "x = 1\n", "b/two.py": "y = 2\n"})
    abreast.file(
        "plan.yaml",
        "plan:\n  parts:\n  - {id: a, name: a, files: [a/]}\n  - {id: b, name: b, files: [b/]}\n",
    )
    work = 'echo "z = 3" >> $ABREAST_FILES'
    assert abreast("plan", "run", "plan.yaml", "--command", work).code == 0
    with (
        closing(SqliteStore(abreast.store)) as store,
        serving(store, launch=Launcher(store.path), review_of=review_of) as served,
    ):
        page = open_page(served, "/run/plan-1")
        page.locator("[data-key=node-a]").click()
        expect(page.locator(".patch [data-line=added]")).to_have_text("+z = 3\n")
        review = page.get_by_role("article", name="Review")
        review.get_by_role("button", name="Look what a merge would be").click()
        review.get_by_role("button", name="Apply").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply it").click()
        expect(review.locator(".badge")).to_have_text("applied")
        assert (abreast.folder / "a/one.py").read_text() == "x = 1\nz = 3\n"
        review.get_by_role("button", name="Undo").click()
        page.get_by_role("dialog").get_by_role("button", name="Take it back").click()
        expect(review.locator(".badge")).to_have_count(0)
        assert (abreast.folder / "a/one.py").read_text() == "x = 1\n"
        # What a user has changed meanwhile conflicts; the page shows both sides, and the command.
        abreast.file("a/one.py", "x = 'mine'\n")
        assert abreast("plan", "run", "plan.yaml", "--command", "echo k > $ABREAST_FILES").code == 0
        abreast.file("a/one.py", "x = 'again'\n")
        page = open_page(served, "/run/plan-2")
        review = page.get_by_role("article", name="Review")
        review.get_by_role("button", name="Look what a merge would be").click()
        review.locator("summary").click()
        expect(review.locator(".patch")).to_contain_text("<<<<<<< source")
        expect(review).to_contain_text("abreast plan resolve plan-2 a/one.py --take a|source|edit")
        expect(review.get_by_role("button", name="Apply")).to_have_count(0)


def test_what_items_did_in_trees_is_reviewed_applied_and_taken_back_in_the_page(abreast, open_page):
    (abreast.folder / ".git").rmdir()
    repository(abreast.folder, {"one.py": "x = 1\n"})
    work = ("sh", "-c", 'echo "$1" >> "$1.py"', "sh", "{}")
    assert abreast("map", "--worktree", "--", *work, given="one\ntwo\n").code == 0
    with (
        closing(SqliteStore(abreast.store)) as store,
        serving(store, launch=Launcher(store.path), review_of=review_of) as served,
    ):
        assert review_of(store, store.get("map-1"), "0001")["diff"].endswith("+two\n")
        page = open_page(served, "/run/map-1")
        review = page.get_by_role("article", name="Review")
        review.get_by_role("button", name="Look what a merge would be").click()
        expect(review).to_contain_text("2 items can be merged.")
        assert (abreast.folder / "one.py").read_text() == "x = 1\n"
        review.get_by_role("button", name="Apply").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply it").click()
        expect(review.locator(".badge")).to_have_text("applied")
        assert (abreast.folder / "one.py").read_text() == "x = 1\none\n"
        review.get_by_role("button", name="Undo").click()
        page.get_by_role("dialog").get_by_role("button", name="Take it back").click()
        expect(review.locator(".badge")).to_have_count(0)
        assert (abreast.folder / "one.py").read_text() == "x = 1\n"


def test_a_merge_is_rejected_in_the_page_which_says_so_and_applies_it_anyway(abreast, open_page):
    (abreast.folder / ".git").rmdir()
    repository(abreast.folder, {"one.py": "x = 1\n"})
    work = ("sh", "-c", 'echo "$1" >> "$1.py"', "sh", "{}")
    assert abreast("map", "--worktree", "--", *work, given="one\n").code == 0
    with (
        closing(SqliteStore(abreast.store)) as store,
        serving(store, launch=Launcher(store.path), review_of=review_of) as served,
    ):
        page = open_page(served, "/run/map-1")
        review = page.get_by_role("article", name="Review")
        review.get_by_role("button", name="Look what a merge would be").click()
        review.get_by_role("button", name="Reject").click()
        asked = page.get_by_role("dialog")
        asked.get_by_label("Reason").fill("<b>not</b> ours")
        asked.get_by_role("button", name="Reject it").click()
        expect(review.locator(".badge")).to_have_text("rejected")
        expect(review).to_contain_text(": <b>not</b> ours. Applied anyway by: abreast plan apply")
        expect(review.get_by_role("button", name="Reject")).to_have_count(0)
        assert rejection_of(store, store.get("map-1")).reason == "<b>not</b> ours"
        page = open_page(served, "/run/map-1")
        review = page.get_by_role("article", name="Review")
        expect(review.locator(".badge")).to_have_text("rejected")  # before a look
        assert (abreast.folder / "one.py").read_text() == "x = 1\n"
        review.get_by_role("button", name="Look what a merge would be").click()
        review.get_by_role("button", name="Apply anyway").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply it").click()
        expect(review.locator(".badge")).to_have_text("applied")
    assert (abreast.folder / "one.py").read_text() == "x = 1\none\n"


@pytest.fixture
def slow_check(abreast, tmp_path):
    """A plan that was run, whose check of the merge waits for a line in a pipe: yes or no."""
    (abreast.folder / ".git").rmdir()
    repository(abreast.folder, {"a/one.py": "x = 1\n", "b/two.py": "y = 2\n"})
    os.mkfifo(tmp_path / "pipe")
    work = ("--command", "echo 'z = 3' >> $ABREAST_FILES", "--min-files", "1")
    both = "grep -q z a/one.py && grep -q z b/two.py"
    check = f"if {both}; then read said < {tmp_path}/pipe; test $said = yes; fi"
    assert abreast("plan", "run", *work, "--check", check).code == 0
    return tmp_path / "pipe"


def test_an_apply_that_takes_long_is_waited_for_and_says_what_stands_in_its_way(
    abreast, slow_check, monkeypatch
):
    monkeypatch.setattr(ui, "_CLOSING_INTERVAL", 0.01)
    launcher = Launcher(str(abreast.store), start_timeout=0.01)
    one = abreast.folder / "a/one.py"
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(launcher, ["plan", "apply", "--", "plan-1"])
        with slow_check.open("w") as pipe:  # opens when the check runs
            assert not refused.done()
            pipe.write("no\n")
        assert "fails (exit code 1" in refused.result()
        assert "nothing was written" in refused.result()
        assert one.read_text() == "x = 1\n"
        applied = pool.submit(launcher, ["plan", "apply", "--", "plan-1"])
        with slow_check.open("w") as pipe:
            launcher.closing.set()  # the page ends, and waits no longer
            assert applied.result() is None
            assert one.read_text() == "x = 1\n"
            pipe.write("yes\n")


def test_the_page_says_that_it_applies_a_plan_until_that_is_done(abreast, open_page, slow_check):
    with (
        closing(SqliteStore(abreast.store)) as store,
        serving(store, launch=Launcher(store.path), review_of=review_of) as served,
    ):
        open_page.forgiven.append("409")  # of the apply that is refused
        page = open_page(served, "/run/plan-1")
        review = page.get_by_role("article", name="Review")
        for said in ("no", "yes"):
            review.get_by_role("button", name=re.compile("Look")).click()
            review.get_by_role("button", name="Apply").click()
            page.get_by_role("dialog").get_by_role("button", name="Apply it").click()
            expect(review.get_by_role("status")).to_contain_text("Applying it")
            with slow_check.open("w") as pipe:
                pipe.write(f"{said}\n")
            if said == "no":
                expect(review.locator(".wrong")).to_contain_text("fails (exit code 1")
        expect(review.locator(".badge")).to_have_text("applied")


def test_a_run_that_crashed_is_resumed_in_the_page(abreast, open_page):
    script = 'test "$1" = 1 || test -e go || kill -KILL $(cat driver); echo "$1"'
    with abreast.start(
        "map", "--width", 1, "--", "sh", "-c", script, "sh", "{}", measured=False, stdin=-1
    ) as process:
        abreast.file("driver", str(process.pid))
        process.communicate(b"1\n2\n3\n", timeout=60)
    abreast.file("go", "")
    with (
        closing(SqliteStore(abreast.store)) as store,
        serving(store, launch=Launcher(store.path)) as served,
    ):
        page = open_page(served, "/run/map-1")
        expect(page.locator(".title .badge")).to_have_text("crashed")
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").get_by_role("button", name="Go on").click()
        expect(page.locator(".title .badge")).to_have_text("done")
        expect(page.locator("#items tbody tr")).to_have_count(3)
    assert abreast.recorded() == {"0000", "0001", "0002"}


def test_a_page_in_a_file_works_offline_and_is_as_careful(store, browser, tmp_path):
    run = made(store, 30, texts=lambda item: f"{EVIL} {PLANTED} {item}")
    file = tmp_path / "page.html"
    file.write_text(
        html(store, run, lambda *_: "</script><script>window.hacked=1</script>", [PLANTED]), "utf-8"
    )
    assert PLANTED not in file.read_text("utf-8")
    context = browser.new_context(offline=True)
    page, complaints, asked = context.new_page(), [], []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.locator("h1")).to_have_text(run)
    expect(page.locator(".lane")).to_contain_text("27 done")
    expect(page.locator("#items tbody tr")).to_have_count(30)
    page.get_by_label("State of items").select_option("failed")
    expect(page.locator("#items tbody tr")).to_have_count(3)
    page.locator("#items [data-sort=key]").click()
    page.locator("#items tbody tr").first.click()
    expect(page.locator("#item").get_by_label("Prompt")).to_contain_text("<script>")
    expect(page.locator("#item")).to_contain_text(re.compile("Traceback"))
    assert page.evaluate("window.hacked") is None
    assert page.get_by_role("button", name="Resume").count() == 0
    assert complaints == []
    assert all(url.startswith(("file:", "data:")) for url in asked)
    context.close()


def test_secrets_are_the_long_values_of_variables_named_like_keys():
    found = secrets_here(
        {
            "OPENAI_API_KEY": "sk-long-enough",
            "MY_TOKEN": "short",
            "PATH": "/usr/bin",
            "db_password": "x" * 9,
        }
    )
    assert found == ["sk-long-enough", "x" * 9]


def test_the_prompt_of_an_item_is_filled_in_as_it_was_asked(store):
    manifest = MapJob(cwd=".", prompt="Where is {}?", model="scripted/x").manifest()
    row = store.begin(
        "map", kind="map", seed=1, manifest=manifest, tags=(), driver=Driver(1, "here", 1.0)
    )
    assert prompt_of(row, "0000", "Rome") == "Where is Rome?"
    assert prompt_of(row, "0000", None) == "Where is {}?"
    assert prompt_of(store.get(begun(store)), "0000", "Rome") is None
