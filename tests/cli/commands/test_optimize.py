"""`abreast optimize` and `abreast verify`: verdicts, and the winner as a patch.

No file of the project is touched, and nothing is done twice.
"""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing, suppress

import pytest

from abreast.core.errors import NoSuchRun
from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, Event
from abreast.jobs.candidates.view import CandidatesLive
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import open_storm
from tests.cli.shell import ABREAST, PATIENCE, Said, end, ended_at_last, unmeasured
from tests.jobs.candidates.noise import expect_verdicts
from tests.jobs.candidates.projects import FAST, QUICK, SLOW, TESTS, WRONG
from tests.jobs.candidates.recorded import most_checked_at_once
from tests.worktrees.repositories import look

LANES = """
[lanes.storm]
base_url = "{url}/v1"
api_key_env = "STORM_KEY"
"""
RENAMED = SLOW.replace("found", "pairs_found")
COUNTED = """\
def pairs(numbers, wanted):
    found = 0
    for at, one in enumerate(numbers):
        found += numbers[at + 1 :].count(wanted - one)
    return found
"""
LATE = COUNTED.replace(
    "    found = 0\n", "    found = 0\n    for _ in range(2_000_000):\n        pass\n"
)
HANGS = "def pairs(numbers, wanted):\n    while True:\n        pass\n"
NOISY = "import os\n\n\ndef pairs(numbers, wanted):\n    return len(os.environ)\n"
MINUTES = 600  # s
TARGET = ("sums.py::pairs", "--tests", "test_sums.py")
FEW_BLOCKS = ("--blocks", "12")  # instead of 56 while the machine is too busy to decide
SHORTLY = ("--timeout", "6s", "--generated", "20", *FEW_BLOCKS)
QUICKLY = ("--generated", "10", "--blocks", "6")


@pytest.fixture
def project(abreast, tmp_path):
    """A git repository with a slow function, its tests, and a change that isn't committed."""

    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=abreast.folder, check=True, capture_output=True, text=True
        ).stdout

    (abreast.folder / ".git").rmdir()
    git("init", "-q")
    git("config", "user.email", "a@example.org")
    git("config", "user.name", "a")
    abreast.file("sums.py", SLOW)
    abreast.file("test_sums.py", TESTS)
    abreast.file("pytest.ini", QUICK)
    abreast.file(".gitignore", ".abreast\n__pycache__\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    abreast.file("notes.txt", "untracked\n")
    abreast.git = git
    abreast.environment["ABREAST_CACHE"] = str(tmp_path / "cache")
    (tmp_path / "tmp").mkdir()
    abreast.environment["TMPDIR"] = str(tmp_path / "tmp")
    abreast.environment["ABREAST_LOCKS"] = str(
        tmp_path / "tmp"
    )  # of its own: else it waits while others measure
    return abreast


def patiently(project, *words, under=(), command=ABREAST):
    """Run it to its end; as it measures, that takes long on a busy machine.

    `under` is a command that runs it. Without one it is forked, as always.
    """
    if not under and command is ABREAST:
        return project(*words, patience=MINUTES)
    ended = subprocess.run(
        [*under, *command, *words],
        cwd=project.folder,
        env=unmeasured(project.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MINUTES,
        check=False,
    )
    return Said(ended.returncode, ended.stdout, ended.stderr)


def reasons(said):
    """The verdict and the reason of each candidate in the output of `--json`."""
    return {one["name"]: (one["verdict"], one["reason"]) for one in said.rows[0]["candidates"]}


def drafts(project, **texts):
    for name, text in texts.items():
        project.file(f".abreast/drafts/{name}.py", text)
    return "--candidates", ".abreast/drafts"


def seen(project):
    """Every byte of the main tree, and git's status of it."""
    return (
        look(project.folder, without=(".abreast",)),
        project.git("worktree", "list"),
        project.git("status", "--short"),
    )


# --- verdicts


def test_a_branch_that_can_not_be_made_is_one_sentence_before_anything_runs(project):
    words = ("optimize", *TARGET, *drafts(project, a=FAST), "--branch")
    project.git("branch", "taken")
    for name, text, sentence in (
        ("taken", SLOW, "--branch: there is a branch taken already"),
        ("a b", SLOW, "--branch: 'a b' is no name of a branch"),
        ("new", SLOW + "# changed\n", "--branch: sums.py differs from HEAD"),
    ):
        project.file("sums.py", text)
        said = project(*words, name)
        assert (said.code, sentence in said.err) == (2, True), said
    assert "without timing there is none" in project(*words, "new", "--behaviour-only").err
    assert project.git("branch", "--list", "new") == ""


@pytest.mark.timeout(700)
def test_a_run_in_which_no_candidate_could_be_tried_has_failed(project):
    said = project(
        "optimize", *TARGET, *drafts(project, a="def pairs(a", b="def pairs(b"), "--json"
    )
    assert said.code == 1
    assert {name: verdict for name, (verdict, _) in reasons(said).items()} == {
        "a": "error",
        "b": "error",
    }
    (row,) = project("runs", "--json").rows
    assert (row["state"], row["reason"]) == ("failed", "no item succeeded: 2 candidates failed")
    assert "optimize-1 is failed" in project("resume", "optimize-1").err


def test_candidates_are_judged_the_best_is_a_patch_and_nothing_is_touched(project, tmp_path):
    given = drafts(
        project,
        a_fast=FAST,
        b_wrong=WRONG,
        c_renamed=RENAMED,
        d_hangs=HANGS,
        e_reads=NOISY,
        f_bad="def (",
    )
    before = seen(project)
    said = patiently(
        project,
        "optimize",
        *TARGET,
        *given,
        "--parallel-candidates",
        "3",
        *SHORTLY,
        "--json",
        "-o",
        "w.patch",
    )
    assert said.code == 0, said.err
    assert most_checked_at_once(project.store) == 3
    (found,) = said.rows  # one object
    wanted = {
        "a_fast": "faster",
        "b_wrong": "wrong",
        "c_renamed": "duplicate",
        "d_hangs": "timeout",
    }
    expect_verdicts(reasons(said), {**wanted, "e_reads": "refused", "f_bad": "error"})
    assert list(found)[:6] == [
        "target",
        "baseline",
        "candidates",
        "winner",
        "noise_floor",
        "confinement",
    ]
    assert list(found)[6:9] == ["unconfined", "uncounted", "uncompared"]
    assert list(found)[9:] == ["timing", "processes", "phases", "branch"]
    assert found["processes"] == "forked"
    assert found["phases"]["behaviour"]["processes"] == 3
    assert (found["winner"], found["target"]) == ("a_fast", "sums.py::pairs")
    fast, wrong = found["candidates"][:2]
    assert fast["interval"][0] > 1 + found["noise_floor"]
    assert fast["behaviour"]["passed"] == fast["behaviour"]["tests"] == 3
    assert wrong["diffs"][0]["original"]
    assert "memory" in found["confinement"]
    patch = project.folder / "w.patch"
    text = patch.read_text()
    patch.unlink()
    assert seen(project) == before
    assert not list((tmp_path / "cache").rglob("abreast-*"))
    project.file(".abreast/w.patch", text)
    project.git("apply", ".abreast/w.patch")
    assert "Counter" in (project.folder / "sums.py").read_text()
    page = (project.folder / ".abreast/reports/optimize-1.html").read_text()
    assert "a_fast" in page
    assert project("show", "optimize-1").code == 0


def test_the_table_shows_the_counterexample_and_the_walls(project):
    said = project(
        "optimize", *TARGET, *drafts(project, wrong=WRONG, original=SLOW), "--width", "0", *QUICKLY
    )
    assert said.code == 0, said.err
    assert said.lines[0].split() == ["candidate", "verdict", "speed", "interval", "memory", "why"]
    assert "wrong is wrong: " in said.out
    assert "it is the original" in said.out
    assert "none of 2 candidates is known to be faster" in said.out
    assert "confinement: " in said.err
    assert "the report is .abreast/reports/optimize-1.html" in said.err


def test_no_candidates_are_an_empty_result_and_no_worktree(project, tmp_path):
    (project.folder / ".abreast/drafts").mkdir(parents=True)
    said = project("optimize", *TARGET, "--candidates", ".abreast/drafts", "--json")
    assert said.code == 0
    assert said.rows[0]["candidates"] == []
    assert (said.rows[0]["winner"], said.rows[0]["baseline"]) == (None, None)
    assert not (tmp_path / "cache").exists()


# --- sources


@pytest.mark.timeout(700)
def test_a_patch_is_verified_and_the_exit_code_says_what_became_of_it(project):
    project.file("sums.py", WRONG)
    patch = project.git("diff", "sums.py")
    project.git("checkout", "-q", "sums.py")
    project.file(".abreast/wrong.patch", patch)
    project.file(
        ".abreast/wide.patch",
        patch
        + (
            "--- a/test_sums.py\n+++ b/test_sums.py\n@@ -1 +1 @@\n-from sums import pairs\n"
            "+pairs = 1\n"
        ),
    )
    project.file(".abreast/fast.py", FAST)
    before = seen(project)

    def verify(path):
        target = ("--target", "sums.py::pairs", "--tests", "test_sums.py")
        words = (*target, "--generated", "10", "--json", *FEW_BLOCKS)
        return patiently(project, "verify", path, *words)

    said = verify(".abreast/wrong.patch")
    assert (said.code, said.rows[0]["candidates"][0]["verdict"]) == (1, "wrong")
    said = verify(".abreast/wide.patch")
    assert (said.code, said.rows[0]["candidates"][0]["verdict"]) == (1, "refused")
    assert "touches test_sums.py" in said.rows[0]["candidates"][0]["reason"]
    said = verify(".abreast/fast.py")
    assert seen(project) == before
    expect_verdicts(reasons(said), {"fast": "faster"})
    assert (said.code, said.rows[0]["winner"]) == (0, "fast")


@pytest.mark.timeout(700)
def test_refs_and_commands_are_sources_too(project):
    project.git("checkout", "-q", "-b", "other")
    project.file("sums.py", WRONG)
    project.git("commit", "-qam", "two")
    project.git("checkout", "-q", "-")
    said = patiently(project, "optimize", *TARGET, "--refs", "other,HEAD", "--json", *QUICKLY)
    assert [one["verdict"] for one in said.rows[0]["candidates"]] == ["wrong", "duplicate"]
    command = (
        "test $ABREAST_NUMBER = 2 && exit 3; "
        'grep -q pairs "$ABREAST_FILE" && sed "s/found += 1/found = 9/"'
    )
    said = patiently(
        project, "optimize", *TARGET, "--command", command, "--proposals", "2", "--json", *QUICKLY
    )
    assert [(one["name"], one["verdict"]) for one in said.rows[0]["candidates"]] == [
        ("command-1", "wrong"),
        ("command-2", "error"),
    ]
    assert "exit code 3" in said.rows[0]["candidates"][1]["reason"]


def test_a_job_file_says_the_same(project):
    drafts(project, wrong=WRONG)
    project.file(
        ".abreast/job.yaml",
        (
            "candidates:\n  target: sums.py::pairs\n  tests: [test_sums.py]\n"
            "  candidates: .abreast/drafts\n"
        ),
    )
    said = project("run", ".abreast/job.yaml", "--json")
    assert said.rows[0]["candidates"][0]["verdict"] == "wrong", said.err
    project.file(
        ".abreast/job.yaml", "candidates:\n  target: sums.py::pairs\n  test: [test_sums.py]\n"
    )
    said = project("run", ".abreast/job.yaml")
    assert said.code == 2
    assert "there is no 'test'; did you mean tests" in said.err


@pytest.mark.timeout(700)
async def test_a_model_proposes_repairs_refines_and_adapts_and_no_call_is_repeated(project):
    """Over HTTP: a wrong draft, its repair, the repair's refinement, and a repeated last step."""
    asked = []

    def reply(prompt):
        asked.append(prompt)
        if "approach 1" in prompt:
            code = SLOW.replace("found += 1", "found = 2")
        elif "does not do what" in prompt:
            code = COUNTED
        else:
            code = FAST if "Refine each" in prompt else COUNTED.replace("found", "pairs_found")
        return f"Here:\n```python\n{code}```\n"

    async with open_storm(script=reply) as storm:
        project.file("abreast.toml", LANES.format(url=storm.url))
        project.environment["STORM_KEY"] = "sk-none"
        words = (
            "optimize",
            *TARGET,
            "--model",
            "storm/any",
            "--proposals",
            "1",
            "--json",
            "--generated",
            "10",
            *FEW_BLOCKS,
        )
        said = await asyncio.to_thread(patiently, project, *words)
        assert said.code == 0, said.err
        wanted = [
            ("draft-1", "wrong", "model"),
            ("draft-1-repaired", "faster", "repair"),
            ("draft-1-repaired-refined", "faster", "refinement"),
            ("draft-1-repaired-refined-adapted", "duplicate", "adaptive"),
        ]
        expect_verdicts(reasons(said), {name: verdict for name, verdict, _ in wanted})
        assert [
            (one["name"], one["verdict"], one["origin"]) for one in said.rows[0]["candidates"]
        ] == wanted
        assert said.rows[0]["winner"] == "draft-1-repaired-refined"
        assert [entry.outcome for entry in storm.log] == ["ok"] * 4
        again = await asyncio.to_thread(patiently, project, "resume", "optimize-1")
        assert "is done" in again.err
        assert len(storm.log) == 4
    repair, refine, adapt = asked[1:]
    assert "What differs:\n- " in repair
    assert "Candidate 1 (" in refine
    assert [
        adapt.index(name)
        for name in ("1. draft-1,", "2. draft-1-repaired,", "3. draft-1-repaired-refined,")
    ]


# --- what can't be done


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("nowhere.py::f", "--tests", "test_sums.py", "--candidates", "d"),
            "there is no file nowhere.py",
        ),
        (
            ("sums.py::pair", "--tests", "test_sums.py", "--candidates", "d"),
            "there is no function pair in sums.py; there is pairs",
        ),
        (("sums.py", "--tests", "test_sums.py", "--candidates", "d"), "write FILE.py::FUNCTION"),
        (
            ("sums.py::pairs", "--tests", "nowhere.py", "--candidates", "d"),
            "--tests: there is no nowhere.py",
        ),
        (("sums.py::pairs", "--tests", "test_sums.py"), "candidates come from one of"),
        (
            ("sums.py::pairs", "--tests", "test_sums.py", "--candidates", "d", "--refs", "a"),
            "candidates come from one of",
        ),
        (
            ("sums.py::pairs", "--tests", "test_sums.py", "--candidates", "d", "--threshold", "x"),
            "no share such as",
        ),
        (
            ("sums.py::pairs", "--tests", "test_sums.py", "--candidates", "d", "--width", "x"),
            "--width: must be a whole number",
        ),
        (
            ("sums.py::pairs", "--tests", "test_sums.py", "--candidates", "d", "--timeout", "x"),
            "must be a time",
        ),
        (
            (
                "sums.py::pairs",
                "--tests",
                "test_sums.py",
                "--candidates",
                "d",
                "--python",
                "nopython",
            ),
            "there is no nopython",
        ),
        (
            ("sums.py::pairs", "--tests", "test_sums.py", "--model", "nobody/x"),
            "there is no provider 'nobody'",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_starts(project, words, said):
    found = project("optimize", *words)
    assert found.code == 2, found.err
    assert said in found.err
    assert "Traceback" not in found.err
    assert len(found.err.splitlines()) == 1


CALLS = "from sums import pairs\n\n\ndef test_it():\n    assert pairs([], 1)\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"test_sums.py": "import sums\n\n\ndef test_it():\n    assert 1\n"},
            "no test calls pairs",
        ),
        (
            {
                "sums.py": (
                    "import time\n\n\ndef pairs(numbers, wanted):\n    return time.time_ns()\n"
                ),
                "test_sums.py": CALLS,
            },
            "does not do the same twice",
        ),
    ],
)
def test_without_anything_to_go_by_it_says_why(project, files, said):
    for name, text in files.items():
        project.file(name, text)
    found = project("optimize", *TARGET, *drafts(project, fast=FAST))
    assert found.code == 1, found.err
    assert said in found.err
    assert len(project.git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("files", "tests", "expected"),
    [
        (
            {"test_sums.py": "import sums\nimport not_there\n"},
            "test_sums.py",
            (
                1,
                (
                    "pytest can't collect test_sums.py: ModuleNotFoundError: "
                    "No module named 'not_there'"
                ),
                "not_there",
            ),
        ),
        (
            {"test_sums.py": "import os\nimport sums\n\n\ndef test_it():\n    os.abort()\n"},
            "test_sums.py",
            (1, "ended by signal 6, in test_sums.py::test_it", "Fatal Python error: Aborted"),
        ),
        ({}, "test_sums.py::test_nowhere", (2, "there is no such test", "not found")),
    ],
)
def test_what_pytest_says_is_shown_and_no_resume_is_offered(project, files, tests, expected):
    code, said, lines = expected
    for name, text in files.items():
        project.file(name, text)
    found = project("optimize", "sums.py::pairs", "--tests", tests, *drafts(project, fast=FAST))
    assert found.code == code, found.err
    assert said in found.err
    shown = [line for line in found.err.splitlines() if line.startswith("abreast: pytest: ")]
    assert any(lines in line for line in shown), found.err
    assert "resume" not in found.err
    assert "mend that and start a new run" in found.err
    assert "Traceback" not in [
        line.removeprefix("abreast: ")[:9] for line in found.err.splitlines()
    ]


def test_ignored_files_that_the_tests_need_are_there(project):
    project.file(".gitignore", ".abreast\n__pycache__\n_version.py\ndata/\n")
    project.file("_version.py", "SIZE = 240\n")
    project.file("data/wanted.txt", "49")
    tests = TESTS.replace("range(240)", "range(_version.SIZE)").replace(
        "], 49)", "], int(open('data/wanted.txt').read()))"
    )
    project.file("test_sums.py", f"import _version\n{tests}")
    assert "_version" not in project.git("status", "--short")
    said = project("optimize", *TARGET, *drafts(project, wrong=WRONG), *QUICKLY, "--json")
    assert said.code == 0, said.err
    assert said.rows[0]["baseline"]["passed"] == 3
    assert said.rows[0]["candidates"][0]["verdict"] == "wrong"


def test_a_missing_directory_of_candidates_is_said(project):
    found = project("optimize", *TARGET, "--candidates", "nowhere")
    assert found.code == 2
    assert "there is no directory" in found.err
    assert "resume" not in found.err


def test_a_changed_tree_is_no_reason_to_resume_again(project):
    (project.folder / ".abreast/drafts").mkdir(parents=True)
    project.file("test_sums.py", CALLS)
    assert project("optimize", *TARGET, *drafts(project, fast=FAST)).code == 1
    project.file("test_sums.py", TESTS)
    found = project("resume", "optimize-1")
    assert found.code == 2, found.err
    assert "has changed since this run began: start a new one" in found.err
    assert "go on with" not in found.err


def test_a_dry_run_says_what_would_be_tried_and_tries_nothing(project, tmp_path):
    said = project("optimize", *TARGET, *drafts(project, fast=FAST), "--dry-run", "--json")
    assert said.code == 0
    assert said.rows[0]["target"] == "sums.py::pairs"
    assert (said.rows[0]["source"], said.rows[0]["requests"]) == ("candidates", 0)
    assert not project.store.exists()
    assert not (tmp_path / "cache").exists()
    assert (
        "test_sums.py" in project("optimize", *TARGET, *drafts(project, fast=FAST), "--dry-run").out
    )


def happened(kind, path):
    return Event(1, kind, path, 0.0, 0.0)


def test_a_line_shows_who_is_checked_and_who_is_measured():
    live = CandidatesLive()

    def said():
        return "  ".join(text for text, _ in live.parts() if text)

    live.add(happened(ITEM_STARTED, "optimize/tries/candidate/a/behaviour"))
    live.add(happened(ITEM_STARTED, "optimize/tries/candidate/b/behaviour"))
    assert said() == "behaviour  [a]  [b]  0 checked"
    live.add(happened(ITEM_SETTLED, "optimize/tries/candidate/a/behaviour"))
    live.add(happened(ITEM_STARTED, "optimize/sources"))
    assert said() == "behaviour  [b]  1 checked"
    live.add(happened(ITEM_STARTED, "optimize/tries/measure/a"))
    assert said() == "measuring a, alone"
    live.add(happened(ITEM_SETTLED, "optimize/tries/measure/a"))
    assert said() == "behaviour  [b]  1 checked"


# --- going on


def events(project):
    """How often each step began and ended; what ended, in order."""
    with closing(SqliteStore(project.store)) as store:
        found = [
            (event.kind, event.path)
            for event in each_event(store, "optimize-1", {ITEM_STARTED, ITEM_SETTLED})
        ]
    ended = [path for kind, path in found if kind == ITEM_SETTLED]
    return Counter(path for kind, path in found if kind == ITEM_STARTED), ended


def killed_and_resumed(project, kills, seed):
    chance = random.Random(seed)
    given = drafts(project, a_wrong=WRONG, b_fast=FAST, c_wrong=WRONG.replace("// 2", "// 3"))
    settings = ("--generated", "10", "--seed", "7", *FEW_BLOCKS)
    words = again = ("optimize", *TARGET, *given, "--json", *settings)
    before = seen(project)
    recorded, begun = set(), Counter()
    for _ in range(kills):
        with project.start(*words, measured=False) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=chance.uniform(0.5, 12.0))
            process.kill()
            process.communicate(timeout=PATIENCE)
        words = ("resume", "optimize-1", "--json")
        if not project.store.exists():
            words = again
            continue
        try:
            now, ended = events(project)
        except NoSuchRun:  # killed before it was there
            words = again
            continue
        assert {path: now[path] for path in recorded} == {path: begun[path] for path in recorded}
        recorded, begun = set(ended), now
    said = patiently(project, *words)
    if not said.out and "is done" in said.err:
        return
    assert said.code == 0, said.err
    now, ended = events(project)
    assert {path: now[path] for path in recorded} == {
        path: begun[path] for path in recorded
    }  # nothing recorded again
    expect_verdicts(
        reasons(said), dict(zip(reasons(said), ("wrong", "faster", "wrong"), strict=True))
    )
    assert said.rows[0]["winner"] == "b_fast", said.rows[0]["candidates"]
    assert len(ended) == len(set(ended))
    assert seen(project) == before


@pytest.mark.timeout(700)
def test_killed_it_goes_on_to_the_same_winner_and_repeats_nothing(project):
    killed_and_resumed(project, 2, seed=3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_thirty_times_it_goes_on_to_the_same_winner_and_repeats_nothing(project):
    for seed in range(10):
        for place in (
            project.store,
            project.store.with_name("abreast.db-wal"),
            project.store.with_name("abreast.db-shm"),
        ):
            place.unlink(missing_ok=True)
        killed_and_resumed(project, 3, seed=seed)


def test_interrupted_it_says_how_to_go_on_and_leaves_no_worktree(project):
    words = ("optimize", *TARGET, *drafts(project, fast=FAST, hangs=HANGS), "--timeout", "60s")
    with project.start(*words) as process:
        while project.git("worktree", "list").count("\n") < 2:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
                break
        process.send_signal(signal.SIGINT)
        said = end(process)
    assert said.code == 130, said.err
    assert "go on with: abreast resume optimize-1" in said.err
    assert len(project.git("worktree", "list").splitlines()) == 1


@pytest.mark.timeout(700)
def test_interrupted_while_it_measures_the_best_so_far_is_shown_and_written(project):
    words = ("optimize", *TARGET, *drafts(project, a_fast=FAST, b_late=LATE), "--generated", "0")
    with project.start(*words, measured=False) as process:
        ended = []
        while "optimize/tries/measure/a_fast" not in ended and process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
            with suppress(NoSuchRun, FileNotFoundError):
                ended = events(project)[1] if project.store.exists() else []
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=MINUTES)
    assert process.returncode == 130, err
    assert b"a_fast behaves like the original and is " in out
    patch = (project.folder / ".abreast/reports/optimize-1.patch").read_text()
    assert "Counter" in patch
    assert len(project.git("worktree", "list").splitlines()) == 1


TABLE = """\
def table(words):
    if not words:
        raise ValueError("no words")
    return {one: len(one) for one in words}
"""
OTHERWISE = TABLE.replace("no words", "none").replace("in words}", "in reversed(words)}")
TABLE_TESTS = """\
import pytest
from tables import table


def test_table():
    assert table(["a", "bc"]) == {"a": 1, "bc": 2}


def test_none():
    with pytest.raises(ValueError):
        table([])
"""


@pytest.mark.timeout(700)
def test_what_is_relaxed_by_name_is_no_difference(project):
    project.file("tables.py", TABLE)
    project.file("test_tables.py", TABLE_TESTS)
    words = (
        "optimize",
        "tables.py::table",
        "--tests",
        "test_tables.py",
        *drafts(project, other=OTHERWISE),
        "--json",
    )
    verdicts = []
    for more in (("--exceptions", "type"), ("--compare", "loose", "--exceptions", "type")):
        said = patiently(project, *words, "--generated", "0", "--behaviour-only", *more)
        verdicts.append(
            (
                said.rows[0]["candidates"][0]["verdict"] == "wrong",
                said.rows[0]["candidates"][0]["reason"],
            )
        )
    assert [wrong for wrong, _ in verdicts] == [True, False], verdicts


def test_a_budget_that_is_spent_ends_it_with_its_own_code(project):
    said = project("optimize", *TARGET, *drafts(project, fast=FAST), "--budget", "1s")
    assert said.code == 3, said.err
    assert "resume optimize-1 --budget MORE" in said.err
    assert len(project.git("worktree", "list").splitlines()) == 1


async def test_requests_that_are_spent_end_it_and_with_more_it_goes_on_where_it_was(project):
    def reply(prompt):
        changed = "found = 2" if "approach 1" in prompt else "found = 3"
        return f"```python\n{SLOW.replace('found += 1', changed)}```\n"

    async with open_storm(script=reply) as storm:
        project.file("abreast.toml", LANES.format(url=storm.url))
        project.environment["STORM_KEY"] = "sk-none"
        words = (
            "optimize",
            *TARGET,
            "--model",
            "storm/any",
            "--proposals",
            "1",
            "--repairs",
            "1",
            "--budget",
            "1req",
            *FEW_BLOCKS,
        )
        said = await asyncio.to_thread(patiently, project, *words, "--generated", "0", "--json")
        assert said.code == 3, said.err
        assert "resume optimize-1 --budget MORE" in said.err
        assert len(storm.log) == 1
        said = await asyncio.to_thread(
            patiently, project, "resume", "optimize-1", "--budget", "50req", "--json"
        )
        assert said.code == 0, said.err
        assert [one["verdict"] for one in said.rows[0]["candidates"]] == ["wrong", "wrong"]
        assert len(storm.log) == 2
    assert len(project.git("worktree", "list").splitlines()) == 1


GIT = """#!/bin/sh
case "$*" in *' apply '*) echo "$$" > "{started}"; exec tail -f /dev/null;; esac
exec "{git}" "$@"
"""


def test_ctrl_c_is_heard_while_git_applies_a_patch(project, tmp_path):
    started, place = tmp_path / "started", tmp_path / "bin"
    os.mkfifo(started)
    place.mkdir()
    (place / "git").write_text(GIT.format(started=started, git=shutil.which("git")))
    (place / "git").chmod(0o755)
    project.file("patches/one.patch", "--- a/sums.py\n+++ b/sums.py\n")
    project.environment["PATH"] = f"{place}{os.pathsep}{project.environment['PATH']}"
    with project.start("optimize", *TARGET, "--patches", "patches", measured=False) as process:
        hanging = int(started.read_text())  # waits until git is there
        with ended_at_last([hanging]):
            process.send_signal(signal.SIGINT)
            said = end(process)
    assert said.code == 130, said.err


# --- behaviour alone, and tolerance

MEAN = "def pairs(numbers, wanted):\n    return sum(numbers) / 3 + wanted\n"
NEAR = "def pairs(numbers, wanted):\n    return wanted + sum(numbers) * (1 / 3)\n"
CALLS = "from sums import pairs\n\n\ndef test_few():\n    assert pairs([5, 5, 0.1], 1) > 4\n"


@pytest.mark.timeout(700)
def test_behaviour_alone_is_verified_without_measuring(project):
    verify = ("--target", *TARGET, "--behaviour-only", "--generated", "5", "--json")
    for text, code, verdict in ((COUNTED, 0, "same"), (WRONG, 1, "wrong")):
        said = project("verify", str(project.file("draft.py", text)), *verify)
        assert said.code == code, said.err
        (found,) = said.rows[0]["candidates"]
        assert (found["verdict"], found["ratio"], said.rows[0]["timing"]) == (verdict, None, False)
        assert said.rows[0]["baseline"]["inputs"] == 0
        assert ("its speed was not measured" in found["reason"]) is (verdict == "same")


@pytest.mark.timeout(700)
def test_floats_may_be_apart_as_far_as_a_flag_or_a_comment_allows(project):
    def verdict(*more):
        words = ("--target", *TARGET, "--behaviour-only", "--generated", "0", "--json")
        draft = str(project.file("draft.py", NEAR))
        return project("verify", draft, *words, *more).rows[0]["candidates"][0]["verdict"]

    project.file("sums.py", MEAN)
    project.file("test_sums.py", CALLS)
    assert verdict() == "wrong"
    assert verdict("--rel-tol", "1e-9") == "same"
    project.file("sums.py", f"# abreast: close\n{MEAN}")
    assert verdict() == "same"
    assert verdict("--rel-tol", "0") == "wrong"


NO_DESCRIPTOR = """
from abreast.cli.main import main
from abreast.jobs.candidates.evaluator import Evaluator

check = Evaluator.check


async def fail_for_one(self, slot, text, *more):
    if "count" in text:
        raise OSError(24, "Too many open files")
    return await check(self, slot, text, *more)


Evaluator.check = fail_for_one
main()
"""


@pytest.mark.timeout(700)
def test_a_candidate_that_the_machine_failed_to_check_is_told_and_tried_again(project):
    words = ("optimize", *TARGET, *drafts(project, counted=COUNTED, fast=FAST))
    given = (*words, "--behaviour-only", "--generated", "5")
    ended = patiently(project, *given, command=(sys.executable, "-c", NO_DESCRIPTOR))
    again = "abreast resume optimize-1 --retry-failed"
    assert f"a candidate could not be tried; once more: {again}" in ended.err
    assert ended.code == 1
    said = project("resume", "optimize-1", "--retry-failed", "--json")
    assert said.code == 0, said.err
    assert {name: verdict for name, (verdict, _) in reasons(said).items()} == {
        "counted": "same",
        "fast": "same",
    }


@pytest.mark.parametrize("given", ["-1", "inf", "a"])
def test_a_tolerance_that_is_none_is_refused(project, given):
    said = project("optimize", *TARGET, *drafts(project, a=FAST), "--abs-tol", given)
    assert said.code == 2
    assert "--abs-tol" in said.err


def test_fewer_than_six_blocks_are_refused(project):
    said = project("optimize", *TARGET, *drafts(project, a=FAST), "--blocks", "4")
    assert said.code == 2
    assert "6" in said.err


def test_without_tests_the_alternatives_are_named(project):
    said = project("optimize", "sums.py::pairs", *drafts(project, a=FAST))
    assert said.code == 2
    for option in ("--tests", "--doctests", "--workload", "--trace", "--hints", "--calls-by"):
        assert option in said.err


def test_a_verdict_says_which_evidence_it_stands_on(project):
    project.file("app.py", "import sums\nprint(sums.pairs([1, 2, 3], 4))\n")
    words = ("--trace", "python app.py", "--behaviour-only", "--generated", "5", "--json")
    said = project("optimize", "sums.py::pairs", *drafts(project, a=FAST), *words)
    assert said.code == 0, said.err
    (found,) = said.rows
    (one,) = found["candidates"]
    assert one["verdict"] == "same"
    assert one["behaviour"]["evidence"] == ["trace"]
    assert "of trace (1 of 1 items pass)" in one["reason"]


async def test_a_model_proposes_calls_which_are_asked_for_once(project):
    def reply(request):
        return "```python\npairs([1, 2, 3], 4)\npairs([], 0)\npairs(None, 1)\n```"

    async with open_storm(script=reply) as storm:
        project.file("abreast.toml", LANES.format(url=storm.url))
        project.environment["STORM_KEY"] = "sk-none"
        words = ("--calls-by", "storm/any", "--behaviour-only", "--generated", "0", "--json")
        given = (
            "sums.py::pairs",
            *drafts(project, a=FAST, b=SLOW.replace("found += 1", "found = 2")),
            *words,
        )
        said = await asyncio.to_thread(patiently, project, "optimize", *given)
        assert said.code == 0, said.err
        (found,) = said.rows
        verdicts = [one["verdict"] for one in found["candidates"]]
        assert verdicts == ["same", "wrong"]
        assert found["candidates"][0]["behaviour"]["evidence"] == ["proposed calls"]
        assert found["candidates"][0]["behaviour"]["invocations"] == 2
        assert len(storm.log) == 1
